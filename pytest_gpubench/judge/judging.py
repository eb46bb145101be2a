"""Judge one candidate: from its file and a spec to a judgement."""

import errno
import gc
import hashlib
import math
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from pytest_gpubench.bounds import argument, duration_s, true_or_false, whole_number
from pytest_gpubench.errors import BadRequest, GpuBenchError
from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.gpu.turn import turn_at
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.conclusion import PROCESSES, confirmed, fails_closely
from pytest_gpubench.judge.judgement import STATUSES, TIMED, CaseJudgement, Ended, Judgement, Stopwatch
from pytest_gpubench.judge.process_pool import MEMORY_BYTES, ProcessPool
from pytest_gpubench.judge.reference import ReadyCase, case_name
from pytest_gpubench.judge.replayer import Replayer, saved_by
from pytest_gpubench.judge.spec import Spec, read_spec
from pytest_gpubench.judge.trial import Rules, Trial
from pytest_gpubench.limits import memory_size
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.parsers import choice
from pytest_gpubench.units import format_bytes, printable, repr_of, safe_lines, shortened
from pytest_gpubench.verdict.limits import Limits

Found = TypeVar("Found", bound=CaseJudgement | str | None)
Load = Callable[[Candidate], None]
"""Loads a candidate's file in a warm process."""
LONGEST_NAME = 200
LARGEST_FILE = 2**26
KEYWORDS: Mapping[str, Callable[[Any], object]] = {
    "device": lambda given: given if isinstance(given, Device) else choice("auto", "cuda", "cpu")(given),
    "memory_bytes": memory_size,
    "trust_claims": true_or_false,
    **dict.fromkeys(("timeout_s", "budget_s"), duration_s),
    **dict.fromkeys(("search", "ahead"), partial(whole_number, least=0)),
}
AHEAD_BYTES = 4 * 2**30
"""The memory that a GPU must have for each process warmed ahead, which uses 0.5 GiB of it."""


def _read(path: Path) -> bytes:
    try:
        if path.is_file():
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # those of /proc may wait
                if len(text := file.read(LARGEST_FILE + 1) or b"") <= LARGEST_FILE:
                    return text
            raise Ended(
                "refused", f"{path} has more than {format_bytes(LARGEST_FILE)}: give the candidate's Python file"
            )
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise Ended("refused", f"{path} cannot be read ({error.strerror}): give a file that can be") from None
    named = shortened(str(path), LONGEST_NAME)
    as_json = ', or {"candidate": path} as JSON' if named.startswith("{") else ""
    raise Ended("refused", f"there is no file {named}: give the path of the candidate's Python file{as_json}")


def _ended_by(error: Exception) -> Ended:
    """Return the end that an error means, INVALID for one in the referee; raise a BadRequest again."""
    if isinstance(error, BadRequest):
        raise error
    if isinstance(error, Ended):
        return error
    name = "" if isinstance(error, GpuBenchError) else f"{type(error).__name__} in the referee: "
    return Ended("invalid", f"{name}{error}")


def _guarded(case: str, judge: Callable[[], Found]) -> Found | CaseJudgement:
    """Return a judgement, whatever is raised but a BadRequest."""
    try:
        return judge()
    except Exception as error:
        ended = _ended_by(error)
        return CaseJudgement(case=case, status=ended.status, reason=ended.reason, detail=ended.detail)


def _concluded(judgement: Judgement, found: Sequence[CaseJudgement]) -> Judgement:
    """Return the judgement with the status of the worst case."""
    worst = max(found, key=lambda each: STATUSES.index(each.status))
    reason = f"{worst.reason} ({worst.case})" if worst.case else worst.reason
    ratios = [each.ratio for each in found if each.ratio]
    ratio = min(ratios) if len(ratios) == len(found) and worst.status in TIMED else None
    score = min(each.score for each in found) if worst.status == "pass" else 0.0
    given = {"status": worst.status, "reason": reason, "detail": worst.detail}
    return _with(judgement, **given, cases=tuple(found), ratio=ratio, score=score)


def _with(judgement: Judgement, **changes: object) -> Judgement:
    for name in ("reason", "detail"):
        if name in changes:
            changes[name] = safe_lines(str(changes[name]))
    return msgspec.structs.replace(judgement, **changes)


@contextmanager
def _raised_by(part: str) -> Iterator[None]:
    """Raise BadRequest for an error of a part of the spec."""
    import torch

    try:
        yield
    except (GpuBenchError, Ended, torch.OutOfMemoryError):  # other processes may have taken the memory for a while
        raise
    except (Exception, SystemExit) as error:
        raise BadRequest(f"the spec's {part} raises {type(error).__name__}: {error}") from error


def _search(candidate: Candidate, spec: Spec, rules: Rules) -> CaseJudgement | None:
    """Return the judgement of the simplest drawn case that the candidate gets wrong; None where none was found."""
    from hypothesis import Phase, Verbosity, find, settings
    from hypothesis.errors import NoSuchExample

    found: list[CaseJudgement] = []

    def is_wrong(case: object) -> bool:
        if not isinstance(case, Mapping):
            raise BadRequest(f"the spec's search draws {repr_of(case)}, and each case is a dict: draw dicts")
        if not found or found[0].status == "wrong":  # a process that has ended is not asked again
            with _raised_by(f"reference for {case_name(case)}"):
                ready = ReadyCase(spec, case, candidate.device)
            judgement = _guarded(case_name(case), Trial(candidate, ready, rules).check)
            if judgement.status != "pass":
                found[:] = [judgement]
        return bool(found) and found[0].case == case_name(case)

    phases = (Phase.generate, Phase.shrink)
    how = settings(max_examples=rules.drawn, database=None, deadline=None, phases=phases, verbosity=Verbosity.quiet)
    with _raised_by("search"), suppress(NoSuchExample):
        find(spec.search, is_wrong, settings=how)
    return found[0] if found else None


def judge_candidate(candidate: "Path | str", spec: "Path | str | Spec", **keywords: Any) -> Judgement:
    """Judge a candidate's file by a spec, in a process of its own.

    spec: a file, as `pytest-gpubench judge --spec` reads it, or a `Spec`. keywords: those of `Judge`.

    Raises BadRequest, BadFile or DeviceUnavailable where the spec or the device cannot be used. Errors of the candidate
    are in the judgement.
    """
    for name in keywords.keys() & KEYWORDS.keys():
        keywords[name] = argument(f"judge({name}={{}})", keywords[name], KEYWORDS[name])
    with Judge(spec, **keywords) as judge:
        return judge(candidate_path(candidate))


def candidate_path(given: object) -> Path:
    """Return the path of a candidate's file; raise BadRequest for anything else, such as a function."""
    if not isinstance(given, (str, os.PathLike)):
        raise BadRequest(
            f"judge(candidate=...) must be the path of a Python file, which a process of its own loads, found "
            f"{type(given).__name__}: gpu_bench.compare takes functions"
        )
    return Path(given)


class Judge:
    """Judges candidates by one spec, one after the other, while processes for the next ones are warmed.

    timeout_s: for loading, and for each case. memory_bytes: on the CPU and on the GPU each. budget_s: for the reps
    of a case. search: the number of cases to draw by the spec's strategy and to compare, if all
    others are right and none fails. ahead: the number of processes to warm while a candidate is judged.
    trust_claims: as if the spec said so.
    """

    def __init__(
        self,
        spec: "Path | str | Spec",
        device: "Device | Literal['auto', 'cuda', 'cpu']" = "auto",
        *,
        timeout_s: float = Rules.timeout_s,
        memory_bytes: int = MEMORY_BYTES,
        budget_s: float = Rules.budget_s,
        lock_folder: "Path | str | None" = None,
        search: int = 0,
        ahead: int = 0,
        trust_claims: bool = False,
    ) -> None:
        self.device = device if isinstance(device, Device) else find_device(device)
        self.turns = Settings(lock_folder=str(lock_folder) if lock_folder else None, lock_timeout=math.inf)
        if self.device.type == "cuda":
            ahead = min(ahead, (self.device.facts.memory_bytes or 0) // AHEAD_BYTES)
        self._pool = ProcessPool(self.device, memory_bytes, ahead)
        self._needed = 1 if self.device.type == "cpu" else 2
        """The processes for a candidate: on a GPU one more replays its calls."""
        self.rules = Rules(Limits(), budget_s=budget_s, drawn=search, timeout_s=timeout_s)
        self._own, self._trusts = spec, trust_claims
        self._used: str | None = None
        self._cases: Sequence[ReadyCase] = ()
        try:
            self.use_spec()
            self._pool.start(max(self._needed, ahead))
        except BaseException:
            self._pool.close()
            raise

    def use_spec(self, path: "Path | str | None" = None) -> None:
        """Judge by another spec, or by the first again; what was made ready for the last one is kept if it is the same.

        Raises BadRequest or BadFile where it cannot be used.
        """
        wanted = self._own if path is None else path
        used = wanted.digest if isinstance(wanted, Spec) else str(wanted)
        if used == self._used and self.spec.is_current:
            return
        spec = wanted if isinstance(wanted, Spec) else read_spec(Path(wanted))
        rules = replace(self.rules, limits=spec.limits)
        if rules.drawn and spec.search is None:
            raise BadRequest(
                f"{rules.drawn} cases are to be drawn, and the spec has no strategy for them: give it search = ..."
            )
        self.spec: Spec = replace(spec, trust_claims=spec.trust_claims or self._trusts)
        self.name = spec.name if isinstance(wanted, Spec) else str(wanted)
        self.rules, self._used = rules, used
        self._forget_cases()
        gc.collect()  # calls refer to themselves, and hold inputs and images
        if self.device.type == "cuda":
            import torch

            torch.cuda.empty_cache()  # processes of candidates need that memory

    def __call__(self, candidate: Path) -> Judgement:
        """Judge a candidate's file, alone on its GPU; a close FAIL again, in other processes."""
        import torch

        title, threads = f"judge {candidate.name}", torch.get_num_threads()
        turn = turn_at(self.device, self.turns, title, claims=False)
        with turn, self.spec.in_use(), ExitStack() as held:
            held.callback(self._pool.await_ends)  # the turn's next holder may time at once
            if self.device.type == "cpu":  # as in the candidate's process: spinning threads of both delay each other
                held.callback(torch.set_num_threads, threads)
                torch.set_num_threads(1)
            found = [self._judge(candidate)]
            if fails_closely(found[0]):
                while found[-1].status == "fail" and len(found) < PROCESSES:
                    found.append(self._judge(candidate))
        judgement = found[-1]
        if len(found) > 1 and judgement.status in TIMED:
            cases = zip(*(each.cases for each in found), strict=True)
            judgement = _concluded(found[0], [*map(confirmed, cases)])
        phases_s = {name: round(sum(each.phases_s.get(name, 0.0) for each in found), 4) for name in found[0].phases_s}
        return _with(judgement, seconds=round(sum(each.seconds for each in found), 3), phases_s=phases_s)

    def _judge(self, path: Path) -> Judgement:
        started_s = time.monotonic()
        judgement = Judgement(
            status="refused",
            reason="",
            candidate=printable(str(path)),
            spec=self.name,
            spec_digest=self.spec.digest,
            limits=str(self.rules.limits),
            device=self.device.facts,
        )
        stopwatch, candidate = Stopwatch(), None
        try:
            source, cases = _read(path), self._ready_cases()
            stopwatch = Stopwatch()
            self._pool.start(self._needed)
            candidate = self._pool.get()
            stopwatch.lap("process")
            digest = hashlib.sha256(source).hexdigest()
            judgement = _with(judgement, candidate_digest=digest, isolation=candidate.process.isolation)
            load = partial(self._load, source, path.name)
            load(candidate)
            stopwatch.lap("loading")
            judgement = _concluded(judgement, self._judge_cases(candidate, cases, load))
            if judgement.status in ("crash", "invalid"):
                judgement = _with(judgement, detail=judgement.detail or candidate.process.tail())
        except Exception as error:
            ended = _ended_by(error)
            judgement = _with(judgement, status=ended.status, reason=ended.reason, detail=ended.detail)
        finally:
            if candidate is not None:
                stopwatch.lap("cases")
                self._pool.end(candidate)
                stopwatch.lap("ending")
        return _with(judgement, seconds=round(time.monotonic() - started_s, 3), phases_s=stopwatch.laps_s)

    def _load(self, source: bytes, name: str, candidate: Candidate) -> None:
        """Load the candidate's source in a warm process."""
        copy = candidate.process.box / "candidate" / printable(name)[-LONGEST_NAME:]  # it has other files beside
        copy.parent.mkdir()
        copy.write_bytes(source)
        candidate.process.allow(self.rules.timeout_s)
        candidate.load(pickle.dumps(self.spec.entry), copy)

    def _ready_cases(self) -> Sequence[ReadyCase]:
        """Return the spec's cases, made ready once; raise UnfairComparison where no computing is needed to be right."""
        if not self._cases:
            if self.device.type == "cuda":
                from pytest_gpubench.timing.profiler import ProfilerTimer, take_reps_of_noop

                # CUPTI takes seconds to start, while processes warm up
                take_reps_of_noop(ProfilerTimer(self.device, "cold"), 1)
            with _raised_by("reference"), self._pool.alone():  # what tracing adds to the reference is measured
                self._cases = [ReadyCase(self.spec, case, self.device).warm() for case in self.spec.cases]
        return self._cases

    def _judge_cases(self, candidate: Candidate, cases: Sequence[ReadyCase], load: Load) -> list[CaseJudgement]:
        """Return the judgements of all cases, or of those up to one that is not right.

        First outputs are compared. Where a call can be replayed the candidate's process is killed before any time is
        taken, and calls are replayed in a process that measures first what that costs. What cannot be replayed, or is
        replayed wrongly, is timed by the candidate's own process where the spec trusts that, loaded again if it was
        killed, and by nobody else.
        """
        checks = []
        for case in cases:
            checked = _guarded(case.name, Trial(candidate, case, self.rules).check)
            if checked.status != "pass":
                return [checked]
            checks.append((case, checked, saved_by(candidate)))
        if self.rules.drawn:
            wrong = _guarded("drawn", lambda: _search(candidate, self.spec, self.rules))
            if wrong is not None:
                return [wrong]
        replayer = Replayer(self._pool, cases, self.rules)
        try:
            return self._time(candidate, replayer, checks, load)
        finally:
            replayer.end()

    def _time(
        self,
        candidate: Candidate,
        replayer: Replayer,
        checks: Sequence[tuple[ReadyCase, CaseJudgement, bytes | str]],
        load: Load,
    ) -> list[CaseJudgement]:
        if is_dead := any(isinstance(call, bytes) for _, _, call in checks):
            self._pool.end(candidate)
        found: list[CaseJudgement] = []
        for case, checked, call in checks:
            answer = call if isinstance(call, str) else _guarded(case.name, partial(replayer.judge, case, call))
            if isinstance(answer, str) and self.spec.trust_claims:
                own = None if is_dead else candidate
                answer = _guarded(case.name, partial(self._judge_claims, own, load, case, answer))
            if isinstance(answer, str):
                reason = f"not timed: its call is not replayed ({answer}), and without trust_claims = True its process "
                unknown = {"status": "inconclusive", "reason": f"{reason}is not believed", "not_replayed": answer}
                answer = msgspec.structs.replace(checked, **unknown)
            found.append(answer)
            if len(self._cases) > 1:  # the other cases need the memory of its inputs
                case.reference.begin_case(case.example, 1)
            if found[-1].status not in TIMED:
                break
        return found

    def _judge_claims(self, own: Candidate | None, load: Load, case: ReadyCase, problem: str) -> CaseJudgement:
        """Return the judgement of a case by the times of the candidate's own process; problem: the reason why.

        own: None where that is dead; it is loaded in a new one.
        """
        with ExitStack() as held:
            if own is None:
                own = self._pool.get()
                held.callback(self._pool.end, own)
                load(own)
            return Trial(own, case, self.rules, not_replayed=problem).judge()

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        try:
            self._forget_cases()
        finally:
            self._pool.close()

    def _forget_cases(self) -> None:
        """Unload the references that are replayed, while CUDA and Python are there."""
        for each in self._cases:
            each.reference.close()
        self._cases = ()
