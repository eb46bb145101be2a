"""Counters of the calls of tests, taken in a fresh process under ncu: one for all tests that ask for some.

There each call is made a few times while ncu listens, and noted in a file, a line a capture; nothing is timed. What
cannot be taken for all tests at once, as one of them kills the process, is taken for each by itself.
"""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.child_process import ending
from pytest_gpubench.counters import raw_metrics
from pytest_gpubench.gpu.lock import turns_to_hand_over
from pytest_gpubench.plugin.fresh_process import (
    COUNTING,
    LOG_FILE,
    NOTES_FILE,
    FurtherProcesses,
    NotTaken,
    read_notes,
    start_fresh,
    write_note,
)

if TYPE_CHECKING:
    from pytest_gpubench.structure.ncu import Capture

CallPlace = tuple[int, str]
"""The number of a public call in its test, and the label of a function in it."""
CallCaptures = Mapping[CallPlace, "Sequence[Capture]"]
TakenTogether = tuple[str, ...]
"""Counters that are taken together."""
TABLE = "counters.csv"
"""The file of what ncu counts in a process, beside the notes, a line for each capture."""
NCU_S, EACH_TEST_S = 300.0, 30.0
"""The time that ncu may take, and what it may take longer for each test."""


class Counting:
    """The hooks that take counters; in a process that ncu watches, the file that notes its captures."""

    def __init__(self, config: pytest.Config, wanted: Callable[[pytest.Item], Collection[str]]) -> None:
        self.config = config
        self.wanted = wanted
        """Returns the counters that a test asks for."""
        self.notes = os.environ.pop(COUNTING, None)
        """The file that notes the captures of this process; None where ncu does not watch it."""
        self._items: Sequence[pytest.Item] = ()
        self._taken: dict[TakenTogether, dict[str, CallCaptures | str]] = {}
        """The captures of each test, or why there are none, by the counters taken together."""
        self._further = FurtherProcesses(config)
        self._never: Exception | None = None
        """The reason why there are none on this machine."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests to run."""
        self._items = session.items

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test fails where ncu watches: it may lack captures."""
        if self.notes is not None and report.failed:
            write_note(self.notes, {"nodeid": report.nodeid, "error": report.longreprtext.strip().splitlines()[-1:]})

    def pytest_sessionfinish(self) -> None:
        """Note that all captures are there."""
        if self.notes is not None:
            write_note(self.notes, None)

    def captures(self, nodeid: str, group: TakenTogether, again: bool = False) -> CallCaptures:
        """Return the captures of a test's calls; raise NotCounted.

        group: the counters to take, as `groups_of` returns them. again: True for those of another process.
        """
        from pytest_gpubench.structure.ncu import NeverCounted, NotCounted

        if self._never is not None:
            raise self._never
        try:
            if group not in self._taken:
                self._taken[group] = {}
                tests = [item.nodeid for item in self._items if set(group) & set(self.wanted(item))]
                try:
                    if len(tests) > 1:
                        self._taken[group] = self._take(tests, group, FurtherProcesses(self.config, math.inf))
                except NeverCounted:
                    raise
                except NotCounted:  # one test ends the process: each is taken by itself
                    pass
            if nodeid not in self._taken[group] or again:
                self._taken[group] |= self._take([nodeid], group, self._further)
        except NeverCounted as error:
            self._never = error
            raise
        taken = self._taken[group][nodeid]
        if isinstance(taken, str):
            raise NotCounted(taken)
        return taken

    def _take(
        self, tests: Sequence[str], group: TakenTogether, processes: FurtherProcesses
    ) -> dict[str, CallCaptures | str]:
        """Return the captures of tests from a process under ncu, or why there are none."""
        from pytest_gpubench.structure.ncu import NotCounted, find_ncu

        ncu, timeout_s = find_ncu(), NCU_S + EACH_TEST_S * len(tests)
        try:
            with processes.folder() as folder:
                under, others = ncu_command(ncu, group, folder / TABLE), {COUNTING: str(folder / NOTES_FILE)}
                status = start_fresh(self.config, folder, tests, turns_to_hand_over(), timeout_s, under, others)
                found = _read(folder, ending(status, folder / LOG_FILE, timeout_s))
        except NotTaken as error:
            raise NotCounted(str(error)) from None
        return {nodeid: found.get(nodeid, "it makes no call in a process under ncu") for nodeid in tests}


def _read(folder: Path, how_it_ended: str) -> dict[str, CallCaptures | str]:
    """Return the captures of each test from the files of a process, or why there are none.

    Raises NotCounted where some are missing.
    """
    from pytest_gpubench.structure.ncu import NotCounted, read_captures

    log, notes = folder / LOG_FILE, read_notes(folder / NOTES_FILE)
    written = [each.read_text(errors="replace") for each in (folder / TABLE, log) if each.exists()]
    captures = read_captures("\n".join(written))
    begun = [note for note in notes if isinstance(note, list)]
    if not notes or notes[-1] is not None or len(captures) != len(begun):
        raise NotCounted(f"the process under ncu ended early {how_it_ended}")
    found: dict[str, dict[CallPlace, list[Capture]]] = defaultdict(lambda: defaultdict(list))
    for (nodeid, number, label), capture in zip(begun, captures, strict=True):
        found[nodeid][number, label].append(capture)
    failed = {note["nodeid"]: note["error"] for note in notes if isinstance(note, dict)}
    why = {nodeid: f"its test fails in a process under ncu: {''.join(error)}" for nodeid, error in failed.items()}
    return {**why, **found}


def ncu_command(ncu: str, names: Iterable[str], log: Path) -> list[str]:
    """Return the beginning of a command that takes counters, and writes them to a log; a program follows.

    It takes those of kernels between cudaProfilerStart and cudaProfilerStop, and leaves clocks and caches as they are.
    """
    return [
        *(ncu, "--profile-from-start", "off"),
        *("--cache-control", "none", "--clock-control", "none"),
        *("--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled"),
        *("--log-file", str(log), "--force-overwrite", "--metrics", ",".join(raw_metrics(names))),
    ]
