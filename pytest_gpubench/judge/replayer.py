"""The referee's own process for one candidate's calls: it replays them, and never loads the candidate."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_gpubench.errors import BadFile, GpuBenchError, first_line
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.judgement import CaseJudgement, Ended
from pytest_gpubench.judge.process_pool import ProcessPool
from pytest_gpubench.judge.reference import ReadyCase
from pytest_gpubench.judge.replayed import launches_of
from pytest_gpubench.judge.trial import Rules, Trial
from pytest_gpubench.judge.witness import ClocksDisagree, ReplayCost, measure_replays
from pytest_gpubench.units import printable

MOST_BYTES = 2**30
"""Of a saved call: its images, mostly."""


def saved_by(candidate: Candidate) -> bytes | str:
    """Return the call of a candidate as data, or the reason why it cannot be replayed."""
    if candidate.gpu is None:
        return "only calls on a GPU can be replayed"
    path = candidate.process.box / "call"
    reply = candidate.process.ask("save", path=str(path))
    return printable(reply.text) or read_file(path)


def read_file(path: Path) -> bytes:
    """Return what a candidate wrote to a file; raise Ended where it is no plain one, or too large."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            facts = os.fstat(file.fileno())
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= MOST_BYTES:
                return file.read(MOST_BYTES)
    except OSError:
        pass
    raise Ended("invalid", "the candidate's process did not save its call in a file")


@dataclass
class Replayer:
    """Replays a candidate's calls in a process of its own, which is started when it is needed."""

    pool: ProcessPool
    cases: Sequence[ReadyCase]
    rules: Rules
    _costs: dict[str, ReplayCost] = field(default_factory=dict)

    def judge(self, case: ReadyCase, call: bytes) -> CaseJudgement | str:
        """Return the judgement of a replayed call, or why it cannot be replayed: first its outputs are compared.

        Where the two clocks disagree, another process is asked once more: what a replay costs was measured before, and
        is wrong once another process uses the GPU.
        """
        try:
            return self._judged(case, call)
        except ClocksDisagree:
            self.end()
            return self._judged(case, call)

    def _judged(self, case: ReadyCase, call: bytes) -> CaseJudgement | str:
        trial = None
        try:
            launches = launches_of(call)
        except BadFile as error:
            return f"it cannot be rebuilt: {first_line(error)}"
        try:
            _give(self._candidate, call, self.rules.timeout_s)
            trial = Trial(self._candidate, case, self.rules, self._costs[case.name], launches=launches)
            found = trial.judge()
        except (Ended, GpuBenchError) as error:
            if trial is not None and trial.is_checked:
                raise
            self.end()
            return f"it cannot be rebuilt: {first_line(error)}"
        if trial.is_checked:
            return found
        if found.status != "wrong":
            self.end()
        return f"replayed, it does something else: {found.reason}"

    @cached_property
    def _candidate(self) -> Candidate:
        """A warm process in which no foreign kernel has run when the cases were measured."""
        candidate = self.pool.get()
        for each in self.cases:
            candidate.process.allow(self.rules.timeout_s)
            try:
                if each.saved:
                    _give(candidate, each.saved, self.rules.timeout_s)
                self._costs[each.name] = measure_replays(candidate, each)
            except BaseException as error:
                self.pool.end(candidate)
                if not each.saved or not isinstance(error, (Ended, GpuBenchError)):
                    raise
                each.saved = b""  # its replay is wrong, and perhaps what it left of the process
                return self._candidate
        return candidate

    def end(self) -> None:
        """Kill the process, if one was started; another one is started when it is needed."""
        if "_candidate" in vars(self):
            self.pool.end(self._candidate)
            del self._candidate


def _give(candidate: Candidate, call: bytes, timeout_s: float) -> None:
    """Let the process take a saved call."""
    process = candidate.process
    process.allow(timeout_s)
    path = process.box / "call"
    path.unlink(missing_ok=True)  # kernels may have taken over the process, and have made it a link
    with path.open("xb") as file:
        file.write(call)
    process.ask("replay", path=str(path))
