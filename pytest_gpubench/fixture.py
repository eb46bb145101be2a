"""What a test holds in its hand: `gpu_bench`."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pytest_gpubench.agreement import Agreement, Golden
from pytest_gpubench.arms import OutputRecorder, SpeedupJudge, name_arms, speedup_limits
from pytest_gpubench.correctness import Tolerance
from pytest_gpubench.errors import BadRequest, LimitBroken, ProfilerBusy
from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Outcome, Timing, Verdict
from pytest_gpubench.settings import LIMIT_TIME_S, PRECISION_TIME_S, Resolver, Settings
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import Arguments, Backward, make_call, refuse_lazy
from pytest_gpubench.timing.comparison import Match
from pytest_gpubench.timing.comparison import compare as compare_calls
from pytest_gpubench.timing.interpreter import counting_launches
from pytest_gpubench.timing.measurement import Plan, measure
from pytest_gpubench.verdict import Judgement

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

_measuring = threading.Lock()
_measured_label = ""


@dataclass
class CurrentTest:
    """The running test, as the fixture needs to know it."""

    nodeid: str
    settings: Settings
    limits: Limits
    device: Device | None = None
    params: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    extra_info: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    phase: Literal["setup", "call", "teardown"] = "setup"
    wider_scopes: list[str] = field(default_factory=list)
    """The fixtures that are being set up for more than this test, outermost first."""


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
        reps: int | None = None,
        warmup: int | None = None,
        cache: Literal["cold", "dirty", "hot"] | None = None,
        timer: Literal["profiler", "wall", "scripted"] | None = None,
        precision: float | None = None,
        max_time: float | None = None,
    ) -> Timing:
        """Measure `function(*args, **kwargs)` and judge it by the limits of the test's `perf` marker.

        setup: called untimed before each rep; returns the rep's arguments (a tuple, a dict, a tuple of both) or None.
        backward: "forward" times the call, "backward" its gradient (forward run untimed before each rep), "both" the
        two together; all tensors that require a gradient take part.
        label: the name in the table; None is the function's own.
        reps, warmup, cache, timer, precision, max_time: as the options of the same names, which overrule them; None
        leaves the test's setting. max_time is in seconds.

        Raises LimitBroken where a limit is broken, BadRequest for arguments that cannot be meant, MeasurementError
        where no number can be given; whatever the function raises goes through.
        """
        chosen: dict[str, object] = {"reps": reps, "warmup": warmup, "cache": cache, "timer": timer}
        chosen |= {"precision": precision, "max_time": max_time}
        test = self._test()
        given = {name: value for name, value in chosen.items() if value is not None}
        settings = self._resolver.override(test.settings, given, "measure({}=...)")
        call = make_call(function, args, kwargs, setup=setup, backward=backward, label=label)
        device = self._device(test)
        judgement = Judgement(test.limits, settings.alpha, is_enforced(settings, device), settings.reps is not None)
        with OneAtATime(call.label):
            timing = self._take(call, device, settings, judgement)
        test.measurements.append(Measurement(timing=timing, verdicts=judgement.verdicts))
        enforce(test, settings, judgement.verdicts)
        return timing

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
        reps: int | None = None,
        warmup: int | None = None,
        cache: Literal["cold", "dirty", "hot"] | None = None,
        timer: Literal["profiler", "wall", "scripted"] | None = None,
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

        Raises WrongResult where an output differs, UnfairComparison where inputs are overwritten, and what `measure`
        raises.
        """
        chosen: dict[str, object] = {"reps": reps, "warmup": warmup, "cache": cache, "timer": timer}
        chosen |= {"precision": precision, "max_time": max_time}
        test = self._test()
        given = {name: value for name, value in chosen.items() if value is not None}
        settings = self._resolver.override(test.settings, given, "compare({}=...)")
        if settings.alpha >= 0.5:
            raise BadRequest(f"alpha is {settings.alpha:g}: a comparison needs one below 0.5, or chance decides")
        device = self._device(test)
        arms = name_arms(candidate, reference)
        limits = speedup_limits(test.limits, list(arms)[1:])
        calls = {
            name: make_call(function, args, kwargs, setup=setup, backward=backward, label=name)
            for name, function in arms.items()
        }
        arguments = Arguments(tuple(args), dict(kwargs or {}), setup)
        tolerance = Tolerance(rtol, atol, equal_nan)
        wanted_grads: Literal["never", "if any", "always"] = (
            "always" if grads else "never" if backward == "forward" else "if any"
        )
        agreement = Agreement(reference, arguments, tolerance, golden, golden_factor, wanted_grads, device.torch_device)
        with OneAtATime(" and ".join(arms)):
            comparison = self._match(test, settings, device, agreement, calls, limits, interleave)
        self._keep(test, settings, comparison)
        return comparison

    def _match(
        self,
        test: CurrentTest,
        settings: Settings,
        device: Device,
        agreement: Agreement,
        calls: Mapping[str, Call],
        limits: Mapping[str, float],
        interleave: bool,
    ) -> Comparison:
        """Right before fast: check every candidate, then time all, then check what was timed."""
        reference, *names = calls
        with counting_launches() as launches:
            expected = agreement.run_reference()
            lines = {
                name: tuple(each.line for each in agreement.check(name, calls[name].function, expected))
                for name in names
            }
        reason = unmeasured_reason(settings, device, launches.number)
        if reason is not None:
            timings = {name: unmeasured(call, device, settings, reason) for name, call in calls.items()}
            return Comparison(
                reference=timings[reference],
                candidates={name: Measurement(timing=timings[name], differences=lines[name]) for name in names},
            )
        recorder = OutputRecorder(agreement)
        watched = {name: recorder.watch(name, call) for name, call in calls.items()}
        match = Match(watched, reference, limits, settings.seed, interleave)
        timer = make_timer(settings.timer, device, settings.cache)
        plan = plan_of(settings)
        judge_all = SpeedupJudge(match, settings, test.limits)
        try:
            taken, timings = compare_calls(match, timer, device, plan, judge_all.look, self._progress)
        finally:
            self._progress("")
        recorder.check(reference, names)
        return judge_all.conclude(taken, timings, lines, is_enforced(settings, device))

    def _keep(self, test: CurrentTest, settings: Settings, comparison: Comparison) -> None:
        """Keep what was found, and raise for what is broken."""
        test.measurements.append(Measurement(timing=comparison.reference))
        test.measurements += comparison.candidates.values()
        for measurement in comparison.candidates.values():
            enforce(test, settings, measurement.verdicts)

    def _take(self, call: Call, device: Device, settings: Settings, judgement: Judgement) -> Timing:
        """Return the measured timing; an unmeasured one where nothing is to be, or can be, measured."""
        if settings.disable or (device.type == "cpu" and settings.timer != "scripted"):
            with counting_launches() as launches:
                refuse_lazy(call.prepare()(), call.label)
            reason = unmeasured_reason(settings, device, launches.number)
            if reason is not None:
                return unmeasured(call, device, settings, reason)
        timer = make_timer(settings.timer, device, settings.cache)
        plan = plan_of(settings)
        try:
            return measure(call, timer, device, plan, judgement.look, self._progress)
        finally:
            self._progress("")

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
            test.device = find_device(test.settings.device)
        return test.device


def is_enforced(settings: Settings, device: Device) -> bool:
    """Tell whether a broken limit fails the test: not on a CPU that nobody asked for by name."""
    return device.type == "cuda" or settings.device == "cpu" or settings.timer == "scripted"


def enforce(test: CurrentTest, settings: Settings, verdicts: Sequence[Verdict]) -> None:
    """Raise LimitBroken for a broken limit; note an open one, or raise for it too, as the settings say."""
    for verdict in verdicts:
        undecided = verdict.outcome is Outcome.INCONCLUSIVE
        if verdict.enforced and (verdict.outcome is Outcome.FAIL or (undecided and settings.inconclusive == "fail")):
            raise LimitBroken(verdict.sentence)
        unsaid = verdict.outcome is Outcome.NOT_JUDGED or (undecided and settings.inconclusive == "warn")
        if verdict.enforced and unsaid:
            test.warnings.append(verdict.sentence)


def plan_of(settings: Settings) -> Plan:
    """Return how a measurement is to be taken."""
    limit_time_s = settings.max_time or LIMIT_TIME_S
    precision_time_s = settings.max_time or PRECISION_TIME_S
    return Plan(settings.cache, settings.reps, settings.warmup, settings.precision, limit_time_s, precision_time_s)


def unmeasured_reason(settings: Settings, device: Device, interpreted: int) -> str | None:
    """Return why calls are not to be timed; None where they are."""
    if settings.disable:
        return "switched off by --gpu-bench-disable"
    if device.type == "cpu" and settings.timer != "scripted" and interpreted:
        return "it ran in Triton's interpreter, whose time means nothing"
    return None


def unmeasured(call: Call, device: Device, settings: Settings, reason: str) -> Timing:
    """Return a timing without numbers that says why."""
    return Timing(
        label=call.label, timer=settings.timer, cache=settings.cache, device=device.facts.name, unmeasured=reason
    )


class OneAtATime:
    """Refuse a measurement while another runs in this process: each would be in the other's numbers."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __enter__(self) -> None:
        global _measured_label
        if not _measuring.acquire(blocking=False):
            raise ProfilerBusy(
                f"{self.label!r} cannot be measured while {_measured_label!r} is: gpu_bench was called inside the "
                "measured function, or by two threads; measure one after the other"
            )
        _measured_label = self.label

    def __exit__(self, *error: object) -> None:
        _measuring.release()
