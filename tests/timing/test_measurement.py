"""A measurement: reps and warm-up, throttling, what is read after each rep; kernel names and idle time of a timing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, count, pairwise, repeat
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench import DeviceFacts, Timing
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.timing.base import Record, Rep, Timer
from pytest_gpubench.timing.measurement import Plan, measure_call
from tests.gpu.recording_nvml import Recording
from tests.timing.fakes import LOST, POWER, Clock, Counted, FakeTimer, call_of, rep

PROBE_REPS = 5
LEAST_REPS = 12
IDLE_GAP_US = 50.0

FACTS = DeviceFacts(type="cpu", name="a processor", host="localhost")
MANGLED = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"


# a whole measurement


class Warming(Recording):
    """A GPU that is throttled as the masks say, one at each look, and a degree warmer each time that is asked."""

    def __init__(self, masks: Sequence[int] = (), broken: dict[str, str] | None = None) -> None:
        super().__init__("", broken)
        self.masks, self.temperatures_c = chain(masks, repeat(0)), count(31)

    def answer(self, query: str, arguments: tuple[Any, ...]) -> Any:
        if query == "CurrentClocksThrottleReasons":
            return next(self.masks)
        return next(self.temperatures_c) if query == "Temperature" else super().answer(query, arguments)


def measured(
    timer: Timer,
    function: Callable[[], object] = lambda: None,
    *,
    reps: int | None = None,
    warmup: int | None = None,
    max_time_s: float = 10.0,
    gpu: Recording | None = None,
    decided: Callable[[Timing], bool] = lambda timing: True,
    say: Callable[[str], None] = lambda text: None,
) -> Timing:
    device = Device(torch.device("cpu"), FACTS, Nvml(gpu, "GPU-fake-1") if gpu else None)
    plan = Plan("cold", reps, warmup, 0.01, max_time_s)
    return measure_call(call_of(function), timer, device, plan, decided, say)


def test_an_adaptive_measurement_keeps_the_reps_of_its_warm_up(clock: Clock) -> None:
    """Three plain calls and two passes; the second pass begins a first batch of 70."""
    timer, function, said = FakeTimer(clock, lambda number: rep(100 + number / 1024)), Counted(), list[str]()
    timing = measured(timer, function, say=said.append)
    assert timer.sizes == [10, 65]
    taken = [one for session in timer.sessions for one in session.taken][5:]
    assert timing.samples_us == tuple(one.elapsed_us for one in taken)
    assert timing.warmup_calls == 3 + 10
    assert function.calls == 3 + 75
    assert timing.flags == ()
    assert said == ["softmax: compiling and warming up", "softmax: measuring"]


@pytest.mark.parametrize("warmup", [None, 2])
@pytest.mark.parametrize("reps", [1, 20])
def test_a_number_of_reps_is_taken_after_the_warm_up(clock: Clock, reps: int, warmup: int | None) -> None:
    """None of them by the warm-up: whoever asks for 20 reps has the 20 after it."""
    timer, function = FakeTimer(clock, lambda number: rep(100 + number / 1024)), Counted()
    timing = measured(timer, function, reps=reps, warmup=warmup)
    taken = [one for session in timer.sessions for one in session.taken]
    assert timing.samples_us == tuple(one.elapsed_us for one in taken[-reps:])
    assert (timing.reps, len(taken)) == (reps, reps + (10 if warmup is None else 0))
    assert timing.warmup_calls == (13 if warmup is None else 2)
    assert function.calls == timing.warmup_calls + reps


@pytest.mark.parametrize(
    ("reps", "sizes"),
    [(1, [1]), (PROBE_REPS, [PROBE_REPS]), (20, [PROBE_REPS, 15]), (2500, [PROBE_REPS, 1000, 1000, 495])],
)
@pytest.mark.parametrize(("max_time_s", "call_us", "idle_s"), [(1e-3, 100.0, 0.0), (10.0, 1000.0, 2.9e-3)])
def test_a_number_of_reps_is_taken_in_as_many_sessions_as_they_need(
    clock: Clock, reps: int, sizes: list[int], max_time_s: float, call_us: float, idle_s: float
) -> None:
    """After a probe that shows how to pace them, however long it takes."""
    timer = FakeTimer(clock, lambda number: rep(call_us))
    assert measured(timer, reps=reps, warmup=0, max_time_s=max_time_s).reps == reps
    assert timer.sizes == sizes
    idles_s = [idle for session in timer.sessions for idle in session.idles_s]
    assert idles_s == pytest.approx([0.0] * sizes[0] + [idle_s] * (reps - sizes[0]))


@pytest.mark.parametrize("reps", [None, 1, 3, 20])
def test_the_last_look_is_at_the_whole_sample_and_none_at_the_probe(clock: Clock, reps: int | None) -> None:
    """The last verdict is the one that is reported; each look spends half of alpha, and five reps decide nothing."""
    looks: list[int] = []

    def undecided(timing: Timing) -> bool:
        looks.append(timing.reps)
        return False

    timing = measured(FakeTimer(clock), reps=reps, warmup=0, max_time_s=1.0, decided=undecided)
    assert looks[-1] == timing.reps
    assert looks[0] >= (reps or LEAST_REPS)
    assert reps or 0.95 < clock.now_s <= 1.0


@pytest.mark.parametrize("warmup", [0, 40])
def test_a_number_of_warm_up_calls_leaves_the_rest_to_precision(clock: Clock, warmup: int) -> None:
    """Sessions that were taken again are counted."""
    timer, function = FakeTimer(clock, lambda number: rep(100), [None, LOST, LOST]), Counted()
    timing = measured(timer, function, warmup=warmup)
    assert (timing.warmup_calls, timing.remeasured) == (warmup, 2)
    assert timer.sizes == [5, 65, 65, 65]
    assert function.calls == warmup + 200


def test_what_never_rests_is_flagged(clock: Clock) -> None:
    timer = FakeTimer(clock, lambda number: rep(100 * 1.05 ** min(number // PROBE_REPS, 12)))
    assert measured(timer).flags == ("unsettled",)


@pytest.mark.parametrize(("reps", "flags"), [(21, ("held up",)), (22, ())])
def test_it_is_flagged_where_most_reps_were_held_up(clock: Clock, reps: int, flags: tuple[str, ...]) -> None:
    """Eleven were; the median of fewer is that of others."""
    timer = FakeTimer(clock, lambda number: replace(rep(100), flags=("held up",) if number < 11 else ()))
    assert measured(timer, reps=reps, warmup=0).flags == flags


@pytest.mark.parametrize(
    ("masks", "given", "flags", "discarded"),
    [
        ([POWER] * 999, {"reps": 4, "max_time_s": 1e-3}, ("throttled",), 0),
        ([*[POWER] * 10, 0, POWER, POWER], {"reps": 8}, (), 2),  # of the reps, not of the warm-up's
        ([POWER] * 2 * PROBE_REPS, {}, (), 0),  # there is time to take those of the warm-up again
    ],
)
def test_throttling_that_lasts_is_flagged(
    clock: Clock, masks: list[int], given: dict[str, Any], flags: tuple[str, ...], discarded: int
) -> None:
    """The elapsed time is that of all reps."""
    began_s = clock.now_s
    timing = measured(FakeTimer(clock, lambda number: rep(100)), gpu=Warming(masks), **given)
    assert (timing.flags, timing.discarded) == (flags, discarded)
    assert timing.throttle_reasons == (("software power cap",) if flags else ())
    assert timing.elapsed_s == pytest.approx(clock.now_s - began_s)


def test_every_look_is_at_the_times_that_could_be_the_last(clock: Clock) -> None:
    seen: list[Timing] = []

    def decided(timing: Timing) -> bool:
        seen.append(timing)
        return len(seen) == 3

    timing = measured(FakeTimer(clock, lambda number: rep(100, "ab")), decided=decided)
    assert [one.reps for one in seen] == [70, 140, 280]
    assert (seen[-1].samples_us, seen[-1].kernels) == (timing.samples_us, ())


def test_the_means_of_the_kernels_sum_to_the_mean_of_the_call(clock: Clock) -> None:
    """Their medians need not sum to its median; all launches of a kernel are one."""

    def uneven(number: int) -> Rep:
        ends_ns = (0, 10_000, (30_000, 50_000, 55_000)[number % 3], 100_000)
        return Rep(
            100.0, tuple(Record(name, "kernel", *ends) for name, ends in zip("aab", pairwise(ends_ns), strict=True))
        )

    timing = measured(FakeTimer(clock, uneven), reps=30)
    found = [(kernel.name, kernel.launches, kernel.median_us, kernel.mean_us) for kernel in timing.kernels]
    assert found == [("a", 2, 50, 45), ("b", 1, 50, 55)]
    assert timing.mean_us == pytest.approx(100, rel=1e-12)


# what is read after each rep


def test_what_is_read_is_kept_for_each_rep(clock: Clock) -> None:
    """Every 5 ms the slow ones, each time what throttles; a stretch for all reps in a row that are alike."""
    timer = FakeTimer(clock, lambda number: rep(100, sm_clock_mhz=1000 + number), cost_s=2e-3)
    timing = measured(timer, reps=8, warmup=0, max_time_s=0.0, gpu=Warming([0] * 7 + [POWER]))
    assert timing.temperature_c == (31, 31, 31, 32, 32, 32, 33, 33)
    assert timing.throttle_masks == (*[0] * 7, POWER)
    assert (timing.memory_clock_mhz, timing.power_w) == ((3199,) * 8, (77.1,) * 8)
    assert [one.reps for one in timing.stretches] == [3, 3, 1, 1]
    assert timing.max_temperature_c == 33
    assert timing.cycles == tuple(100.0 * (1000 + number) for number in range(8))
    assert timing.median_cycles == 100 * 1003.5


def test_what_is_not_told_is_empty(clock: Clock) -> None:
    timing = measured(FakeTimer(clock), reps=4, warmup=0, gpu=Warming(broken={"GetClockInfo": "NotSupported"}))
    assert (timing.memory_clock_mhz, timing.temperature_c) == ((), (31,) * 4)
    assert (timing.cycles, timing.median_cycles) == ((), None)
    timing = measured(FakeTimer(clock), reps=4, warmup=0)
    assert (timing.stretches, timing.temperature_c, timing.throttle_masks) == ((), (), ())
    assert timing.max_temperature_c is None


def test_many_reps_take_little_room(clock: Clock) -> None:
    timing = measured(FakeTimer(clock, cost_s=1e-6), reps=1000, warmup=0, gpu=Warming())
    assert len(timing.temperature_c) == 1000
    assert len(msgspec.json.encode(timing.stretches)) < 100


@pytest.mark.parametrize("reps", [3, 5])
def test_stretches_that_are_not_of_these_reps_are_not_read(clock: Clock, reps: int) -> None:
    whole = measured(FakeTimer(clock), reps=reps, warmup=0, gpu=Warming())
    timing = msgspec.structs.replace(whole, samples_us=(1.0,) * 4)
    assert timing.temperature_c == timing.throttle_masks == ()
    assert timing.max_temperature_c == max(whole.temperature_c)


# kernel names and idle time of a timing


def kernel_named(clock: Clock, name: str) -> str:
    taken = Rep(100.0, (Record(name, "kernel", 0, 100_000),))
    (kernel,) = measured(FakeTimer(clock, lambda number: taken), reps=1).kernels
    return kernel.name


def test_names_of_kernels_are_demangled_where_torch_can(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<"
    assert kernel_named(clock, MANGLED).startswith(shown)
    assert kernel_named(clock, "_ZN99a") == "_ZN99a"
    assert kernel_named(clock, "f") == "f"  # which is float in a mangled name
    monkeypatch.delattr(torch._C, "_demangle")
    assert kernel_named(clock, MANGLED) == MANGLED


@pytest.mark.parametrize(
    ("launches", "busy_us", "span_us", "idle"),
    [
        (3, 6.0, 6.0 + 2 * IDLE_GAP_US, False),
        (3, 6.0, 6.1 + 2 * IDLE_GAP_US, True),
        (30, 60.0, 200.0, False),  # launches of 5 us
        (2, 200.0, 399.0, False),  # not for most of it
        (2, 200.0, 401.0, True),
        (1, 5.0, 5.0, False),
    ],
)
def test_a_gpu_that_waits_for_the_host(clock: Clock, launches: int, busy_us: float, span_us: float, idle: bool) -> None:
    each_ns, end_ns = round(1e3 * busy_us / launches), round(1e3 * span_us)
    starts_ns = [number * each_ns for number in range(launches - 1)] + [end_ns - each_ns]
    records = tuple(Record("add", "kernel", start_ns, start_ns + each_ns) for start_ns in starts_ns)
    timing = measured(FakeTimer(clock, lambda number: Rep(busy_us, records)), reps=3)
    assert (timing.kernels[0].launches, "idle" in timing.flags) == (launches, idle)


def test_a_timer_that_sees_no_kernels_flags_no_idle_gpu(clock: Clock) -> None:
    class Blind(FakeTimer):
        sees_kernels = False

    records = (Record("a", "kernel", 0, 1_000), Record("a", "kernel", 900_000, 901_000))
    assert measured(Blind(clock, lambda number: Rep(2.0, records)), reps=3).flags == ()


# sum, busy and span


spans = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda pair: Record("add", "kernel", pair[0], sum(pair)))


@settings(max_examples=30)
@given(st.lists(spans, min_size=1, max_size=8))
def test_busy_is_the_union_and_the_span_is_from_first_to_last(records: list[Record]) -> None:
    """Counted nanosecond by nanosecond."""
    covered = {moment for record in records for moment in range(record.start_ns, record.end_ns)}
    timing = measured(FakeTimer(Clock(), lambda number: Rep(1.0, tuple(records))), reps=1)
    assert round(1e3 * timing.busy_us[0]) == len(covered)
    assert round(1e3 * timing.span_us[0]) == max(covered) + 1 - min(covered)
