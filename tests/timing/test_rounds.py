"""Rounds: shuffled orders, throttled rounds taken again, and the size of sessions."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.stats.speedup import round_orders
from pytest_gpubench.timing.base import call_of
from pytest_gpubench.timing.rounds import Arm, Instrument, Interleaved, Sample, take_rounds
from tests.gpu.recording_nvml import Recording
from tests.timing.fakes import HEAT, POWER, ArmsTimer, Clock, instrument_of, numbered, rep

ABBA, BAAB = "ABBA", "BAAB"


def arms_of(names: str, function: Callable[[], object] = lambda: None) -> dict[str, Arm]:
    return {name: Arm(call_of(name, function)) for name in names}


def taken_by(
    timer: ArmsTimer,
    orders: Sequence[Sequence[str]],
    *,
    masks: Sequence[int] = (),
    left_s: float = 1e9,
    interleave: bool = True,
    function: Callable[[], object] = lambda: None,
    taken: Interleaved | None = None,
) -> Interleaved:
    """Take the rounds and return them, added to those that are there."""
    names = "".join(sorted(set(orders[0])))
    taken = taken or Interleaved({name: Sample() for name in names})
    arms = arms_of(names, function)
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
    timer = ArmsTimer(clock)
    taken = taken_by(timer, [ABBA, BAAB, BAAB], interleave=False)
    assert timer.names_by_session == ["AAAAAABBBBBB"]
    assert [readings["A"] for readings in taken.rounds] == [times_us(0, 1), times_us(2, 3), times_us(4, 5)]
    assert [readings["B"] for readings in taken.rounds] == [times_us(6, 7), times_us(8, 9), times_us(10, 11)]


def test_without_interleaving_throttled_reps_are_kept_and_said_to_be(clock: Clock) -> None:
    taken = taken_by(ArmsTimer(clock), [ABBA, ABBA], interleave=False, masks=[0, POWER])
    assert (taken.samples["A"].throttle_mask, taken.samples["B"].throttle_mask) == (POWER, 0)
    assert [sample.discarded for sample in taken.samples.values()] == [0, 0]
    assert clock.slept_s == []


# sessions of a size that fits


@pytest.mark.parametrize(
    ("max_reps", "interleave", "sizes"),
    [
        (1000, True, [20]),
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
@given(
    st.integers(1, 12),
    st.integers(2, 3),
    st.booleans(),
    st.integers(0, 3),
    st.lists(st.booleans(), max_size=30),
)
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


def test_a_throttled_round_is_taken_again_and_dropped(clock: Clock) -> None:
    timer = ArmsTimer(clock)
    taken = taken_by(timer, [ABBA, BAAB], masks=[0, 0, POWER])
    assert timer.names_by_session == [ABBA + BAAB + ABBA]
    assert [readings["A"] for readings in taken.rounds] == [times_us(5, 6), times_us(8, 11)]
    assert taken.samples["B"].samples_us == times_us(4, 7, 9, 10)
    assert {(sample.discarded, sample.throttle_mask) for sample in taken.samples.values()} == {(2, 0)}
    assert clock.slept_s == [0.1]


def test_a_round_is_taken_again_until_it_is_clean_with_growing_pauses(clock: Clock) -> None:
    timer = ArmsTimer(clock)
    taken = taken_by(timer, [BAAB], masks=([0] * 3 + [HEAT]) * 6)
    assert timer.names_by_session == [BAAB * 7]
    assert taken.rounds == [{"B": times_us(24, 27), "A": times_us(25, 26)}]
    assert clock.slept_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert [sample.discarded for sample in taken.samples.values()] == [12, 12]


@pytest.mark.parametrize("left_s", [0.0, -5.0, 0.05])
def test_without_time_left_throttled_rounds_are_kept_and_said_to_be(clock: Clock, left_s: float) -> None:
    taken = taken_by(ArmsTimer(clock), [ABBA, BAAB], masks=[0, POWER], left_s=left_s)
    assert len(taken.rounds) == 2
    assert (taken.samples["A"].throttle_mask, taken.samples["B"].throttle_mask) == (0, POWER)
    assert [sample.discarded for sample in taken.samples.values()] == [0, 0]
    assert clock.slept_s == []


def test_clean_rounds_are_kept_before_throttled_ones(clock: Clock) -> None:
    """There is time for one more round, which is clean: of two throttled ones, one has to stay."""
    taken = taken_by(ArmsTimer(clock), [ABBA, BAAB], masks=[POWER] * 8, left_s=0.15)
    assert [readings["A"] for readings in taken.rounds] == [times_us(0, 3), times_us(8, 11)]
    assert taken.samples["A"].throttle_mask == POWER
    assert [sample.discarded for sample in taken.samples.values()] == [2, 2]


def test_all_sessions_share_the_time(clock: Clock) -> None:
    timer = ArmsTimer(clock, max_reps=8)
    taken_by(timer, [ABBA] * 10, masks=[POWER] * 80, left_s=0.35)
    assert clock.slept_s == pytest.approx([0.1] * 3)
    assert timer.sizes == [8] * 3 + [4] * 7


# what is not complete


def test_arms_may_differ_in_their_kernels(clock: Clock) -> None:
    taken = taken_by(ArmsTimer(clock, lambda name, number: rep(10, {"A": "xy", "B": "z"}[name])), [ABBA])
    assert [len(sample.reps[0].records) for sample in taken.samples.values()] == [2, 1]


# what is read after each rep


def test_each_arm_keeps_what_was_read_after_its_own_reps(clock: Clock) -> None:
    """In the order of its reps; a round that was thrown away leaves none."""
    timer = ArmsTimer(clock)
    taken = taken_by(timer, [ABBA, BAAB], masks=[0, POWER, 0, 0, 0, 0, 0, 0])
    for sample in taken.samples.values():
        assert [one.reading.throttle_mask for one in sample.reps][:2] == [0, 0]
        assert len(sample.reps) == 4
    held = taken_by(ArmsTimer(clock), [ABBA], masks=[0, POWER, HEAT, 0], left_s=0.0)
    assert [one.reading.throttle_mask for one in held.samples["A"].reps] == [0, 0]
    assert [one.reading.throttle_mask for one in held.samples["B"].reps] == [POWER, HEAT]


@pytest.mark.parametrize("settles", [True, False])
def test_the_gpu_is_read_unless_the_times_are_not_its(settles: bool) -> None:
    """A throttled GPU says nothing of times that somebody gave."""
    device, timer = replace(cpu_device(), nvml=Nvml(Recording(answers={"Temperature": 60}), None)), ArmsTimer(Clock())
    timer.settles = settles  # type: ignore[misc] # a constant of real timers
    assert (Instrument.on(device, timer).watch().temperature_c == 60) is settles
