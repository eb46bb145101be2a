"""Compare candidates with a reference: check the outputs, time all in turn, then check what was timed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace

import msgspec

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.batch_invariance import Batched, check_batch_invariance
from pytest_gpubench.bench.candidates import speedup_limits
from pytest_gpubench.bench.checked_rounds import CheckedRounds
from pytest_gpubench.bench.guarded import GuardedCall
from pytest_gpubench.bench.integrity import check_clocks, check_floor, traffic_of, watching_cache
from pytest_gpubench.bench.other_values import OtherValues
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.plan import is_enforced, is_kept, plan_of, unmeasured_reason
from pytest_gpubench.bench.producer import check_producer
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.bench.request import CallResult, Request, Say, carrying, with_work
from pytest_gpubench.bench.work import Work, work_of
from pytest_gpubench.correctness import Difference
from pytest_gpubench.correctness.pool import PoisonedPool, pool_on
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.model import Comparison, Measurement, Overhead, Speedup, Timing
from pytest_gpubench.settings import Settings, TimerName
from pytest_gpubench.stats.autocorrelation import LEAST_TO_TELL
from pytest_gpubench.stats.speedup import LOOKS, Quad, log_ratios
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.interpreter import watching_launches
from pytest_gpubench.timing.measurement import samples_of
from pytest_gpubench.timing.overhead import take_overhead
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.timing.tampering import operations_kept
from pytest_gpubench.units import repr_of
from pytest_gpubench.verdict.limits import Judgement, Limits
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement

OutputLines = Mapping[str, tuple[str, ...]]
"""A line for each output of each candidate."""
TIMERS = ("profiler", "events", "graph")
LASTING_QUADS = 21
"""The fewest quads of a comparison that is saved or compared: 12 decide a change of the speedup at alpha 0.0005."""


@dataclass(frozen=True)
class Judges:
    """Judges of one candidate, which look at it while rounds are added."""

    time: Judgement
    speedup: SpeedupJudgement

    @property
    def failed(self) -> bool:
        """True if a limit is broken."""
        return self.time.failed or self.speedup.failed

    def look(self, timing: Timing, quads: Sequence[Quad], looks: tuple[int, ...], tick_us: float) -> bool:
        """Return whether all limits of the candidate are decided."""
        return all([self.time.look(timing), self.speedup.look(quads, looks, tick_us)])


@dataclass(frozen=True)
class CompareRequest(Request[Comparison]):
    """A request of `compare`: the calls by name, the reference first."""

    agreement: Agreement
    interleave: bool = True
    vary: bool = True
    bytes: int | None = None
    flops: int | None = None
    wants_overhead: bool = False
    """True to measure the launch overhead of each function."""
    batch_invariant: Batched = False
    """The arguments with rows, each of which a candidate must compute as in a batch of its own."""
    role = "candidate"
    is_repeatable = True

    def __post_init__(self) -> None:
        if self.settings.alpha >= 0.5:
            raise BadRequest(f"alpha is {self.settings.alpha:g}: a comparison needs one below 0.5, or chance decides")
        speedup_limits(self.limits, self.judged)

    @property
    def remarks(self) -> Sequence[str]:
        """Remarks on its functions."""
        return self.agreement.remarks

    @property
    def reference(self) -> str:
        """The name of the reference."""
        return next(iter(self.calls))

    @property
    def judged(self) -> Sequence[str]:
        """The names of the candidates."""
        return list(self.calls)[1:]

    @property
    def speedups(self) -> dict[str, float]:
        """The speedup asked of each candidate that has a limit."""
        return speedup_limits(self.limits, self.judged)

    def measure(self, say: Say) -> CallResult[Comparison]:
        """Check every candidate, then time all, then check what was timed."""
        with (
            self.agreement.leaving_state(),
            nullcontext() if self.settings.timer == "scripted" else operations_kept(),
            pool_on(self.device.torch_device) as pool,
            ExitStack() as held,
        ):
            check_producer(self)
            with watching_launches() as launches:
                expected = self.agreement.run_reference()
                # from now on, as a library may set its limit in the first call
                check_cache = held.enter_context(watching_cache(self.settings, self.device))
                if pool is not None:
                    pool.reserve(expected.outputs, len(self.judged))
                self.agreement.refuse_flat(expected)
                lines = {name: self._check_candidate(name, expected, pool) for name in self.judged}
                self._check_batches()
            if reason := unmeasured_reason(self.settings, self.device, launches.number):
                return self._untimed(lines, reason)
            check_clocks(self.settings)
            found = self._timed(lines, expected, check_cache, pool, say)
            check_clocks(self.settings)
            return found

    @property
    def has_margins(self) -> bool:
        """True if calls have margins around their arguments, on a GPU."""
        return self.agreement.margins and self.device.type == "cuda" and not self.settings.disable

    def name_what_breaks(self, note: Callable[[str], object]) -> None:
        """Make calls with margins that may break the GPU, and note what they mean; see `GuardedCall`."""
        if not self.has_margins:
            return
        with self.agreement.leaving_state():
            expected = self.agreement.run_reference()
            for name in self.judged:
                GuardedCall(self.agreement, name, self.calls[name].function, expected, None).name_what_breaks(note)

    def call_only(self, reason: str) -> CallResult[Comparison]:
        """Check every candidate, and time none."""
        with self.agreement.leaving_state():
            expected = self.agreement.run_reference()
            self.agreement.refuse_flat(expected)
            found = {name: self.agreement.check(name, self.calls[name].function, expected) for name in self.judged}
            lines = {name: tuple(each.line for each in differences) for name, differences in found.items()}
            self._check_batches()
            return self._untimed(lines, reason)

    def with_measurements(self, result: Comparison, measurements: Sequence[Measurement]) -> Comparison:
        """Return the comparison of these measurements."""
        return self._comparison(measurements)

    def _check_batches(self) -> None:
        for name in self.judged:
            check_batch_invariance(self.agreement, name, self.calls[name].function, self.batch_invariant)

    def _check_candidate(self, name: str, expected: Ran, pool: PoisonedPool | None) -> tuple[str, ...]:
        """Return a line for each output of a candidate; raise WrongResult where one is wrong."""
        candidate, agreement = self.calls[name].function, self.agreement
        found = agreement.found(name, candidate, expected)
        pool = None if agreement.uses_cuda_graphs else pool  # they need memory of their own
        guarded = GuardedCall(agreement, name, candidate, expected, pool)
        is_guarded = not self.settings.disable and guarded.is_possible
        differences: Sequence[Difference] | None = None
        if not is_guarded or set(found.changed) != set(expected.changed):
            differences = agreement.compare(found, expected, poisoned=True)
            writes_more = not set(found.changed) <= set(expected.changed)
            if is_guarded and writes_more and not all(each.passed for each in differences):
                guarded.check()  # which tells where it only writes past another tensor
            agreement.require(name, differences, "", expected)
        del found  # its outputs take room
        if is_guarded:
            differences = guarded.check()
        if differences is None:
            differences = agreement.check(name, candidate, expected)
        return tuple(each.line for each in differences)

    def _untimed(self, lines: OutputLines, reason: str) -> CallResult[Comparison]:
        items = zip(self.calls, self.without_time(reason), strict=True)
        measured = [msgspec.structs.replace(item, differences=lines.get(name, ())) for name, item in items]
        return CallResult(self._comparison(measured), measured)

    def _comparison(self, measurements: Sequence[Measurement]) -> Comparison:
        """Return the comparison of these measurements, the reference's first."""
        reference, *candidates = measurements
        named = dict(zip(self.judged, candidates, strict=True))
        return Comparison(reference=reference.timing, candidates=named, reference_overhead=reference.overhead)

    def _timed(
        self,
        lines: OutputLines,
        expected: Ran,
        check_cache: Callable[[], None],
        pool: PoisonedPool | None,
        say: Say,
    ) -> CallResult[Comparison]:
        is_varied = self.vary and self.settings.timer != "scripted"
        way = OtherValues(self.agreement, expected).find() if is_varied else None
        shares_memory = self.interleave and self.settings.timer != "scripted"
        pool = None if self.agreement.uses_cuda_graphs or self.settings.timer == "scripted" else pool
        arms = len(self.calls) if shares_memory else 0
        recorder = OutputRecorder(self.agreement, arms, pool=pool, reference=self.reference)
        watched = {name: recorder.watch(name, call) for name, call in self.calls.items()}
        seed, looks = self.settings.seed or 0, looks_of(self.settings, self.limits)
        made = int(self.agreement.backward == "forward")  # each was called when it was checked
        match = Match(watched, self.reference, seed, self.interleave, recorder.begin, looks, made=made)
        timer, plan = make_timer(self.settings.timer, self.device, self.settings.cache), plan_of(self.settings)
        call, wants_flops = self.calls[self.reference], self.limits.need("flops") and self.flops is None
        args, kwargs = self.agreement.fresh()
        work = work_of(call, args, kwargs, expected.own_outputs, self.bytes or None, self.flops, wants_flops)
        judges = self._judges(work)

        def look(taken: Interleaved, looks: tuple[int, ...]) -> bool:
            check_cache()
            decided = []
            for name, each in judges.items():
                so_far = samples_of(self.calls[name], timer, self.device, plan, taken.samples[name])
                decided.append(each.look(so_far, taken.quads(self.reference, name), looks, taken.tick_us))
            return all(decided) or any(each.failed for each in judges.values())

        taken, timings = measure_in_turn(match, timer, self.device, plan, look, say)
        CheckedRounds(recorder, match, timer, taken, expected, way, self.settings.cache).check()
        self._check_gradients_again(recorder, expected)
        self._check_floors(timings, expected)
        timings = {name: with_work(timing, work) for name, timing in timings.items()}
        measured = [
            Measurement(timing=timings[self.reference], role="reference"),
            *(self._candidate(name, each, timings, taken, lines[name]) for name, each in judges.items()),
        ]
        with carrying(measured):
            self._inspect(measured)
        return CallResult(self._comparison(measured), measured)

    def _check_gradients_again(self, recorder: OutputRecorder, expected: Ran) -> None:
        """Check the gradients of calls that were timed without; a timed backward run has left its own."""
        if self.agreement.grads and not recorder.passes:
            for name in self.judged:
                self.agreement.check(name, self.calls[name].function, expected, " after it was timed")

    def _judges(self, work: Work) -> dict[str, Judges]:
        rule = (self.speedups, self.settings.alpha, self.settings.precision, is_enforced(self.settings, self.device))
        time = self.judgement(work)
        return {name: Judges(replace(time), SpeedupJudgement(name, *rule, self.pass_alpha)) for name in self.judged}

    def _check_floors(self, timings: Mapping[str, Timing], expected: Ran) -> None:
        written = {"forward": expected.own_outputs, "backward": expected.gradients}
        results = written.get(self.agreement.backward, (expected.own_outputs, expected.gradients))
        traffic = traffic_of(self.bytes, self.agreement, results, self.device)
        for name in self.judged:
            check_floor(timings[name], traffic, self.device, timings[self.reference])

    def _candidate(
        self, name: str, judges: Judges, timings: Mapping[str, Timing], taken: Interleaved, lines: tuple[str, ...]
    ) -> Measurement:
        """Return the measurement of a candidate with its speedup and the verdicts on time, rates and speedup."""
        found, reference = judges.speedup.latest, timings[self.reference]
        assert found is not None, "nothing was looked at"
        speedup = Speedup(
            ratio=found.ratio,
            interval=found.interval,
            quads=len(taken.rounds),
            alpha=found.alpha,
            reference=reference.label,
            reference_us=reference.median_us,
            seed=self.settings.seed or 0,
            log_ratios=log_ratios(taken.quads(self.reference, name), fastest=reference.timer == "wall"),
        )
        verdicts = (*judges.time.verdicts, *judges.speedup.verdicts(speedup, timings[name].median_us))
        return Measurement(
            timing=timings[name], verdicts=verdicts, speedup=speedup, differences=lines, role="candidate"
        )

    def _inspect(self, measured: list[Measurement]) -> None:
        """Add the verdicts on structure and the cost of launching, one by one."""
        reference, call = measured[0], self.calls[self.reference]
        for place, name in enumerate(self.judged, 1):
            item = self.conclude(measured[place], self.calls[name], [reference.timing])
            measured[place] = msgspec.structs.replace(item, overhead=self._overhead(self.calls[name]))
        if self.keeps_resources(*measured):
            reference = self.explored(reference, call, kept=True)
        measured[0] = msgspec.structs.replace(reference, overhead=self._overhead(call))

    def _overhead(self, call: Call) -> Overhead | None:
        if not self.wants_overhead or self.device.type != "cuda" or self.settings.timer == "scripted":
            return None
        return take_overhead(call, self.device, self.settings.cache)


def looks_of(settings: Settings, limits: Limits) -> tuple[int, ...]:
    """Return the numbers of quads after which to look.

    The first looks are left out where a run is saved or compared, for a narrower interval, and where a limit is on the
    candidate alone, or on totals: fewer reps do not show whether they resemble their neighbours.
    """
    has_own = limits.need("totals") or any(limit.stage in ("time", "rate") for limit in limits)
    least = LASTING_QUADS if is_kept(settings) else LEAST_TO_TELL // 2 if has_own else 0
    return tuple(look for look in LOOKS if look >= least)


def judging_timer(timer: TimerName | None, timers: Sequence[TimerName] | None) -> TimerName | None:
    """Return the timer that judges; raise BadRequest for invalid ones."""
    if timers is None:
        return timer
    several = isinstance(timers, Sequence) and not isinstance(timers, str)
    if not several or not timers or any(timers.count(each) > 1 or each not in TIMERS for each in timers):
        given = repr_of(timers)
        raise BadRequest(f"compare(timers={given}) is not valid: give a list of different ones of {', '.join(TIMERS)}")
    if timer is not None and timer != timers[0]:
        raise BadRequest(f"compare(timer={timer!r}, timers={timers!r}): the first of timers= judges; leave timer= out")
    return timers[0]
