"""The same pytest in a fresh process, which only measures and leaves its results in a file.

Three variables tell it so. It removes them from its environment: they are not for what the tests start.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.child_process import LISTED_TESTS, TURN_SOCKET, ending, inner_environment, run_logged
from pytest_gpubench.errors import GpuBenchError, first_and_last_line
from pytest_gpubench.gpu.lock import take_over_turns, turns_to_hand_over
from pytest_gpubench.plugin.options import resolve
from pytest_gpubench.plugin.workers import hand_on, handed_on
from pytest_gpubench.results.model import SavedRun, TestRecord
from pytest_gpubench.results.store import read_run
from pytest_gpubench.settings import Resolver, ini_name

RESULTS = "PYTEST_GPUBENCH_SESSION"
"""The variable that names the file for the results."""
TURNS = "PYTEST_GPUBENCH_TURNS"
"""The variable with the lock files of the GPUs that the parent holds and their inherited descriptors, as JSON.

A forged variable gains nothing: only the inherited descriptor holds a lock.
"""
FRESH = "gpu_bench_fresh"
"""The key under which the workers of a fresh process are told that they are its."""
OF_AB = "gpu_bench_of_ab"
"""The key under which the workers of a run of `ab` are told so; they start after its turn at the GPU has begun."""
COUNTING = "PYTEST_GPUBENCH_COUNTING"
"""The variable that names the file which a fresh process, watched by ncu, notes its captures in."""
NAMING = "PYTEST_GPUBENCH_NAMING"
"""The variable that names the file in which a fresh process notes what its calls mean if they break the GPU."""
UNFOLLOWED: dict[str, Any] = {
    "only": True,
    "skip": False,
    "save": None,
    "autosave": False,
    "sessions": 1,
    "compare": None,
    "compare_fail": None,
    "html": None,
    "markdown": None,
    "plot": None,
    "trace": None,
    "counters": "no",
}
"""The settings that a fresh process does not follow, with their values in it."""
NOT_OF_AB = ("save", "autosave", "sessions", "html", "markdown", "plot", "trace")
"""Those of them that a run of `ab` does not follow: it may be of a commit that nobody has merged."""
MOST_CONFIRMING_S, MOST_NAMING_S = 300.0, 120.0
"""The time that all such processes of a run, or of an xdist worker, may take: one takes about 10 s."""
RESULTS_FILE, LOG_FILE, NOTES_FILE = "results.json", "log", "notes"
"""The files of a fresh process in its folder."""
TESTS_RAN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


class NotTaken(GpuBenchError):
    """Raised if a fresh process has no results; its text is for the user."""


def as_fresh_process(config: pytest.Config) -> Resolver | None:
    """Read the settings of a fresh process, its workers or a run of `ab` without those not followed; else None."""
    results = os.environ.pop(RESULTS, None)
    if results is None and not handed_on(config, FRESH):
        if TURN_SOCKET not in os.environ and not handed_on(config, OF_AB):
            return None
        hand_on(config, OF_AB, True)
        config.option.xmlpath = None  # no run of `ab` replaces the user's file of JUnit
        resolver = resolve(config)
        return replace(resolver, run=replace(resolver.run, **{name: UNFOLLOWED[name] for name in NOT_OF_AB}))
    hand_on(config, FRESH, True)
    left_out = UNFOLLOWED | ({"startup": "lazy"} if COUNTING in os.environ else {})  # ncu holds what profilers need
    if turns := os.environ.pop(TURNS, None):
        take_over_turns(json.loads(turns))
        left_out |= {"lock_clocks": None}  # the parent has locked them
    for name in left_out:
        setattr(config.option, ini_name(name), None)
    config.option.xmlpath = None  # JUnit's file is that of the first process
    resolver = resolve(config)
    run = replace(resolver.run, **left_out, json=results)
    return replace(resolver, run=run, explicit=resolver.explicit | {"counters"})  # whatever a mark says


def run_fresh(
    config: pytest.Config,
    folder: Path,
    tests: Collection[str] = (),
    turns: Mapping[str, int] = {},
    timeout_s: float | None = None,
) -> tuple[SavedRun, bool]:
    """Return what the same pytest measures in a fresh process, and whether tests failed in it; raise NotTaken.

    folder: a temporary one, for its files. tests: the only ones to run, by node id; empty for all. turns: the locks
    that it takes over.
    """
    status = start_fresh(config, folder, tests, turns, timeout_s)
    results = folder / RESULTS_FILE
    run = read_run(results) if status in TESTS_RAN and results.exists() else None
    if run is None or not any(item.timing.measured for record in run.records for item in record.measurements):
        raise NotTaken(f"nothing was measured {ending(status, folder / LOG_FILE, timeout_s)}")
    return run, status == pytest.ExitCode.TESTS_FAILED


def start_fresh(
    config: pytest.Config,
    folder: Path,
    tests: Collection[str],
    turns: Mapping[str, int],
    timeout_s: float | None,
    under: Sequence[str] = (),
    others: Mapping[str, str] = {},
) -> int | None:
    """Run the same pytest in a fresh process; return its exit status, None where it took longer than timeout_s.

    under: the command that starts it. others: more variables.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with suppress(RuntimeError):  # of a broken GPU
            torch.cuda.empty_cache()  # the same tests need as much memory of the GPU once more
    listed = folder / "tests.json"
    script = sys.argv[0]  # `python -m pytest` imports from its folder, `pytest` does not
    is_script = os.path.basename(script) in ("pytest", "py.test") and os.path.isfile(script)
    program = [sys.executable, script] if is_script else [sys.executable, "-m", "pytest"]
    command = [*under, *program, *map(str, config.invocation_params.args)]
    if config.pluginmanager.hasplugin("cacheprovider"):  # without it the key is unknown
        command += ["-o", f"cache_dir={folder / 'cache'}"]
    variables = inner_environment() | {RESULTS: str(folder / RESULTS_FILE), **others}
    if tests:
        listed.write_text(json.dumps(list(tests)))
        variables[LISTED_TESTS] = str(listed)
        command += ["-n0"] if hasattr(config.option, "numprocesses") else []
    if turns:
        variables[TURNS] = json.dumps(dict(turns))
    return run_logged(command, config.invocation_params.dir, variables, folder / LOG_FILE, turns.values(), timeout_s)


class FurtherProcesses:
    """Fresh processes of single tests, as long as their time lasts in a run, or in an xdist worker.

    One takes about 10 s.
    """

    def __init__(self, config: pytest.Config, most_s: float = MOST_CONFIRMING_S) -> None:
        self.config = config
        self.most_s = self.left_s = most_s

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Give one more process a folder for its files; raise NotTaken where their time is spent."""
        if self.left_s <= 0:
            raise NotTaken(f"further processes of this run have taken {self.most_s:.0f} s")
        began_s = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="gpubench-fresh-") as name:
                yield Path(name)
        finally:
            self.left_s -= time.monotonic() - began_s

    def record(self, nodeid: str) -> TestRecord | str:
        """Return a test's record from a fresh process, whose addresses, clocks and choices are others; why, if none."""
        try:
            with self.folder() as folder:
                run, _ = run_fresh(self.config, folder, [nodeid], turns_to_hand_over(), self.left_s)
        except (NotTaken, OSError) as error:
            return first_and_last_line(error)
        return next((each for each in run.records if each.nodeid == nodeid), "it did not run the test")

    def what_broke(self, nodeid: str) -> str:
        """Run a test that broke the GPU again; return what is found wrong, empty for nothing, or if it takes too long.

        There calls with margins precede each comparison, which name the tensor beyond which a call reads or writes. The
        process notes, before each, what it means if that breaks the GPU: the last note is what is known at its end.
        """
        with suppress(NotTaken, OSError), self.folder() as folder:
            others = {NAMING: str(folder / NOTES_FILE)}
            status = start_fresh(self.config, folder, [nodeid], turns_to_hand_over(), self.left_s, others=others)
            found: list[str] = read_notes(folder / NOTES_FILE)
            return found[-1] if found and status is not None else ""
        return ""


def write_note(notes: str | None, note: object) -> None:
    """Add a line to the notes of this process, for the one that started it."""
    assert notes is not None, "it is a fresh process"
    with open(notes, "a") as file:
        print(json.dumps(note), file=file)


def read_notes(notes: Path) -> list[Any]:
    """Return the notes of a fresh process."""
    return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
