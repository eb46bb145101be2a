"""Warm-up: calls and passes until compilers, kernels, clock and time have come to rest."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

from pytest_gpubench import DeviceFacts, DeviceUnavailable, GpuBenchError, KernelsDiffer, NothingRecorded
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.timing import make_timer, warmup
from pytest_gpubench.timing.base import Call, Prepared, Rep, Timer
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.warmup import warm_up
from tests.timing.fakes import LOST, POWER, Clock, Counted, FakeTimer, call_of, instrument_of, rep

PROBE_REPS = 5
KEPT_CLOCK = 0.97
BURST = 50
MAX_CALLS = 30
MAX_PASSES = 12
MIN_CALLS = 3
REST_RATIO = 0.03
REST_SLACK_US = 0.2
SLOW_CALL_US = 500


def warm(timer: Timer, function: Any, wanted: int | None = None, masks: Sequence[int] = (), made: int = 0) -> Any:
    """Return the warmth of a function, or of a call."""
    call = function if isinstance(function, Call) else call_of(function)
    return warm_up(instrument_of(timer, masks), cpu_device(), {"softmax": call}, wanted, made=made)["softmax"]


# plain calls


@pytest.mark.parametrize("wanted", [0, 1, MAX_CALLS + 1])
def test_a_number_of_calls_is_made_exactly(clock: Clock, wanted: int) -> None:
    """Without the timer, however much they differ, and none more."""
    timer, function = FakeTimer(clock, lambda number: rep(9, "ab"[number % 2])), Counted()
    warmth = warm(timer, function, wanted)
    assert (function.calls, warmth.calls, timer.sizes) == (wanted, wanted, [])
    assert (warmth.settled, warmth.sample.reps) == (True, [])


@pytest.mark.parametrize("wanted", [None, 7])
def test_a_timer_that_needs_none_gets_none(wanted: int | None) -> None:
    function = Counted()
    assert warm(make_timer("scripted", cpu_device(), "hot"), function, wanted).calls == function.calls == 0


def lasting(clock: Clock, times_s: Sequence[float], untimed_s: float = 0.0) -> Call:
    """Return a call whose n-th run takes the n-th time on the host, and the last one from then on."""
    taken: list[float] = []

    def run() -> None:
        taken.append(times_s[min(len(taken), len(times_s) - 1)])
        clock.now_s += taken[-1]

    def prepare() -> Prepared:
        clock.now_s += untimed_s
        return Prepared(run)

    return Call("softmax", prepare, run)


def plain_calls(call: Call, clock: Clock, made: int = 0) -> int:
    """Return the calls of a warm-up without those of its passes."""
    timer = FakeTimer(clock)
    calls: int = warm(timer, call, made=made).calls
    return calls - timer.taken


NEARLY = 2.1e-3


@pytest.mark.parametrize(
    ("times_s", "calls"),
    [
        ([30, 1e-3], MIN_CALLS),
        ([30, 30, 1e-3], 4),  # not two in a row before
        ([30, 30, 30, 1e-3], 3),  # slow, but steadily so
        ([1e-3, 5, 1e-3], 4),
        ([30, 2, 5, 2, 1e-3, 5, 1e-3], 8),
        ([30, 1e-3, NEARLY - 1e-6], 3),
        ([30, 1e-3, NEARLY + 1e-6, 1e-3], 5),
        ([1e-6, 9e-5], MIN_CALLS),
        ([4.0**-number for number in range(MAX_CALLS)], 9),
        ([(1e-3, 1.0)[number % 2] for number in range(2 * MAX_CALLS)], MAX_CALLS),
    ],
)
@pytest.mark.parametrize("untimed_s", [0.0, 60.0])
def test_calls_are_made_until_nothing_is_compiled_any_more(
    clock: Clock, times_s: list[float], calls: int, untimed_s: float
) -> None:
    """Two in a row that take at most about twice as long as the fastest; preparing a call is not a part of it."""
    assert plain_calls(lasting(clock, times_s, untimed_s), clock) == calls


def test_the_fastest_call_says_how_many_reps_a_pass_has(clock: Clock) -> None:
    timer = FakeTimer(clock)
    warm(timer, lasting(clock, [30, 1e-4, 1e-4, 30]))
    assert timer.sizes[0] == 2 * PROBE_REPS


@pytest.mark.parametrize(("made", "calls"), [(0, 3), (1, 2), (9, 2)])
def test_calls_that_were_made_before_need_not_be_made_again(clock: Clock, made: int, calls: int) -> None:
    assert [plain_calls(lasting(clock, times_s), clock, made) for times_s in ([1e-3], [30, 1e-3])] == [calls, 3]


@pytest.mark.parametrize(
    ("made", "launching_s", "device_s", "calls"),
    [
        (1, 1e-4, 2e-3, 1),
        (1, 1e-4, 1.01e-4, 1),
        (1, 1e-4, 0.99e-4, 2),
        (1, 0.99e-3, 2e-3, 1),
        (1, 1.01e-3, 1.0, 2),  # it may have compiled something small for a long time on the device
        (0, 1e-4, 2e-3, 3),
    ],
)
@pytest.mark.parametrize("graphs", [False, True])
def test_one_more_call_is_enough_where_the_host_is_ahead(
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    graphs: bool,
    made: int,
    launching_s: float,
    device_s: float,
    calls: int,
) -> None:
    """Not where torch.compile captures CUDA graphs, in its third call."""

    def wait() -> float:
        clock.now_s += device_s
        return 1e6 * device_s

    monkeypatch.setattr(Device, "stopwatch", lambda device: wait)
    monkeypatch.delitem(sys.modules, warmup.CUDA_GRAPHS, raising=False)
    if graphs:
        monkeypatch.setitem(sys.modules, warmup.CUDA_GRAPHS, ModuleType("graphs"))
    assert plain_calls(lasting(clock, [launching_s]), clock, made) == (3 - made if graphs else calls)


IN_A_PASS = ["gpu_bench: raised in rep 2 of 'softmax'", "gpu_bench: which was in a first warm-up pass"]
IN_A_CALL = ["gpu_bench: raised in warm-up call 3 of 'softmax'"]


@pytest.mark.parametrize(
    ("wanted", "call", "notes"), [(None, 3, IN_A_CALL), (9, 3, IN_A_CALL), (None, MIN_CALLS + 2, IN_A_PASS)]
)
def test_an_exception_says_in_which_call_it_was_raised(
    clock: Clock, wanted: int | None, call: int, notes: list[str]
) -> None:
    error = ValueError("broken")
    with pytest.raises(ValueError, match="broken") as caught:
        warm(FakeTimer(clock), Counted({call: error}), wanted)
    assert caught.value is error
    assert getattr(error, "__notes__", []) == notes


# passes with the timer


def passes(timer: FakeTimer, call_us: float = 100.0, masks: Sequence[int] = ()) -> Any:
    """Pass until rest, after three plain calls that took so long."""
    return warm(timer, lasting(timer.clock, [1e-6 * call_us] * 3 + [0.0]), masks=masks)


def by_pass(
    clock: Clock, times_us: Sequence[float], kernels: Sequence[str] = ("a",), size: int = PROBE_REPS
) -> FakeTimer:
    """Return a timer whose n-th pass takes the n-th time and launches the n-th kernels, the last ones from then on."""

    def play(number: int) -> Rep:
        turn = number // size
        return rep(times_us[min(turn, len(times_us) - 1)], kernels[min(turn, len(kernels) - 1)])

    return FakeTimer(clock, play)


@pytest.mark.parametrize(
    ("times_us", "kernels", "sessions"),
    [
        ([100], ["ab", "ba"], [2]),
        ([100], ["ab", "ac", "ad", "a"], [2, 2, 2]),
        ([100], ["ab", "a", "ab", "ab", "a"], [2, 2]),
        ([400, 200, 100], ["a"], [2, 1, 1]),
        ([100, 100 * (1 + REST_RATIO) - 1], ["a"], [2]),
        ([100, 100 / (1 - REST_RATIO) + 1, 100, 100], ["a"], [2, 1, 1]),
        ([2, 2 + 0.9 * REST_SLACK_US], ["a"], [2]),
        ([2, 2 + 1.6 * REST_SLACK_US, 2, 2], ["a"], [2, 1, 1]),
        ([400, 100, 100, 200, 200], ["ab", "ab", "a", "a"], [2, 1, 1, 1]),
    ],
)
def test_it_rests_when_two_passes_agree(
    clock: Clock, times_us: list[float], kernels: list[str], sessions: list[int]
) -> None:
    """In their kernels and, within 3 % and a bit, in their time; the first two are taken in one session."""
    timer = by_pass(clock, times_us, kernels)
    warmth = passes(timer)
    assert timer.sizes == [number * PROBE_REPS for number in sessions]
    assert warmth.settled
    assert warmth.calls == 3 + timer.taken
    assert warmth.call_us == pytest.approx(times_us[min(sum(sessions), len(times_us)) - 1])
    assert warmth.rep_cost_s == pytest.approx(timer.cost_s)
    assert warmth.sample.reps == timer.sessions[-1].taken[-PROBE_REPS:]


def test_a_rep_costs_what_the_timers_own_clock_says(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where busy processes have the core for nine tenths of the time; a throttled GPU is not waited for."""
    timer = by_pass(clock, [100.0])
    monkeypatch.setattr(timer, "clock_s", lambda: clock.perf_counter() / 10)
    warmth = passes(timer, masks=[POWER] * 999)
    assert warmth.rep_cost_s == pytest.approx(timer.cost_s / 10)
    assert (len(warmth.last), warmth.sample.reps, clock.slept_s) == (PROBE_REPS, [], [])


@pytest.mark.parametrize(
    ("call_us", "reps"), [(SLOW_CALL_US - 1, 5), (SLOW_CALL_US, 3), (999, 3), (1001, 2), (1501, 1), (1e6, 1)]
)
def test_slow_calls_are_passed_with_fewer_reps(clock: Clock, call_us: float, reps: int) -> None:
    """And each after idle time, once a pass has shown that they need it."""
    timer = by_pass(clock, [call_us])
    warmth = passes(timer, call_us)
    idle_s = 3e-6 * call_us - 1e-4
    assert [session.idles_s for session in timer.sessions] == [[0.0] * 2 * reps, pytest.approx([idle_s] * reps)]
    assert len(warmth.sample.reps) == reps
    assert warmth.rep_cost_s == pytest.approx(timer.cost_s + idle_s)


@pytest.mark.parametrize(
    ("clocks_mhz", "count"),
    [
        ([1980], 2),
        ([None], 2),
        ([345, None], 2),
        ([1000 * (1 - REST_RATIO) + 1, 1000], 2),
        ([1000 * (1 - REST_RATIO) - 1, 1000], 3),
        ([1000 * (1 + REST_RATIO) + 1, 1000], 3),
        ([345, 700, 1400, 1980], 5),
        ([1000, 1100] * MAX_PASSES, MAX_PASSES + 1),  # one that never rests leaves the time at rest
    ],
)
def test_it_rests_when_the_clock_does(clock: Clock, clocks_mhz: list[float | None], count: int) -> None:
    """Though kernels and time, of a call that waits for memory say, were at rest before."""
    timer = FakeTimer(
        clock, lambda number: rep(100, sm_clock_mhz=clocks_mhz[min(number // PROBE_REPS, len(clocks_mhz) - 1)])
    )
    warmth = passes(timer)
    assert (timer.taken, warmth.settled) == (count * PROBE_REPS, True)
    assert warmth.sample.reps == timer.sessions[-1].taken[-PROBE_REPS:]


@pytest.mark.parametrize(
    ("odd", "max_reps", "sizes"),
    [
        (None, 4 * PROBE_REPS, [4 * PROBE_REPS]),
        (None, 4 * PROBE_REPS - 1, [2 * PROBE_REPS] * 2),
        (0, 1000, [4 * PROBE_REPS, 2 * PROBE_REPS, 2 * PROBE_REPS]),
        (2 * PROBE_REPS, 1000, [4 * PROBE_REPS, 2 * PROBE_REPS, 2 * PROBE_REPS]),
    ],
)
def test_first_passes_of_all_calls_are_taken_in_one_session(
    clock: Clock, odd: int | None, max_reps: int, sizes: list[int]
) -> None:
    """Each is taken alone if it does not hold them, or the kernels of one differ there."""
    timer = FakeTimer(clock, lambda number: rep(100, "ab" if number == odd else "a"))
    timer.max_reps = max_reps  # type: ignore[misc] # a constant of real timers
    warmths = warm_up(instrument_of(timer), cpu_device(), {name: call_of(lambda: None) for name in "xy"}, None)
    assert timer.sizes == sizes
    assert {warmth.calls for warmth in warmths.values()} == {3 + timer.taken // 2}
    assert all(warmth.settled and len(warmth.sample.reps) == PROBE_REPS for warmth in warmths.values())


# the clock of an idle GPU


class FakeSentinels:
    """Tell the n-th clock after the n-th burst, each of which takes 2 ms."""

    def __init__(self, clock: Clock, clocks_mhz: Sequence[float | None]) -> None:
        self.clock, self.clocks_mhz = clock, iter([*clocks_mhz, *[clocks_mhz[-1]] * 999])
        self.log: list[str] = []

    def begin(self, slot: int) -> None:
        self.log.append(f"begin {slot}")

    def end(self, slot: int) -> None:
        self.log.append(f"end {slot}")

    def read_clocks(self, reps: int) -> list[float | None]:
        self.log.append("read")
        self.clock.now_s += 2e-3
        return [next(self.clocks_mhz)] * reps


Bursts = Callable[..., list[int]]


@pytest.fixture
def bursts(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Bursts:
    """Return what warms a call up on a GPU whose clock is one of these after each burst, and says its flushes."""

    def wake(
        clocks_mhz: Sequence[float | None] = (1980.0,),
        highest_mhz: float | None = 1980.0,
        kind: Any = "cuda",
        marks: bool = True,
        wanted: int | None = None,
        has_room: bool = True,
    ) -> list[int]:
        def make_flush(device: Device, cache: str) -> Callable[[], None]:
            if not has_room:
                raise DeviceUnavailable("no room")
            return lambda: sentinels.log.append("flush")

        sentinels, timer = FakeSentinels(clock, clocks_mhz), FakeTimer(clock, lambda number: rep(100))
        if marks:
            timer.sentinels = sentinels  # type: ignore[attr-defined]
        monkeypatch.setattr(warmup, "make_flush", make_flush)
        monkeypatch.setattr(Device, "synchronize", lambda self: sentinels.log.append("wait"))
        monkeypatch.setattr(Device, "stopwatch", lambda self: lambda: 100.0)
        device = Device(torch.device("cpu"), DeviceFacts(type=kind, name="a GPU", host="here"))
        instrument = replace(instrument_of(timer), pacing=Pacing(highest_mhz))
        warm_up(instrument, device, {"softmax": call_of(lambda: None)}, wanted)
        around = ("wait, begin 0, ", "end 1, wait, read, ")
        *found, last = "".join(f"{each}, " for each in sentinels.log).split(around[1])
        assert set(last.split(", ")) <= {"wait", ""}
        return [burst.partition(around[0])[2].count("flush, ") for burst in found]

    return wake


@pytest.mark.parametrize(
    ("clocks_mhz", "highest_mhz", "looks"),
    [
        ([1980], 1980, 1),
        ([KEPT_CLOCK * 1980], 1980, 1),
        ([KEPT_CLOCK * 1980 - 1], 1980, 3),
        ([345, 700, 1400, 1700, 1700], 1980, 5),
        ([345, 700, 1400, 1980, 1980], 1980, 4),
        ([345, 700, 1400, 1980], None, 5),
        ([345, 1000 * (1 - REST_RATIO) + 1, 1000], None, 3),
        ([345, 1000 * (1 - REST_RATIO) - 1, 1000], None, 4),
        ([345, None], 1980, 2),
        ([1000, 1100] * 499, None, 0.2 / 2e-3),  # it is not kept busy for ever
    ],
)
def test_a_gpu_is_kept_busy_until_its_clock_is_steady(
    bursts: Bursts, clocks_mhz: list[float | None], highest_mhz: float | None, looks: int
) -> None:
    first, *others = bursts(clocks_mhz, highest_mhz)
    assert (first, set(others)) == (10, {BURST} if looks > 1 else set())
    assert 1 + len(others) == pytest.approx(looks, abs=looks // 100)


@pytest.mark.parametrize("given", [{"kind": "cpu"}, {"marks": False}, {"wanted": 2}, {"has_room": False}])
def test_only_a_gpu_whose_reps_are_marked_is_woken(bursts: Bursts, given: dict[str, Any]) -> None:
    """And not where the number of warm-up calls is given, or there is no room for a flush."""
    assert bursts(**given) == []


@pytest.mark.parametrize("apart", [PROBE_REPS, 1], ids=["between passes", "within passes"])
def test_kernels_that_never_rest_are_refused_by_name(clock: Clock, apart: int) -> None:
    timer = FakeTimer(clock, lambda number: rep(100, "ab"[number // apart % 2]))
    said = rf"^'softmax' does not launch the same kernels in every call, even after {3 + 10 * MAX_PASSES} calls \("
    with pytest.raises(KernelsDiffer, match=f"{said}.*1 x [ab] only in .*1 x [ab] only in "):
        passes(timer)
    assert timer.sizes == [2 * PROBE_REPS] * MAX_PASSES


@pytest.mark.parametrize("error", [LOST, KernelsDiffer("one call launched nothing")])
def test_a_pass_without_complete_records_is_not_one_of_two_that_agree(clock: Clock, error: GpuBenchError) -> None:
    timer = FakeTimer(clock, lambda number: rep((200, 100)[number >= 5]), [None, error, None])
    warmth = passes(timer)
    assert timer.sizes == [2 * PROBE_REPS, PROBE_REPS, 2 * PROBE_REPS]
    assert (warmth.calls, warmth.sample.remeasured) == (3 + timer.taken, 0)
    assert warmth.sample.reps == timer.sessions[-1].taken[-PROBE_REPS:]


@pytest.mark.parametrize(
    ("errors", "message", "sessions"),
    [
        ([NothingRecorded("'softmax' launched nothing")], "^'softmax' launched nothing$", 1),
        ([LOST] * 99, "a sentinel is missing", MAX_PASSES),  # not KernelsDiffer: the function need not have a branch
    ],
)
def test_passes_that_record_nothing_are_refused(
    clock: Clock, errors: list[GpuBenchError], message: str, sessions: int
) -> None:
    timer = FakeTimer(clock, errors=errors)
    with pytest.raises(type(errors[0]), match=message):
        passes(timer)
    assert timer.sizes == [2 * PROBE_REPS] * sessions
