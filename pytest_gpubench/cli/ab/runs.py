"""Run the tests of both checkouts in turn, until everything is decided, and read what they measured."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from pytest_gpubench.child_process import (
    LISTED_TESTS,
    RUN_NOTES,
    TURN_SOCKET,
    ending,
    kill_group,
    logged_process,
    run_logged,
)
from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.cli.ab.comparison import CommitComparison, ComparisonInterrupted, ComparisonPlan, is_open
from pytest_gpubench.cli.ab.foreign_code import refuse_foreign_code
from pytest_gpubench.cli.output import say
from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.results.files import shown
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import read_run
from pytest_gpubench.units import count, first_few
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.rounds import ArmRun, CommitArm, TestEnding, alpha_of_look, judge_rounds

NO_TESTS = 5
"""pytest's exit status where it collected no test."""
STATUSES_OF_TESTS = (0, 1, NO_TESTS)
READY_S = 60.0
"""The time in which runs that are started together may start; one that takes longer starts beside the others."""


@dataclass
class WaitingProcess:
    """A run of pytest that has been started, and waits for its turn before its first test."""

    process: "subprocess.Popen[bytes]"
    connection: socket.socket
    has_begun: bool = False

    def wait_until_ready(self) -> dict[str, str] | None:
        """Return a hash of each test's source once it waits for its turn; empty for tests that measure nothing.

        Empty too where it has ended, or after READY_S, as it may wait for others. None where an older plugin answers.
        """
        text = b""
        self.connection.settimeout(READY_S)
        try:
            while not text.endswith(b"\n") and (part := self.connection.recv(2**16)):
                text += part
                if not text.startswith(b"{"):
                    return None
            return dict(json.loads(text or b"{}"))
        except (OSError, ValueError):
            return {}
        finally:
            self.connection.shutdown(socket.SHUT_RD)  # one that comes late waits for no reader

    def run(self) -> int:
        """Let it run its tests, and return its exit status."""
        self.has_begun = True
        with suppress(OSError):  # it has ended before its first test
            self.connection.sendall(b"!")
        return self.process.wait()


@contextmanager
def waiting_process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
) -> Iterator[WaitingProcess]:
    """Start a run of pytest that waits for its turn; leaving this context ends it."""
    own, other = socket.socketpair()
    variables = {**environment, TURN_SOCKET: str(other.fileno())}
    with own, other, logged_process(command, folder, variables, log, [other.fileno()]) as process:
        other.close()
        waiting = WaitingProcess(process, own)
        try:
            yield waiting
        finally:
            if not waiting.has_begun:  # it holds nothing, and to end by itself would take it a second
                kill_group(process)


@dataclass
class PytestRunner:
    """Runs pytest in a checkout; results and logs go to a folder."""

    folder: Path
    arguments: tuple[str, ...]
    gpu: dict[str, str]
    """The variables that pin CUDA to one GPU; empty where they need not."""
    taken: int = 0
    warned: set[str] = field(default_factory=set)
    """The versions, by their titles, whose runs may have loaded foreign code."""

    def prepare(self, checkout: Checkout, setup: str | None) -> None:
        """Run the user's setup in a worktree; raise BadRequest where it fails."""
        if setup is not None and checkout.is_worktree:
            say(f"setting {checkout.arm} up: {setup}")
            log = self.folder / f"setup-{checkout.arm}.log"
            status = run_logged(["sh", "-c", setup], checkout.root, checkout.environment(), log)
            if status:
                raise BadRequest(f"--setup failed in {checkout.arm} {ending(status, log)}")

    def run_in_turn(
        self,
        checkouts: Mapping[CommitArm, Checkout],
        turns: Sequence[tuple[CommitArm, int]],
        tests: Collection[str] | None,
    ) -> Generator[ArmRun, None, None]:
        """Start pytest in each checkout, then let one after the other run its tests; closing this ends the others.

        turns: the versions, each with the number of its round. tests: the only ones to run, by node id; None for all.
        Raises BadRequest where a run could not run its tests, or loaded other code than its own.
        """
        with ExitStack() as stack:
            started = []
            for arm, round in turns:
                self.taken += 1
                place = self.folder / f"{self.taken:02}-{arm}"
                process = stack.enter_context(self._start(checkouts[arm], place, tests))
                started.append((arm, round, place, process))
            _refuse_other_tests({arm: process.wait_until_ready() for arm, *_, process in started})
            for arm, round, place, process in started:
                run, notes = _read_results(checkouts[arm], place, process.run())
                refuse_foreign_code(notes.modules, checkouts, arm, self.warned)
                info = run.machine_info | {"packages": dict(checkouts[arm].packages)}
                yield ArmRun(arm, round, msgspec.structs.replace(run, machine_info=info), notes.ended, tests)

    def _start(
        self, checkout: Checkout, place: Path, tests: Collection[str] | None
    ) -> AbstractContextManager[WaitingProcess]:
        """Start pytest, which writes files of this name; tests are listed in one, as command lines are short."""
        variables = checkout.environment() | self.gpu | {RUN_NOTES: str(place.with_suffix(".notes"))}
        if tests is not None:
            place.with_suffix(".tests").write_text(json.dumps(sorted(tests)))
            variables[LISTED_TESTS] = str(place.with_suffix(".tests"))
        given = [checkout.rebased(word) for word in self.arguments]
        seeded = any(word.startswith("--hypothesis-seed") for word in given)
        has_cache = not any(word.endswith("no:cacheprovider") for word in given)  # without it the key is unknown
        command = [
            *(checkout.python, "-m", "pytest", *given),
            *([] if seeded else ["--hypothesis-seed=0"]),
            *(["-o", f"cache_dir={checkout.state / 'pytest_cache'}"] if has_cache else []),
            f"--gpu-bench-json={place.with_suffix('.json')}",
        ]
        return waiting_process(command, checkout.folder, variables, place.with_suffix(".log"))


def _refuse_other_tests(sources: Mapping[CommitArm, Mapping[str, str] | None]) -> None:
    """Say which tests are others in HEAD, before anything is run; raise BadRequest where all are, or cannot be told."""
    for arm, found in sources.items():
        if found is None:
            raise BadRequest(f"an older pytest-gpubench runs the tests in {arm}: update it there")
    base, head = sources.get("BASE") or {}, sources.get("HEAD") or {}
    common = base.keys() & head.keys()
    changed = sorted(nodeid for nodeid in common if base[nodeid] and head[nodeid] and base[nodeid] != head[nodeid])
    if changed:
        words = f"HEAD changes the source of {first_few(changed, 3)}, so BASE and HEAD run other tests"
        remedy = "--tests PATH takes HEAD's for both"
        if len(changed) == len(common):
            raise BadRequest(f"nothing can be compared: {words}: {remedy}")
        say(f"warning: {words}, which are not compared: {remedy}")


class RunNotes(msgspec.Struct):
    """The notes of a process of a run."""

    ended: dict[str, TestEnding]
    modules: dict[str, str]
    """The files of the modules that it loaded."""


def _read_results(checkout: Checkout, place: Path, status: int) -> tuple[SavedRun, RunNotes]:
    """Return what a run measured, and its notes; raise BadRequest where it could not run its tests."""
    results, notes, log = (place.with_suffix(suffix) for suffix in (".json", ".notes", ".log"))
    if status not in STATUSES_OF_TESTS:
        raise BadRequest(f"pytest could not run the tests in {checkout.arm} {ending(status, log)}")
    if not notes.exists():
        why = "say nothing of how they ended: an older pytest-gpubench ran them, or the notes could not be written"
        why = why if results.exists() else "left no results"
        raise BadRequest(f"the tests in {checkout.arm} {why} {ending(status, log)}")
    saved = read_run(results) if results.exists() else SavedRun(records=(), datetime="")
    return saved, read_notes(notes)


def read_notes(path: Path) -> RunNotes:
    """Return the notes of all processes of a run; a test that failed in one of them has failed. Raise BadFile."""
    found = RunNotes({}, {})
    try:
        for each in msgspec.json.Decoder(RunNotes).decode_lines(path.read_bytes()):
            found.modules |= each.modules
            found.ended |= {name: how for name, how in each.ended.items() if found.ended.get(name) != "failed"}
    except msgspec.MsgspecError as error:
        raise BadFile(f"{shown(path)}, what pytest says of its tests, cannot be read: {error}") from None
    return found


# a comparison


def compare_commits(
    checkouts: Mapping[CommitArm, Checkout],
    runner: PytestRunner,
    plan: ComparisonPlan,
    still_open: Callable[[Sequence[Change]], Collection[str]] | None = None,
    tests: Collection[str] | None = None,
    taken_before: Sequence[ArmRun] = (),
) -> CommitComparison:
    """Run the tests in turn until none is open, or all rounds are taken, or neither version measures anything.

    After a look only the open tests are run again; the others keep their changes. still_open: returns them, None for
    those that more rounds may decide. tests: the only ones to run, by node id; None for all. taken_before: runs of
    these checkouts that need not be taken again. Raises ComparisonInterrupted.
    """
    found = CommitComparison([], [], plan)
    try:
        for rounds, alpha in _looks(plan):
            before = [each for each in taken_before if each.round in rounds]
            found, known = replace(found, runs=[*found.runs, *before]), [(each.arm, each.round) for each in before]
            order = [(arm, round) for round in rounds for arm in plan.order(round)]
            turns = [each for each in order if each not in known]
            with closing(runner.run_in_turn(checkouts, turns, tests)) as taken:
                for longer in _say_each(taken, found):
                    found = longer
                    if len(found.runs) == 2 and not any(each.measurements for each in found.runs):
                        return replace(
                            found, changes=judge_rounds(found.runs, plan.tolerance, plan.alpha, plan.processes)
                        )
            settled = [each for each in found.changes if tests is not None and each.nodeid not in tests]
            judged = judge_rounds(found.runs, plan.tolerance, alpha, plan.processes)
            found = replace(found, changes=settled + [each for each in judged if tests is None or each.nodeid in tests])
            undecided = {each.nodeid for each in found.changes if is_open(each)}
            tests = undecided if still_open is None else still_open(found.changes)
            if not tests:
                break
    except KeyboardInterrupt:
        say(found.interrupted_words)
        raise ComparisonInterrupted(replace(found, interrupted=True)) from None
    if found.rounds < plan.rounds:
        say(f"everything is decided after {count(found.rounds, 'round')}")
    return found


def _looks(plan: ComparisonPlan) -> Iterator[tuple[Sequence[int], float]]:
    """Yield the alpha of each look, with the rounds since the last one: they start together."""
    rounds: list[int] = []
    for round in range(plan.rounds):
        rounds.append(round)
        alpha = alpha_of_look(round + 1, plan.rounds, plan.alpha)
        if plan.tolerance.is_on_counter:
            alpha = plan.alpha
        if alpha is not None:
            yield rounds, alpha
            rounds = []


def _say_each(turns: Iterator[ArmRun], found: CommitComparison) -> Iterator[CommitComparison]:
    """Yield the comparison with each run added, and say what it measured; after a round, what the noise is."""
    began_s = time.monotonic()
    for taken in turns:
        found = replace(found, runs=[*found.runs, taken])
        say(
            f"run {len(found.runs)} of {found.most_runs}: {taken.arm}, {count(len(taken.ended), 'test')}, "
            f"{count(taken.measurements, 'measurement')}, {time.monotonic() - began_s:.0f} s"
        )
        if len(found.runs) == found.plan.runs_per_round and (words := found.noise_words(found.plan.rounds)):
            say(words)
        yield found
        began_s = time.monotonic()
