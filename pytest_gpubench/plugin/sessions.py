"""Further sessions of a saved run: the same tests again, each time in a fresh process, whose results join its file."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpubench.errors import BadRequest, GpuBenchError
from pytest_gpubench.plugin.save import OutputFiles
from pytest_gpubench.plugin.workers import is_worker
from pytest_gpubench.settings import Resolver, Settings, flag_name, ini_name
from pytest_gpubench.units import count, format_share, printable

if TYPE_CHECKING:
    from pytest_gpubench.results.model import SavedRun

RESULTS = "PYTEST_GPUBENCH_SESSION"
"""The variable that names the file for the results of a further session."""
FIRST_ONLY: dict[str, Any] = {
    "save": None,
    "autosave": False,
    "sessions": 1,
    "compare": None,
    "compare_fail": None,
    "html": None,
    "markdown": None,
    "trace": None,
}
"""The settings that only the first session follows, at what they are in the others."""
TAIL_LINES = 15
END_S = 10.0
"""The time in which an interrupted session may end by itself."""
TESTS_RAN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


class NotTaken(GpuBenchError):
    """Raised within this module where a session has no results; its text is what is said."""


def as_further_session(config: pytest.Config, resolve: Callable[[pytest.Config], Resolver]) -> Resolver:
    """Read the settings, in a further session without those that only the first one follows.

    Raises BadRequest where sessions are asked for and no run is saved.
    """
    results = None if is_worker(config) else os.environ.pop(RESULTS, None)  # not for what the tests start
    if results is None:
        resolver = resolve(config)
        settings = resolver.run
        if "sessions" in resolver.explicit and settings.sessions > 1 and not (settings.save or settings.autosave):
            raise BadRequest(
                f"{flag_name('sessions')}={settings.sessions} takes sessions of a run that is saved: "
                f"give {flag_name('save')}=NAME too"
            )
        return resolver
    for name in FIRST_ONLY:
        setattr(config.option, ini_name(name), None)  # xdist hands these on to its workers
    config.option.xmlpath = None  # JUnit's file is that of the first session
    resolver = resolve(config)
    return replace(resolver, run=replace(resolver.run, **FIRST_ONLY, json=results))


def take_further_sessions(config: pytest.Config, files: OutputFiles, status: int | None) -> int | None:
    """Take the sessions after the first one, add each to the saved run, and return pytest's exit status."""
    settings = files.settings
    if settings.sessions == 1 or not files.saved or status not in TESTS_RAN or is_worker(config):
        return status
    terminal = config.get_terminal_writer()
    try:
        for number in range(2, settings.sessions + 1):
            terminal.line(f"gpu_bench: session {number} of {settings.sessions}: {_take_one(config, files)}")
        for line in _what_was_learnt(files.saved, settings):
            terminal.line(f"gpu_bench: {line}")
    except KeyboardInterrupt:
        terminal.line(f"gpu_bench: session {number} of {settings.sessions} was interrupted", red=True)
        return pytest.ExitCode.INTERRUPTED
    except Exception as error:  # whatever it is, the first session is saved
        known = isinstance(error, (GpuBenchError, OSError))
        told = str(error) if known else f"{type(error).__name__}: {error}"
        terminal.line(f"gpu_bench: session {number} of {settings.sessions}: {told}", red=True)
        return status or pytest.ExitCode.TESTS_FAILED
    return status


def _take_one(config: pytest.Config, files: OutputFiles) -> str:
    """Run the tests in a fresh process, add what they measured to the saved run, and return what is said of it."""
    from pytest_gpubench.results.store import Storage

    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpubench-session-") as folder:
        run, has_failed = _run_tests(config, Path(folder))
    Storage(Path(files.settings.storage)).save_each(run, files.settings.save or "", files.saved)
    failed = ", some failed" if has_failed else ""
    return f"{count(len(run.records), 'test')}{failed}, {time.monotonic() - began_s:.0f} s"


def _run_tests(config: pytest.Config, folder: Path) -> "tuple[SavedRun, bool]":
    """Return what the same pytest measures in a fresh process, and whether tests failed in it; raise NotTaken."""
    from pytest_gpubench.results.store import read_run

    results, log = folder / "results.json", folder / "log"
    given = config.invocation_params
    command = [*_pytest(), *map(str, given.args), "-o", f"cache_dir={folder / 'cache'}"]
    left_out = ("PYTEST_CURRENT_TEST", "GITHUB_STEP_SUMMARY")
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | {RESULTS: str(results)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=given.dir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            status = process.wait()
        except BaseException:
            _end(process)
            raise
    run = read_run(results) if status in TESTS_RAN and results.exists() else None
    if run is None or not any(item.timing.measured for record in run.records for item in record.measurements):
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        told = "".join(f"\n    {printable(line)}" for line in lines)
        raise NotTaken(f"nothing was measured (exit status {status}); it ended with:{told}")
    return run, status == pytest.ExitCode.TESTS_FAILED


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process as Ctrl-C would, with what it started; kill it where that takes long."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _pytest() -> list[str]:
    """Return the command that this process was started by: `python -m pytest` imports from its folder, `pytest` not."""
    script = sys.argv[0]
    is_script = os.path.basename(script) in ("pytest", "py.test") and os.path.isfile(script)
    return [sys.executable, script] if is_script else [sys.executable, "-m", "pytest"]


def _what_was_learnt(saved: list[Path], settings: Settings) -> list[str]:
    """Return how much processes differ in each saved run, and how small a change can be told."""
    from pytest_gpubench.results.baseline import Baseline
    from pytest_gpubench.results.sessions import count_sessions
    from pytest_gpubench.results.store import read_run

    lines = []
    for path in saved:
        run = read_run(path)
        sessions, spread = count_sessions(run), Baseline([(run.name, run)]).spreads["time"]
        least = spread.decidable(settings.alpha / 2, sessions)
        lines.append(
            f"{path} has {count(sessions, 'session')}: times differ by {format_share(spread.std)} from process to "
            f"process, so a tolerance of {format_share(least)} or more can be decided"
        )
    return lines
