"""Counters of the calls of tests, taken in a fresh process under ncu: one for all tests that ask for some.

There each call is made a few times while ncu listens, and noted in a file, a line a capture; nothing is timed. What
cannot be taken for all tests at once, as one of them kills the process, is taken for each by itself.
"""

import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.child_process import ending
from pytest_gpubench.plugin.fresh_process import COUNTING, LOG_FILE, start_fresh

if TYPE_CHECKING:
    from pytest_gpubench.structure.ncu import Capture

Place = tuple[int, str]
"""The number of a public call in its test, and the label of a function in it."""
Taken = Mapping[Place, "Sequence[Capture]"]
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
        self._taken: dict[str, tuple[frozenset[str], Taken]] = {}
        """By test, the counters taken, and the captures."""
        self._has_batch = False
        self._never: Exception | None = None
        """Why there are none on this machine."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests to run."""
        self._items = session.items

    def note(self, nodeid: str, place: Place) -> None:
        """Note that a capture begins."""
        assert self.notes is not None
        with open(self.notes, "a") as file:
            print(json.dumps([nodeid, *place]), file=file)

    def captures(self, nodeid: str, names: Collection[str], again: bool = False) -> Taken:
        """Return the captures of a test's calls; raise NotCounted.

        names: the counters to take. again: True for those of another process.
        """
        from pytest_gpubench.structure.ncu import NeverCounted, NotCounted

        if self._never is not None:
            raise self._never
        known, taken = self._taken.get(nodeid, (frozenset(), {}))
        if known >= set(names) and not again:
            return taken
        try:
            if not self._has_batch:
                self._has_batch = True
                try:
                    self._take_batch()
                except NeverCounted:
                    raise
                except NotCounted:  # each by itself then
                    pass
                return self.captures(nodeid, names, again)
            self._keep(self._take([nodeid], names), [nodeid], names)
        except NeverCounted as error:
            self._never = error
            raise
        return self._taken[nodeid][1]

    def _take_batch(self) -> None:
        """Take the counters of all tests that ask for some."""
        asked = {item.nodeid: frozenset(self.wanted(item)) for item in self._items}
        tests = [nodeid for nodeid, names in asked.items() if names]
        if len(tests) > 1:
            names = frozenset().union(*asked.values())
            self._keep(self._take(tests, names), tests, names)

    def _keep(self, found: Mapping[str, Taken], tests: Sequence[str], names: Collection[str]) -> None:
        self._taken |= {nodeid: (frozenset(names), found.get(nodeid, {})) for nodeid in tests}

    def _take(self, tests: Sequence[str], names: Collection[str]) -> Mapping[str, Taken]:
        """Return the captures of tests from a process under ncu."""
        from pytest_gpubench.gpu.lock import turns_to_hand_over
        from pytest_gpubench.structure.ncu import NotCounted, find_ncu, ncu_command, read_captures

        ncu, timeout_s = find_ncu(), NCU_S + EACH_TEST_S * len(tests)
        with tempfile.TemporaryDirectory(prefix="gpubench-counters-") as name:
            folder = Path(name)
            table, notes = folder / "counters.csv", folder / "notes"
            notes.touch()
            under, others = ncu_command(ncu, names, table), {COUNTING: str(notes)}
            status = start_fresh(self.config, folder, tests, turns_to_hand_over(), timeout_s, under, others)
            captures = read_captures(table.read_text(errors="replace") if table.exists() else "")
            lines = notes.read_text().splitlines()
            if len(captures) < len(lines):
                raise NotCounted(f"the process under ncu ended early {ending(status, folder / LOG_FILE, timeout_s)}")
        found: dict[str, dict[Place, list[Capture]]] = defaultdict(lambda: defaultdict(list))
        for line, capture in zip(lines, captures, strict=True):
            nodeid, number, label = json.loads(line)
            found[nodeid][number, label].append(capture)
        return found
