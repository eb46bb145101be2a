"""What a test holds in its hand: `gpu_bench`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytest_gpubench.bench.agreement import Agreement, Golden, VariedArguments
from pytest_gpubench.bench.arms import name_arms, speedup_limits
from pytest_gpubench.bench.comparison import Contest
from pytest_gpubench.bench.integrity import auditing, check_traffic, checked_bytes
from pytest_gpubench.bench.phases import make_course
from pytest_gpubench.bench.plan import OneAtATime, is_enforced, plan_of, unmeasured, unmeasured_reason
from pytest_gpubench.bench.ranks import check_ranks, judge_ranks
from pytest_gpubench.bench.work import Inspection, checked_flops, with_work, work_of_call
from pytest_gpubench.correctness import Tolerance
from pytest_gpubench.errors import (
    BadRequest,
    LimitBroken,
    annotate,
)
from pytest_gpubench.gpu.device import Device, required_device
from pytest_gpubench.results.model import Comparison, Measurement, Outcome, Timing, Verdict
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.running_test import (
    CurrentTest,
    hold_against_past,
    hold_to,
    keep_phases,
    keeping,
    mind_missing,
    noting_invalid,
    paying,
    show_last,
    spending,
    trace,
    why_untimed,
    with_candidates,
    without_time,
)
from pytest_gpubench.settings import Resolver, Settings
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import Backward, make_arguments, make_call, name_of, refuse_lazy
from pytest_gpubench.timing.graph import refuse_backward
from pytest_gpubench.timing.interpreter import counting_launches
from pytest_gpubench.timing.measurement import measure
from pytest_gpubench.timing.ranks import TIMEOUT_S, Collective, Job, Rank, Ranks, devices_of, measure_ranks
from pytest_gpubench.timing.regions import region

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

Timer = Literal["profiler", "events", "graph", "wall", "scripted"] | None
"""The name of a timer; None for the test's own."""


class GpuBench:
    """Measure the GPU time of functions, and hold the limits of the test's `perf` marker against it.

    `gpu_bench(fn, *args, **kwargs)` measures a call; `measure` takes everything else. Each result is a `Timing`.
    """

    def __init__(
        self,
        current: Callable[[], CurrentTest | None],
        resolver: Resolver,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._current = current
        self._resolver = resolver
        self._progress = progress

    def __call__(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Timing:
        """Measure `function(*args, **kwargs)` as the settings say; see `measure`."""
        return self.measure(function, args, kwargs)

    @property
    def device(self) -> "torch.device":
        """The device that is measured: make the tensors there."""
        return self._device(self._test()).torch_device

    @property
    def extra_info(self) -> dict[str, Any]:
        """A dict of the test's own, kept with its results: numbers and texts."""
        return self._test().extra_info

    def measure(
        self,
        function: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        setup: Callable[[], object] | None = None,
        backward: Backward = "forward",
        label: str | None = None,
        bytes: int | None = None,
        flops: int | None = None,
        reps: int | None = None,
        warmup: int | None = None,
        cache: Literal["cold", "dirty", "hot"] | None = None,
        timer: Timer = None,
        precision: float | None = None,
        max_time: float | None = None,
    ) -> Timing:
        """Measure `function(*args, **kwargs)` and judge it by the limits of the test's `perf` marker.

        setup: called untimed before each rep; returns the rep's arguments (a tuple, a dict, a tuple of both) or None.
        backward: "forward" times the call, "backward" its gradient (forward run untimed before each rep), "both" the
        two together; all tensors that require a gradient take part.
        label: the name in the table; None is the function's own.
        bytes: what the call has to move, at least; a time in which this GPU's memory cannot is InvalidResult. None is
        the size of inputs and outputs, where a limit asks for it; 0 is no such check.
        flops: the operations of the call, a multiply-add being two; None counts torch's, where a limit asks for them.
        What is asked for and not given is found in untimed calls, before the warm-up.
        reps, warmup, cache, timer, precision, max_time: as the options of the same names, which overrule them; None
        leaves the test's setting. max_time is in seconds.

        Raises LimitBroken where a limit is broken, BadRequest for arguments that cannot be meant, MeasurementError
        where no number can be given; whatever the function raises goes through.
        """
        test = self._test()
        chosen: dict[str, object] = {"reps": reps, "warmup": warmup, "cache": cache, "timer": timer}
        settings = self._settings(
            test, "measure", chosen | {"precision": precision, "max_time": max_time}, bytes, backward, flops
        )
        call = make_call(function, make_arguments(args, kwargs, setup), backward, label)
        device = self._device(test)
        key = test.search.key([call.label], (args, kwargs)) if test.search else None
        if test.search is not None and key in test.search.measured:
            remembered = test.search.measured[key]
            show_last(test, [remembered])
            hold_to(test, settings, remembered.verdicts)
            return remembered.timing
        spent = why_untimed(test, settings)
        settings = spending(test, settings, spent)

        def obtain() -> list[Measurement]:
            with OneAtATime(call.label), paying(test), noting_invalid(test, settings, device, [call.label], ""):
                verdicts: tuple[Verdict, ...] = ()
                reason = why_not(call, device, settings, spent)
                if reason is not None:
                    timing = unmeasured(call.label, device, settings, reason)
                else:
                    inspection = Inspection(settings, device, test.limits)
                    timing, verdicts = self._take(call, inspection, bytes, flops)
                    check_traffic(timing, bytes, settings, device)
                    with auditing(settings, device), keeping(test, timing, verdicts):
                        verdicts = inspection.conclude(timing, call, verdicts)
            return [Measurement(timing=timing, verdicts=verdicts, example=test.example)]

        held = hold_against_past(test, settings, device, obtain)
        (measurement,) = held.measurements
        test.measurements.append(measurement)
        if test.search is not None and key is not None:
            test.search.measured[key] = measurement
            test.search.fixed.note(settings, measurement.verdicts)
        trace(test, settings, device, [call])
        hold_to(test, settings, measurement.verdicts)
        mind_missing(test, settings, device, held)
        return measurement.timing

    def compare(
        self,
        candidate: Callable[..., object] | Mapping[str, Callable[..., object]],
        reference: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        setup: Callable[[], object] | None = None,
        backward: Backward = "forward",
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        golden: Golden = None,
        golden_factor: float = 2.0,
        grads: bool = False,
        interleave: bool = True,
        names: Sequence[str] | None = None,
        vary: bool = True,
        bytes: int | None = None,
        flops: int | None = None,
        reps: int | None = None,
        warmup: int | None = None,
        cache: Literal["cold", "dirty", "hot"] | None = None,
        timer: Timer = None,
        timers: Sequence[Literal["profiler", "events", "graph"]] | None = None,
        precision: float | None = None,
        max_time: float | None = None,
    ) -> Comparison:
        """Check a candidate against a reference, time both in turn, and judge the candidate by the test's limits.

        candidate: a function, or several by name; each is checked and judged against the reference.
        setup, backward, reps, warmup, cache, timer, precision, max_time: as in `measure`; reps counts the calls of each
        function, and setup draws the same random numbers for each call.
        rtol, atol, equal_nan: as in torch.testing.assert_close; None are its tolerances for the dtype.
        golden: "float64" runs the reference in float64 too, a function stands for it; both arms are then judged by
        their errors against that, and the candidate is allowed golden_factor times the reference's.
        grads: compare the gradients of the inputs too, under the same upstream gradient; with a backward this is done
        for the inputs that require one.
        interleave: False times one arm after the other, for collectives.
        names: of the candidate and of the reference, in the table and in limits; of the reference alone where the
        candidates are named by a mapping; None are the functions' own.
        vary: False leaves out the last check, in which the values of the inputs change in the same memory.
        bytes: what a call has to move, at least; None is the size of inputs and outputs, less the L2 cache, as long as
        the reference does not take less time than that; 0 is no such check.
        flops: as in `measure`, the same for every arm; None counts those of the reference.
        timers: the first is the timer that judges; with another beside it each arm also gets its `overhead`: what the
        host takes to launch it, the gaps between its kernels, and how much faster a replayed CUDA graph of it is.

        Raises WrongResult where an output differs, UnfairComparison where inputs are overwritten, InvalidResult for a
        time that cannot be true, and what `measure` raises.
        """
        test = self._test()
        timer = timer_of(timer, timers)
        chosen: dict[str, object] = {"reps": reps, "warmup": warmup, "cache": cache, "timer": timer}
        settings = self._settings(
            test, "compare", chosen | {"precision": precision, "max_time": max_time}, bytes, backward, flops
        )
        if settings.alpha >= 0.5:
            raise BadRequest(f"alpha is {settings.alpha:g}: a comparison needs one below 0.5, or chance decides")
        device = self._device(test)
        arms = name_arms(candidate, reference, names)
        arguments = VariedArguments.of(make_arguments(args, kwargs, setup))
        limits = speedup_limits(test.limits, list(arms)[1:])
        calls = {name: make_call(function, arguments, backward, label=name) for name, function in arms.items()}
        tolerance = Tolerance(rtol, atol, equal_nan)
        wanted_grads: Literal["never", "if any", "always"] = (
            "always" if grads else "never" if backward == "forward" else "if any"
        )
        agreement = Agreement(reference, arguments, tolerance, golden, golden_factor, wanted_grads, device.torch_device)
        overheads = len(timers or ()) > 1
        contest = Contest(
            settings, device, test.limits, agreement, calls, limits, interleave, vary, bytes, flops, overheads
        )

        def obtain() -> list[Measurement]:
            with OneAtATime(" and ".join(arms)), noting_invalid(test, settings, device, list(calls)[1:], "candidate"):
                found = (test.search.compare if test.search else Contest.run)(contest, self._progress)
            comparisons.append(found)
            reference = Measurement(timing=found.reference, role="reference", overhead=found.reference_overhead)
            return [reference, *found.candidates.values()]

        comparisons: list[Comparison] = []
        held = hold_against_past(test, settings, device, obtain)
        comparison = comparisons[-1]
        if test.search is None:
            comparison = with_candidates(comparison, held.measurements[1:])
        self._keep(test, settings, comparison, held.measurements)
        trace(test, settings, device, list(calls.values()))
        self._enforce(test, settings, comparison)
        mind_missing(test, settings, device, held)
        return comparison

    def region(self, name: str) -> region:
        """Name a part of the measured call: `with gpu_bench.region("forward"):`; see `pytest_gpubench.region`."""
        return region(name)

    def phases(
        self,
        phases: Mapping[str, Callable[..., object]],
        whole: Callable[..., object] | None = None,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        setup: Callable[[], object] | None = None,
        elements: int | None = None,
        reps: int | None = None,
        warmup: int | None = None,
        cache: Literal["cold", "dirty", "hot"] | None = None,
        timer: Timer = None,
        precision: float | None = None,
        max_time: float | None = None,
    ) -> Phases:
        """Measure each phase by itself, in turn with the whole; the limits of the test hold for every one of them.

        phases: functions by name, all called with the same arguments.
        whole: what does all of it in one call; None compares the phases' sum with nothing.
        elements: what a call works through, for elements per second.
        setup, reps, warmup, cache, timer, precision, max_time: as in `measure`.

        Raises what `measure` raises.
        """
        test = self._test()
        chosen: dict[str, object] = {"reps": reps, "warmup": warmup, "cache": cache, "timer": timer}
        settings = self._settings(
            test, "phases", chosen | {"precision": precision, "max_time": max_time}, None, "forward"
        )
        course, device = make_course(phases, whole, args, kwargs, setup, elements), self._device(test)
        key = test.search.key(list(course.calls), (args, kwargs)) if test.search else None
        if test.search is not None and key in test.search.phased:
            remembered, measured = test.search.phased[key]
            show_last(test, measured)
            for measurement in measured:
                hold_to(test, settings, measurement.verdicts)
            return remembered
        spent = why_untimed(test, settings)
        settings = spending(test, settings, spent)
        found: list[Phases] = []

        def obtain() -> list[Measurement]:
            with (
                OneAtATime(course.title),
                paying(test),
                noting_invalid(test, settings, device, list(course.calls), ""),
            ):
                asked = replace(settings, disable=True) if spent else settings
                taken, measurements = course.measure(asked, device, test.limits, self._progress, test.example)
            found.append(msgspec.structs.replace(taken, unmeasured=spent) if spent else taken)
            return [without_time(item, spent) for item in measurements] if spent else measurements

        held = hold_against_past(test, settings, device, obtain)
        keep_phases(test, key, found[-1], held.measurements)
        if test.search is not None:
            test.search.fixed.note(settings, [each for item in held.measurements for each in item.verdicts])
        for measurement in held.measurements:
            hold_to(test, settings, measurement.verdicts)
        mind_missing(test, settings, device, held)
        return found[-1]

    def ranks(
        self,
        function: Callable[..., object],
        world_size: int = 2,
        *,
        setup: Callable[[Rank], object] | None = None,
        check: Callable[[Rank, Any], object] | None = None,
        label: str | None = None,
        collective: Collective | None = None,
        message_bytes: int | None = None,
        reps: int | None = None,
        warmup: int | None = None,
        cache: Literal["cold", "dirty", "hot"] | None = None,
        timer: Timer = None,
        precision: float | None = None,
        max_time: float | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Ranks:
        """Measure a function on several GPUs at once, in a process each; a rep takes what its slowest rank takes.

        The test has to hold as many GPUs: `perf(gpus=2)`. function, setup and check are imported in the processes.
        setup: called with the rank before each call, untimed; returns its arguments. check: called with the rank and
        what the first call returned; raises where that is wrong.
        collective, message_bytes: for the bus bandwidth, as nccl-tests define it: "all_reduce", and so on.
        timeout_s: a rank that says nothing for so long is ended, and so are the others.

        Raises what `measure` raises, and MeasurementError for a rank that died or hangs.
        """
        test = self._test()
        chosen: dict[str, object] = {"reps": reps, "warmup": warmup, "cache": cache, "timer": timer}
        chosen |= {"precision": precision, "max_time": max_time}
        settings, device = self._settings(test, "ranks", chosen, None, "forward"), self._device(test)
        link_known = collective is not None and message_bytes is not None
        check_ranks(test.limits, settings, device, world_size, test.gpus, link_known)
        name = label or name_of(function)
        key = test.search.key([name, f"{world_size} ranks"], (message_bytes,)) if test.search else None
        if test.search is not None and key in test.search.ranked:
            remembered, measurement = test.search.ranked[key]
            show_last(test, [measurement])
            hold_to(test, settings, measurement.verdicts)
            return remembered
        spent = why_untimed(test, settings)
        settings = spending(test, settings, spent)
        plan = plan_of(settings)
        if test.limits:
            plan = replace(plan, precision_time_s=plan.max_time_s)
        timed = not (settings.disable or spent)
        job = Job(function, plan, setup, check, label, collective, message_bytes, timed=timed, timeout_s=timeout_s)
        with (
            OneAtATime(name),
            paying(test),
            noting_invalid(test, settings, device, [name], ""),
            auditing(settings, device),
        ):
            found = measure_ranks(job, devices_of(device, world_size))
        if found is None:
            reason = spent or "gpu_bench is switched off: --gpu-bench-disable"
            found = Ranks(unmeasured(name, device, settings, reason))
        verdicts = judge_ranks(found.timing, test.limits, settings, is_enforced(settings, device))
        measurement = Measurement(timing=found.timing, verdicts=verdicts, example=test.example)
        test.measurements.append(measurement)
        if timed and test.search is None and test.past(device.facts) is not None:
            test.warn(f"{name} was not compared with the saved run: ranks are not")
        if test.search is not None and key is not None:
            test.search.ranked[key] = found, measurement
            test.search.fixed.note(settings, verdicts)
        hold_to(test, settings, verdicts)
        return found

    def _settings(
        self,
        test: CurrentTest,
        method: str,
        chosen: Mapping[str, object],
        moved_bytes: int | None,
        backward: Backward,
        flops: int | None = None,
    ) -> Settings:
        """Return the test's settings with a call's keywords in place; raise BadRequest for what cannot be meant."""
        if moved_bytes is not None:
            checked_bytes(moved_bytes)
        if flops is not None:
            checked_flops(flops)
        given = {name: value for name, value in chosen.items() if value is not None}
        settings = self._resolver.override(test.settings, given, f"{method}({{}}=...)")
        if settings.timer == "graph":
            refuse_backward(backward)
        return settings

    def _keep(
        self, test: CurrentTest, settings: Settings, comparison: Comparison, found: Sequence[Measurement]
    ) -> None:
        """Keep what was found."""
        kept = list(found)
        if test.search is not None:
            kept = test.search.told_apart(comparison, kept)
        show_last(test, kept)

    def _enforce(self, test: CurrentTest, settings: Settings, comparison: Comparison) -> None:
        """Raise for what is broken, before what is only open."""
        failed_first = sorted(comparison.candidates.items(), key=lambda item: not is_broken(item[1].verdicts))
        for name, measurement in failed_first:
            try:
                hold_to(test, settings, measurement.verdicts)
            except LimitBroken as error:
                if test.search is not None and (why := test.search.explain(name, comparison.reference.label)):
                    annotate(error, why)
                raise

    def _take(
        self, call: Call, inspection: Inspection, moved_bytes: int | None, flops: int | None
    ) -> tuple[Timing, tuple[Verdict, ...]]:
        """Return the measured timing, which knows its work, and the verdicts on its time and its rates."""
        settings, device = inspection.settings, inspection.device
        with auditing(settings, device):
            timer = make_timer(settings.timer, device, settings.cache)
            work = work_of_call(call, inspection, moved_bytes or None, flops)
            judgement = inspection.judgement(work)
            try:
                timing = measure(call, timer, device, plan_of(settings), judgement.look, self._progress)
            finally:
                self._progress("")
        return with_work(timing, work), judgement.verdicts

    def _test(self) -> CurrentTest:
        """Return the running test; raise BadRequest where a measurement would belong to none."""
        test = self._current()
        if test is None:
            raise BadRequest("gpu_bench was used outside of a test: a measurement belongs to the test that makes it")
        if test.phase == "teardown":
            raise BadRequest("gpu_bench was used in a teardown, after its test was judged: measure in the test itself")
        if test.wider_scopes:
            raise BadRequest(
                f"gpu_bench was used by the fixture {test.wider_scopes[0]}, which is set up for more than one test: "
                "measure in the test, or in a function-scoped fixture"
            )
        return test

    def _device(self, test: CurrentTest) -> Device:
        if test.device is None:
            test.device = required_device(test.settings.device, test.settings.require_gpu)
        return test.device


def is_broken(verdicts: Iterable[Verdict]) -> bool:
    """Tell whether a limit that counts was broken."""
    return any(verdict.enforced and verdict.outcome is Outcome.FAIL for verdict in verdicts)


def why_not(call: Call, device: Device, settings: Settings, spent: str = "") -> str | None:
    """Return why a call is not to be timed, None where it is; it is called where that is the way to tell.

    spent: why there is no time for it; empty where there is.
    """
    if not spent and not settings.disable and (device.type != "cpu" or settings.timer == "scripted"):
        return None
    with counting_launches() as launches:
        refuse_lazy(call.prepare()(), call.label)
    return unmeasured_reason(settings, device, launches.number) or spent or None


TIMERS = ("profiler", "events", "graph")


def timer_of(timer: Timer, timers: Sequence[str] | None) -> Timer:
    """Return the timer that judges; raise BadRequest for timers that cannot be meant."""
    if timers is None:
        return timer
    unknown = [each for each in timers if each not in TIMERS]
    if isinstance(timers, str) or not timers or unknown or len(set(timers)) < len(timers):
        raise BadRequest(f"compare(timers={timers!r}) is not valid: give different ones of {', '.join(TIMERS)}")
    if timer is not None and timer != timers[0]:
        raise BadRequest(f"compare(timer={timer!r}, timers={timers!r}): the first of timers= judges; leave timer= out")
    return timers[0]  # type: ignore[return-value] # checked just now
