"""Compare candidates with a reference: check the outputs, time all in turn, then check what was timed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import msgspec

from pytest_gpubench.bench.agreement import Agreement, Ran
from pytest_gpubench.bench.arms import conclude, speedup_limits
from pytest_gpubench.bench.integrity import auditing, check_floor, check_other_values, traffic_of
from pytest_gpubench.bench.outputs import OutputRecorder, has_cuda_graphs
from pytest_gpubench.bench.plan import is_enforced, plan_of, unmeasured, unmeasured_reason
from pytest_gpubench.bench.request import Request, Say
from pytest_gpubench.bench.work import Work, check_work, with_work, work_of
from pytest_gpubench.correctness.flops import Counted, counted
from pytest_gpubench.correctness.leaves import map_leaves
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Overhead, Timing, Verdict
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.comparison import Match, measure_in_turn, take_once_more
from pytest_gpubench.timing.interpreter import counting_launches
from pytest_gpubench.timing.overhead import take_overhead
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.verdict.speedup import SpeedupJudgement
from pytest_gpubench.verdict.time import Judgement

__tracebackhide__ = True

Lines = Mapping[str, tuple[str, ...]]
"""By candidate, a line for each of its outputs."""
DECLARED = [row.name for row in fields(Limits)]


@dataclass(frozen=True)
class CompareRequest(Request[Comparison]):
    """What `compare` asks for."""

    agreement: Agreement
    calls: Mapping[str, Call]
    """By name, the reference first."""
    interleave: bool = True
    vary: bool = True
    bytes: int | None = None
    flops: int | None = None
    overheads: bool = False
    """Whether to find out what launching each function costs."""
    role = "candidate"

    def __post_init__(self) -> None:
        if self.settings.alpha >= 0.5:
            raise BadRequest(f"alpha is {self.settings.alpha:g}: a comparison needs one below 0.5, or chance decides")
        check_work(self.bytes, self.flops)
        speedup_limits(self.limits, self.candidates)

    @property
    def labels(self) -> Sequence[str]:
        """The names of all functions."""
        return list(self.calls)

    @property
    def judged(self) -> Sequence[str]:
        """The names of the candidates."""
        return self.candidates

    @property
    def traced(self) -> Sequence[Call]:
        """All calls."""
        return list(self.calls.values())

    @property
    def reference(self) -> str:
        """The name of the reference."""
        return next(iter(self.calls))

    @property
    def candidates(self) -> list[str]:
        """The names of the candidates."""
        return list(self.calls)[1:]

    @property
    def speedups(self) -> dict[str, float]:
        """The speedup asked of each candidate that a limit is set for."""
        return speedup_limits(self.limits, self.candidates)

    def measure(self, say: Say, measured: list[Measurement]) -> Comparison:
        """Check every candidate, then time all, then check what was timed."""
        with self.agreement.own_random_numbers():
            return self._measure(say, measured)

    def call_only(self, reason: str, measured: list[Measurement]) -> Comparison:
        """Check every candidate, and time none."""
        with self.agreement.own_random_numbers():
            expected = self.agreement.run_reference()
            lines = {name: self._check(name, expected) for name in self.candidates}
            return self._untimed(lines, reason, measured)

    def with_measurements(self, result: Comparison, measurements: Sequence[Measurement]) -> Comparison:
        """Return the comparison that these measurements are: the reference's first."""
        return self._comparison(measurements)

    def _comparison(self, measurements: Sequence[Measurement]) -> Comparison:
        reference, *candidates = measurements
        return Comparison(
            reference=reference.timing,
            candidates=dict(zip(self.candidates, candidates, strict=True)),
            reference_overhead=reference.overhead,
        )

    def _measure(self, say: Say, measured: list[Measurement]) -> Comparison:
        with counting_launches() as launches:
            expected = lasting(self.agreement.run_reference())
            lines = {name: self._check(name, expected) for name in self.candidates}
        reason = unmeasured_reason(self.settings, self.device, launches.number)
        if reason is not None:
            return self._untimed(lines, reason, measured)
        with auditing(self.settings, self.device):
            return self._timed(lines, expected, say, measured)

    def _check(self, name: str, expected: Ran) -> tuple[str, ...]:
        return tuple(each.line for each in self.agreement.check(name, self.calls[name].function, expected))

    def _untimed(self, lines: Lines, reason: str, measured: list[Measurement]) -> Comparison:
        timings = {name: unmeasured(name, self.device, self.settings, reason) for name in self.calls}
        measured[:] = [Measurement(timing=timings[self.reference], role="reference")]
        measured += [
            Measurement(timing=timings[name], differences=lines[name], role="candidate") for name in self.candidates
        ]
        return self._comparison(measured)

    def _timed(self, lines: Lines, expected: Ran, say: Say, measured: list[Measurement]) -> Comparison:
        recorder = OutputRecorder(self.agreement, swaps=self.interleave)
        watched = {name: recorder.watch(name, call) for name, call in self.calls.items()}
        match = Match(watched, self.reference, self.speedups, self.settings.seed, self.interleave, recorder.begin)
        timer = make_timer(self.settings.timer, self.device, self.settings.cache)
        speedups = self._speedup_judgements()
        work = self._work(expected.outputs)
        judgements = self.inspection.judgements(self.candidates, work)

        def look(taken: Interleaved, looks: tuple[int, ...]) -> bool:
            decided = [judgement.look(self._so_far(name, taken)) for name, judgement in judgements.items()]
            decided += [each.look(taken.log_ratios(self.reference, name), looks) for name, each in speedups.items()]
            failed = [each.failed for each in judgements.values()] + [each.failed for each in speedups.values()]
            return all(decided) or any(failed)

        taken, timings = measure_in_turn(match, timer, self.device, plan_of(self.settings), look, say)
        recorder.swaps = False  # what an arm left there must not be right for it when the values change
        recorder.make_readable(lambda: take_once_more(match, timer, taken))
        recorder.check(self.reference, self.candidates)
        if self.vary:
            check_other_values(self.agreement, recorder, match, timer, taken, expected)
        self._check_floors(timings, expected)
        comparison = conclude(match, speedups, taken, timings, lines)
        return self._inspected(comparison, work, judgements, measured)

    def _speedup_judgements(self) -> dict[str, SpeedupJudgement]:
        alpha, precision = self.settings.alpha, self.settings.precision
        enforced = is_enforced(self.settings, self.device)
        return {name: SpeedupJudgement(name, self.speedups, alpha, precision, enforced) for name in self.candidates}

    def _so_far(self, name: str, taken: Interleaved) -> Timing:
        """Return what an arm's reps have taken so far."""
        return Timing(
            label=self.calls[name].label,
            timer=self.settings.timer,
            cache=self.settings.cache,
            device=self.device.facts.name,
            samples_us=taken.samples[name].samples_us,
        )

    def _work(self, outputs: object) -> Work:
        """Return what every arm has to do: what the reference has."""
        args, kwargs = self.agreement.fresh()
        wants = self.inspection.wants_flops and self.flops is None
        call = self.calls[self.reference]

        def count() -> Counted:
            if call.prepares_on_device:  # a backward run, or setup
                return counted(call.prepare())
            return counted(call.function, args, kwargs)

        return work_of(args, kwargs, outputs, self.bytes or None, self.flops, count if wants else None)

    def _inspected(
        self,
        comparison: Comparison,
        work: Work,
        judgements: Mapping[str, Judgement],
        measured: list[Measurement],
    ) -> Comparison:
        """Return a comparison whose timings know their work, with the verdicts on time, rates and structure."""
        reference = Measurement(timing=with_work(comparison.reference, work), role="reference")
        measured[:] = [reference]
        for name, item in comparison.candidates.items():
            verdicts = as_declared([*judgements[name].verdicts, *item.verdicts])
            measured.append(msgspec.structs.replace(item, timing=with_work(item.timing, work), verdicts=verdicts))
        for place, name in enumerate(self.candidates, 1):
            item, call = measured[place], self.calls[name]
            verdicts = self.inspection.conclude(item.timing, call, item.verdicts, [reference.timing])
            measured[place] = msgspec.structs.replace(item, verdicts=verdicts, overhead=self._overhead(name))
        measured[0] = msgspec.structs.replace(reference, overhead=self._overhead(self.reference))
        return self._comparison(measured)

    def _overhead(self, name: str) -> Overhead | None:
        """Return what launching an arm costs; None where nobody asked, or there is no GPU."""
        if not self.overheads or self.device.type != "cuda" or self.settings.timer == "scripted":
            return None
        return take_overhead(self.calls[name], self.device, self.settings.cache)

    def _check_floors(self, timings: Mapping[str, Timing], expected: Ran) -> None:
        traffic = traffic_of(self.bytes, self.agreement, expected.outputs, self.device)
        for name in self.candidates:
            check_floor(timings[name], traffic, self.settings, self.device, timings[self.reference])


def as_declared(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Return verdicts in the order in which their limits are declared."""
    return tuple(sorted(verdicts, key=lambda verdict: DECLARED.index(verdict.kind)))


def lasting(ran: Ran) -> Ran:
    """Return what a function returned so that no CUDA graph of torch.compile overwrites it."""
    return replace(ran, outputs=map_leaves(cloned, ran.outputs)) if has_cuda_graphs() else ran


def cloned(leaf: object) -> object:
    """Return a copy of a tensor, differentiable as it was; anything else as it is."""
    import torch

    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
