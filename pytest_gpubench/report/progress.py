"""A line on the terminal while one test compiles or measures for longer than a second."""

import threading
import time
from collections.abc import Callable

from pytest_gpubench.units import printable

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
                    self._show(printable(f" {FRAMES[frame % len(FRAMES)]} {self._text}, {elapsed_s:.0f} s"))

    def _show(self, line: str) -> None:
        self._erase()
        line = line[: max(0, self._columns_left() - 1)]
        self._write(line)
        self._shown = len(line)

    def _erase(self) -> None:
        if self._shown:
            self._write("\b" * self._shown + " " * self._shown + "\b" * self._shown)
            self._shown = 0
