"""Rounds and reps of one call: orders, what throttles them, lost records, sizes of sessions, and errors of calls."""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench import BadRequest, GpuBenchError, KernelsDiffer, NothingRecorded, ProfilerBusy
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.stats.speedup import round_orders
from pytest_gpubench.timing.base import call_of
from pytest_gpubench.timing.rounds import Arm, Instrument, Interleaved, Sample, take_rounds
from tests.gpu.recording_nvml import Recording
from tests.timing.fakes import (
    HEAT,
    LOST,
    POWER,
    ArmsTimer,
    Clock,
    Counted,
    FakeTimer,
    instrument_of,
    numbered,
    rep,
)

ABBA, BAAB = "ABBA", "BAAB"


def taken_by(
    timer: ArmsTimer,
    orders: Sequence[Sequence[str]],
    *,
    masks: Sequence[int] = (),
    left_s: float = 1e9,
    interleave: bool = True,
    taken: Interleaved | None = None,
) -> Interleaved:
    """Take the rounds and return them, added to those that are there."""
    arms = {name: Arm(call_of(name, lambda: None)) for name in sorted(set(orders[0]))}
    taken = taken or Interleaved({name: Sample() for name in arms})
    take_rounds(instrument_of(timer, masks), arms, orders, taken, left_s, interleave)
    return taken


def times_us(*numbers: int) -> tuple[float, ...]:
    return tuple(numbered(number).elapsed_us for number in numbers)


# the order


@given(st.integers(2, 4), st.integers(1, 30), st.integers(0, 2**32))
def test_every_round_holds_each_arm_twice(arms: int, rounds: int, seed: int) -> None:
    orders = round_orders("ABCD"[:arms], rounds, seed)
    timer = ArmsTimer(Clock())
    taken = taken_by(timer, orders)
    assert timer.names == [name for order in orders for name in order]
    assert len(taken.rounds) == rounds
    for number, (order, readings) in enumerate(zip(orders, taken.rounds, strict=True)):
        for name in order:
            first, last = order.index(name), len(order) - 1 - order[::-1].index(name)
            assert readings[name] == times_us(2 * arms * number + first, 2 * arms * number + last)


def test_rounds_are_added_to_those_that_are_there(clock: Clock) -> None:
    timer = ArmsTimer(clock)
    taken = taken_by(timer, [ABBA])
    assert taken_by(timer, [BAAB], taken=taken) is taken
    assert [readings["A"] for readings in taken.rounds] == [times_us(0, 3), times_us(5, 6)]
    assert taken.samples["A"].samples_us == times_us(0, 3, 5, 6)
    assert taken.samples["B"].samples_us == times_us(1, 2, 4, 7)
    assert taken.quads("A", "B") == [(each["A"], each["B"]) for each in taken.rounds]


# one arm after the other


def test_without_interleaving_each_arm_is_taken_by_itself(clock: Clock) -> None:
    """Throttled reps are kept, and said to be."""
    timer = ArmsTimer(clock)
    taken = taken_by(timer, [ABBA, BAAB, BAAB], interleave=False, masks=[0, POWER])
    assert timer.names_by_session == ["AAAAAABBBBBB"]
    assert [readings["A"] for readings in taken.rounds] == [times_us(0, 1), times_us(2, 3), times_us(4, 5)]
    assert [readings["B"] for readings in taken.rounds] == [times_us(6, 7), times_us(8, 9), times_us(10, 11)]
    assert [(each.throttle_mask, each.discarded) for each in taken.samples.values()] == [(POWER, 0), (0, 0)]
    assert clock.slept_s == []


# sessions of a size that fits


@pytest.mark.parametrize(
    ("max_reps", "interleave", "sizes"),
    [
        (40, True, [20]),
        (39, True, [16, 4]),
        (10, True, [4] * 5),
        (20, False, [20]),
        (19, False, [16, 4]),
        (8, False, [8, 8, 4]),
    ],
)
def test_rounds_that_a_session_cannot_hold_are_split(
    clock: Clock, max_reps: int, interleave: bool, sizes: list[int]
) -> None:
    """Half of a session is left for rounds that have to be taken again, where they are."""
    timer = ArmsTimer(clock, max_reps=max_reps)
    taken = taken_by(timer, [ABBA, BAAB] * 2 + [ABBA], interleave=interleave)
    assert timer.sizes == sizes
    assert len(taken.rounds) == 5
    assert [len(sample.reps) for sample in taken.samples.values()] == [10] * 2


@settings(max_examples=25)  # each takes sessions of a hundred reps
@given(st.integers(1, 12), st.integers(2, 3), st.booleans(), st.integers(0, 3), st.lists(st.booleans(), max_size=30))
def test_no_session_is_overfilled(rounds: int, arms: int, interleave: bool, spare: int, throttled: list[bool]) -> None:
    """However much is throttled: the records of a session that is too long would be lost."""
    timer = ArmsTimer(Clock(), max_reps=4 * arms * (1 + spare))
    orders = round_orders("ABC"[:arms], rounds, 0)
    taken = taken_by(timer, orders, interleave=interleave, masks=[POWER * one for one in throttled])
    assert max(timer.sizes) <= timer.max_reps
    assert len(taken.rounds) == rounds
    for sample in taken.samples.values():
        assert len(sample.reps) == 2 * rounds
    assert sum(len(sample.reps) + sample.discarded for sample in taken.samples.values()) == timer.taken


# throttling


def test_a_throttled_round_is_taken_again_until_it_is_clean_with_growing_pauses(clock: Clock) -> None:
    """Those that were throttled are dropped and counted."""
    timer = ArmsTimer(clock)
    taken = taken_by(timer, [BAAB, ABBA], masks=([0] * 3 + [HEAT] + [0] * 4) + ([0] * 3 + [HEAT]) * 5)
    assert timer.names_by_session == [BAAB + ABBA + BAAB * 6]
    assert taken.rounds == [{"A": times_us(4, 7), "B": times_us(5, 6)}, {"B": times_us(28, 31), "A": times_us(29, 30)}]
    assert taken.samples["B"].samples_us == times_us(5, 6, 28, 31)
    assert clock.slept_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert {(sample.discarded, sample.throttle_mask) for sample in taken.samples.values()} == {(12, 0)}


@pytest.mark.parametrize("left_s", [0.0, -5.0, 0.05])
def test_without_time_left_throttled_rounds_are_kept_and_said_to_be(clock: Clock, left_s: float) -> None:
    taken = taken_by(ArmsTimer(clock), [ABBA, BAAB], masks=[0, POWER], left_s=left_s)
    assert [(each.throttle_mask, each.discarded) for each in taken.samples.values()] == [(0, 0), (POWER, 0)]
    assert [one.reading.throttle_mask for one in taken.samples["B"].reps] == [POWER, None, None, None]
    assert (len(taken.rounds), clock.slept_s) == (2, [])


def test_clean_rounds_are_kept_before_throttled_ones(clock: Clock) -> None:
    """There is time for one more round, which is clean: of two throttled ones, one has to stay."""
    taken = taken_by(ArmsTimer(clock), [ABBA, BAAB], masks=[POWER] * 8, left_s=0.15)
    assert [readings["A"] for readings in taken.rounds] == [times_us(0, 3), times_us(8, 11)]
    assert taken.samples["A"].throttle_mask == POWER
    assert [sample.discarded for sample in taken.samples.values()] == [2, 2]


def test_all_sessions_share_the_time(clock: Clock) -> None:
    """The arms may differ in their kernels."""
    timer = ArmsTimer(clock, lambda name, number: rep(10, {"A": "xy", "B": "z"}[name]), max_reps=8)
    taken_by(timer, [ABBA] * 10, masks=[POWER] * 80, left_s=0.35)
    assert clock.slept_s == pytest.approx([0.1] * 3)
    assert timer.sizes == [8] * 3 + [4] * 7


@pytest.mark.parametrize("settles", [True, False])
def test_the_gpu_is_read_unless_the_times_are_not_its(settles: bool) -> None:
    """A throttled GPU says nothing of times that somebody gave."""
    device, timer = replace(cpu_device(), nvml=Nvml(Recording(answers={"Temperature": 60}), None)), ArmsTimer(Clock())
    timer.settles = settles  # type: ignore[misc] # a constant of real timers
    assert (Instrument.on(device, timer).watch().temperature_c == 60) is settles


# reps of one call

ATTEMPTS = 3


def batch(
    timer: FakeTimer,
    wanted: int,
    *,
    masks: Sequence[int] = (),
    sample: Sample | None = None,
    function: Callable[[], object] = lambda: None,
    attempts: int = ATTEMPTS,
) -> Sample:
    sample = Sample() if sample is None else sample
    arms, taken = {"softmax": Arm(call_of("softmax", function))}, Interleaved({"softmax": sample})
    take_rounds(instrument_of(timer, masks), arms, [("softmax",)] * wanted, taken, 1e9, attempts=attempts)
    return sample


def numbers(sample: Sample) -> list[int]:
    """Return which of all the reps that were taken are in the sample."""
    return [round(1024 * (taken.elapsed_us - 100)) for taken in sample.reps]


def test_a_session_that_is_full_keeps_throttled_reps(clock: Clock) -> None:
    """And what was kept before stays."""
    timer = ArmsTimer(clock, max_reps=10)
    sample = batch(timer, 8, masks=[POWER] * 5, sample=Sample([numbered(99)], throttle_mask=HEAT, discarded=3))
    assert numbers(sample) == [99, 0, 1, 2, 5, 6, 7, 8, 9]
    assert (sample.discarded, sample.throttle_mask) == (3 + 2, HEAT | POWER)
    assert timer.sizes == [10]


# records that are not complete, kernels that differ


@pytest.mark.parametrize("failures", [1, 2])
def test_a_session_whose_records_are_lost_is_taken_again(clock: Clock, failures: int) -> None:
    timer = FakeTimer(clock, errors=[LOST] * failures)
    sample = batch(timer, 4, masks=[POWER])
    assert sample.remeasured == failures
    assert timer.sizes == [5, *[4] * failures]
    assert numbers(sample) == list(range(timer.taken - 4, timer.taken))
    assert (sample.discarded, sample.throttle_mask) == (0, 0)  # what was thrown away does not count


@pytest.mark.parametrize("error", [LOST, KernelsDiffer("one call launched nothing")])
@pytest.mark.parametrize(("attempts", "times"), [(3, "3 times"), (1, "1 time")])
def test_it_gives_up_after_so_many_attempts(clock: Clock, error: GpuBenchError, attempts: int, times: str) -> None:
    timer = FakeTimer(clock, errors=[error] * 9)
    sample = Sample([numbered(0)])
    with pytest.raises(type(error)) as caught:
        batch(timer, 4, sample=sample, attempts=attempts)
    assert str(caught.value) == f"{error} (measured {times})"
    assert caught.value.__suppress_context__
    assert timer.sizes == [4] * attempts
    assert (numbers(sample), sample.remeasured) == ([0], attempts - 1)


@pytest.mark.parametrize(
    ("kernels", "first", "difference"),
    [
        (["ab", "ab", "abc"], None, "rep 1 and rep 3 differ, 1 x c only in the other"),
        (["aab", "ab", "ab"], None, "rep 1 and rep 2 differ, 1 x a only in one"),
        (["ab", "ab", "ab"], "ac", "1 x c only in one; 1 x b only in the other"),
        (["a", "abb", "a"], None, "rep 1 and rep 2 differ, 2 x b only in the other;"),
        (["abcd", "", ""], None, "1 x a only in one; 1 x b only in one; 1 x c only in one; 1 x d only in one;"),
        (
            ["abc", "de", "abc"],
            None,
            "1 x a only in one; 1 x b only in one; 1 x c only in one; 1 x d only in the other; ...;",
        ),
    ],
)
def test_kernels_that_differ_within_or_between_batches_are_refused(
    clock: Clock, kernels: list[str], first: str | None, difference: str
) -> None:
    """No two samples would mean the same thing."""
    timer = FakeTimer(clock, lambda number: rep(9, kernels[number % 3]))
    sample = Sample([rep(9, first)] if first else [])
    with pytest.raises(KernelsDiffer, match=r"^'softmax' does not launch the same kernels in every call: ") as caught:
        batch(timer, 3, sample=sample)
    assert difference in str(caught.value)
    assert str(caught.value).endswith("does it autotune, cache or branch? (measured 3 times)")
    assert (len(sample.reps), sample.remeasured) == (1 if first else 0, 2)


# garbage collection, exceptions


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def was_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    gc.enable() if request.param else gc.disable()
    yield request.param
    gc.enable()


@pytest.mark.parametrize(
    ("errors", "sessions"),
    [([], 1), ([LOST], 2), ([LOST] * 3, 3), *(([error("no")], 1) for error in (NothingRecorded, ProfilerBusy))],
)
def test_garbage_is_not_collected_between_reps(
    clock: Clock, was_on: bool, errors: list[Exception], sessions: int
) -> None:
    """However often a session is taken; what another attempt would not change is raised at once."""
    timer = FakeTimer(clock, errors=errors)
    with contextlib.suppress(GpuBenchError):
        batch(timer, 4)
    assert [session.collecting for session in timer.sessions] == [[False] * 4] * sessions
    assert gc.isenabled() is was_on


@pytest.mark.parametrize(
    "error", [ValueError("broken"), BadRequest("what?"), ProfilerBusy("another one"), KeyboardInterrupt()]
)
def test_what_the_function_raises_goes_through_and_leaves_everything_as_it_was(
    clock: Clock, was_on: bool, error: BaseException
) -> None:
    timer, function, sample = FakeTimer(clock), Counted({7: error}), Sample([numbered(0)])
    with pytest.raises(type(error)) as caught:
        batch(timer, 9, function=function, sample=sample)
    assert caught.value is error
    assert hasattr(error, "__notes__") is (type(error) is ValueError), "the others are not the function's fault"
    assert function.calls == 7
    assert [session.left for session in timer.sessions] == [True]
    assert gc.isenabled() is was_on
    assert (numbers(sample), sample.remeasured) == ([0], 0)


@pytest.mark.parametrize(
    ("sample", "number"), [(Sample(), 7), (Sample([numbered(0)] * 5), 12), (Sample([numbered(0)] * 5, discarded=2), 14)]
)
def test_an_exception_says_in_which_rep_it_was_raised(clock: Clock, sample: Sample, number: int) -> None:
    """Of all the batches together."""
    error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        batch(FakeTimer(clock), 9, function=Counted({7: error}), sample=sample)
    assert getattr(error, "__notes__", []) == [f"gpu_bench: raised in rep {number} of 'softmax'"]
