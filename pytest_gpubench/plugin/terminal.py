"""Write to the terminal while tests run, past pytest's capturing, and show what takes longer than a second."""

import os
import sys
import threading
import time
from collections.abc import Callable

import pytest

from pytest_gpubench.plugin.workers import is_worker, worker_name
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.units import printable, safe_line

PATIENCE_S = 1.0
INTERVAL_S = 0.25
FRAMES = "|/-\\"


class Progress:
    """Show the current activity at the end of the line, and erase it again; `write` gets the raw text."""

    def __init__(self, write: Callable[[str], None], columns_left: Callable[[], int]) -> None:
        self._write = write
        self._columns_left = columns_left
        self._text = ""
        self._since = 0.0
        self._shown = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def say(self, text: str) -> None:
        """Set the current activity; an empty text means none."""
        with self._lock:
            if not self._text:
                self._since = time.monotonic()
            self._text = text
            if not text:
                self._erase()
                self._wake.set()
                self._thread = None
            elif self._thread is None:
                self._wake = threading.Event()
                self._thread = threading.Thread(target=self._spin, args=(self._wake,), daemon=True)
                self._thread.start()

    def _spin(self, stop: threading.Event) -> None:
        frame = 0
        while not stop.wait(INTERVAL_S):
            with self._lock:
                elapsed_s = time.monotonic() - self._since
                if not stop.is_set() and self._text and elapsed_s >= PATIENCE_S:
                    frame += 1
                    line = printable(f" {FRAMES[frame % len(FRAMES)]} {self._text}, {elapsed_s:.0f} s")
                    self._erase()
                    line = line[: max(0, self._columns_left() - 1)]
                    self._write(line)
                    self._shown = len(line)

    def _erase(self) -> None:
        if self._shown:
            self._write("\b" * self._shown + " " * self._shown + "\b" * self._shown)
            self._shown = 0


def write_line(reporter: "pytest.TerminalReporter", line: str, coloured: bool = False, **markup: bool) -> None:
    """Write a line of ours; coloured: whether it has colours already."""
    reporter.write_line(safe_line(line, coloured), **markup)


def write_sentence(reporter: "pytest.TerminalReporter", sentence: str, **markup: bool) -> None:
    """Write a sentence of ours, in lines that fit the terminal."""
    for line in Screen.current(color=False).wrapped(sentence):
        write_line(reporter, line, **markup)


def announce(config: pytest.Config, sentence: str, **markup: bool) -> None:
    """Write a line now; a worker writes it to the stderr that it shares with its controller."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not is_worker(config) and reporter is not None:
        reporter.ensure_newline()
        write_sentence(reporter, f"gpu_bench: {sentence}", **markup)
        return
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:
        with capture.global_and_fixture_disabled():
            sys.stderr.write(safe_line(f"gpu_bench: {worker_name()} {sentence}") + "\n")
            sys.stderr.flush()


def progress(config: pytest.Config) -> Callable[[str], None]:
    """Return a function that shows a test's current activity on the terminal; call it before stdout is captured.

    Where stdout is no terminal, it shows nothing.
    """
    try:
        if is_worker(config) or config.getoption("capture", "no") == "no" or not sys.stdout.isatty():
            return lambda text: None
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        terminal = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding=encoding, errors="backslashreplace")
    except Exception:  # a stdout of somebody else's may lack any of these
        return lambda text: None
    config.add_cleanup(terminal.close)

    def show(text: str) -> None:
        terminal.write(text)
        terminal.flush()

    def columns_left() -> int:
        if config.pluginmanager.get_plugin("terminalreporter") is None:
            return 0
        writer = config.get_terminal_writer()
        return writer.fullwidth - writer.width_of_current_line

    return Progress(show, columns_left).say
