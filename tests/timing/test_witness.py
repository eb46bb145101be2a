"""Two events around a call: what they show beyond its records, and what they cannot tell."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_gpubench import IncompleteRecords
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.events import Lap
from pytest_gpubench.timing.measurement import Plan, measure_call
from pytest_gpubench.timing.witness import Witness
from tests.timing.fakes import ArmsTimer, Clock, call_of, rep
from tests.timing.test_regions import FakeGpu, gpu, timer_of  # noqa: F401 # a fixture

PROBE_REPS = 5
ATTEMPTS = 3
LATE_US = 100.0
EVENTS_US = 5.0
GAPS_MARGIN = 2.0
GAP_US = 4.0
LAPS = 3
MOST_NOOPS = 100
MOST_SHARE = 0.25

INSIDE_US = 100 * (1 + MOST_SHARE) + EVENTS_US + GAP_US
"""The longest time between events that one kernel of 100 us explains."""
LONG_US = 1000.0


def windowed(elapsed_us: float, window_us: float = LONG_US, kernels: str = "a") -> Rep:
    return replace(rep(elapsed_us, kernels), window_us=window_us)


def lap(elapsed_us: float, ahead: bool = True, late_us: float = 5.0) -> Lap:
    return Lap(elapsed_us, 100, 5, 6, ahead, late_us)


def nothing() -> None:
    pass


@dataclass
class Machine:
    """Times calls between events as `play` makes their numbers.

    Kernels that do nothing take `noop_us` each, and so do the events themselves.
    """

    play: Callable[[int], Lap]
    noop_us: float = 1.3
    again: Sequence[Rep] = ()
    """What new reps are; none are the ones that were taken."""
    queued_us: float = LONG_US
    """The time between the sentinels of a rep that is queued as a whole."""
    noops_ahead: bool = True
    noops: int = 0
    laps: int = 0
    taken_again: int = 0
    idles_s: list[float] = field(default_factory=list)

    def lap(self, call: Call, idle_s: float) -> Lap:
        if call.label == "noop":
            before = self.noops
            call.prepare()()
            return lap(self.noop_us * (1 + self.noops - before), self.noops_ahead)
        self.idles_s.append(idle_s)
        self.laps += 1
        return self.play(self.laps)

    def launch_noop(self) -> None:
        self.noops += 1

    def check(self, reps: Sequence[Rep], known_us: Sequence[float] = ()) -> None:
        def reps_again(call: Call, idle_s: float) -> Sequence[Rep]:
            self.idles_s.append(idle_s)
            self.taken_again += 1
            return self.again or reps

        queued: Sequence[Rep] = [windowed(100, self.queued_us)]
        Witness(self.lap, reps_again, lambda call, idle_s: queued, self.launch_noop).check(
            call_of(nothing), reps, 0.25, known_us
        )


def check(refused: bool, machine: Machine, *reps: Rep, known_us: Sequence[float] = ()) -> None:
    with pytest.raises(IncompleteRecords) if refused else nullcontext():
        machine.check(reps, known_us)


@pytest.fixture(autouse=True)
def quick(clock: Clock) -> None:
    """No pause takes time."""


@pytest.mark.parametrize(
    ("kernels", "recorded_us", "seen", "refused"),
    [
        ("a", 1.26, lap(3.8), False),  # an add of 32 KiB on an H200
        ("a", 1.89, lap(5.9), False),
        ("a" * 12, 11.8, lap(28.6), False),
        ("a" * 9, 695.3, lap(712.0), False),
        ("a", 100, lap(INSIDE_US), False),
        ("a", 100, lap(INSIDE_US + 0.01), True),
        ("aaa", 100, lap(INSIDE_US + 2 * GAP_US), False),
        ("aaa", 100, lap(INSIDE_US + 2 * GAP_US + 0.01), True),
        ("a", 3, lap(100), True),  # a kernel of one thread that launches the others
        ("a", 3, lap(1e6, ahead=False), False),  # it waits, or its host is slow: the events see that too
        ("ab", 500, lap(3, late_us=LATE_US + 500), False),  # on a stream that nobody waits for
        ("a", 3, lap(3, late_us=LATE_US + 500), True),
        ("a", 3, lap(3, late_us=LATE_US + 9), False),
        ("ab", 500, lap(260), False),  # side by side
    ],
)
def test_what_events_show_beyond_the_records(kernels: str, recorded_us: float, seen: Lap, refused: bool) -> None:
    reps = [windowed(recorded_us, LONG_US + recorded_us, kernels)] * 5
    check(refused, Machine(lambda number: seen), *reps)


@pytest.mark.parametrize(
    ("queued_us", "late_us", "refused"),
    [
        (INSIDE_US, 5.0, False),
        (INSIDE_US + 0.01, 5.0, True),
        (101, LATE_US + 500, True),  # on a stream that nobody waits for, the work goes on behind the last sentinel
    ],
)
def test_reps_that_were_queued_as_a_whole_have_the_last_word(queued_us: float, late_us: float, refused: bool) -> None:
    seen = lap(400, late_us=late_us)
    check(refused, Machine(lambda number: seen, queued_us=queued_us), *[windowed(100)] * 5)


def test_the_message() -> None:
    with pytest.raises(IncompleteRecords) as caught:
        Machine(lambda number: lap(100 - number)).check([windowed(3)] * 5)
    shortest_us = 100 - LAPS * ATTEMPTS
    assert str(caught.value).startswith(
        f"'softmax' keeps the GPU busy for {shortest_us:.2f} us, by two events around it, but the profiler records "
        "1 kernel of 3.000 us together: it does not see work that the GPU launches itself"
    )
    assert str(caught.value).endswith("(measured 3 times); use timer='events', which times all of it")


FULL, EMPTY = windowed(100, INSIDE_US), windowed(100, INSIDE_US + 0.01)
AT_ONCE = tuple(replace(each, start_ns=0, end_ns=50_000) for each in rep(100, "ab").records)


@pytest.mark.parametrize(
    ("reps", "laps"),
    [
        ((), 0),
        ((FULL, EMPTY, FULL), 0),  # half of the reps have to fill their windows
        ((FULL, EMPTY, EMPTY), LAPS * ATTEMPTS),
        ((windowed(100, kernels=""), EMPTY, EMPTY), LAPS * ATTEMPTS),  # a call that launches something now and then
        ((windowed(100, 130, "ab"),), 0),
        ((replace(windowed(100, 130, "ab"), records=AT_ONCE),), LAPS * ATTEMPTS),  # their sum would leave no room
    ],
)
def test_records_that_fill_their_window_need_no_events(reps: Sequence[Rep], laps: int) -> None:
    machine = Machine(lambda number: lap(LONG_US))
    check(laps > 0, machine, *reps)
    assert machine.laps == laps


@pytest.mark.parametrize(("known_us", "laps"), [((500.0, INSIDE_US), 0), ((500.0, INSIDE_US + 0.01), 1), ((), 1)])
def test_laps_of_the_tracing_tax_are_not_taken_again(known_us: Sequence[float], laps: int) -> None:
    machine = Machine(lambda number: lap(104))
    check(False, machine, *[windowed(100)] * 5, known_us=known_us)
    assert machine.laps == laps


@pytest.mark.parametrize("quick_lap", [1, LAPS, LAPS + 1, LAPS * ATTEMPTS, LAPS * ATTEMPTS + 1])
def test_one_lap_without_more_work_is_enough(quick_lap: int) -> None:
    """Others of the same call, or another process, used the GPU in those before it."""
    machine = Machine(lambda number: lap(104 if number == quick_lap else LONG_US))
    check(quick_lap > LAPS * ATTEMPTS, machine, *[windowed(100)] * 5)
    assert machine.laps == min(quick_lap, LAPS * ATTEMPTS)
    assert set(machine.idles_s) == {0.25}


def test_an_error_of_the_call_says_where_it_was_raised() -> None:
    def broken(number: int) -> Lap:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        Machine(broken).check([windowed(100)])
    assert getattr(caught.value, "__notes__", None) == ["gpu_bench: raised in 'softmax', called between two events"]


@pytest.mark.parametrize(
    ("long_reps", "again", "taken_again"),
    [
        (0, [windowed(500)] * 3, 1),  # it has become slower
        (1, (), ATTEMPTS - 1),  # it may take as long as one in ten
        (2, (), 0),
    ],
)
def test_a_call_that_is_recorded_as_slow_too_is_not_refused(
    long_reps: int, again: Sequence[Rep], taken_again: int
) -> None:
    machine = Machine(lambda number: lap(500), again=again)
    check(taken_again > 1, machine, *[windowed(500)] * long_reps, *[windowed(100)] * (11 - long_reps))
    assert machine.taken_again == taken_again


@pytest.mark.parametrize(
    ("noop_us", "noops_ahead", "seen_us", "refused"),
    [
        (25 / GAPS_MARGIN, True, 174.9, False),  # launches are slow here, as under Windows
        (25 / GAPS_MARGIN, True, 175.1, True),
        (0.0, True, 175.1, True),
        (0.0, False, 175.1, False),
    ],
)
def test_what_launches_take_on_this_machine_is_no_work(
    noop_us: float, noops_ahead: bool, seen_us: float, refused: bool
) -> None:
    machine = Machine(lambda number: lap(seen_us), noop_us, noops_ahead=noops_ahead)
    check(refused, machine, *[windowed(100)] * 5)
    assert machine.noops == LAPS


@pytest.mark.parametrize("launches", [MOST_NOOPS, 10 * MOST_NOOPS])
def test_many_launches_are_counted_by_fewer(launches: int) -> None:
    machine = Machine(lambda number: lap(10 * LONG_US), noop_us=10.0)
    check(launches == MOST_NOOPS, machine, *[windowed(1, LONG_US * 20, "a" * launches)] * 5)
    assert machine.noops == LAPS * MOST_NOOPS


# in a measurement


def test_the_window_of_a_rep_holds_what_is_not_recorded(gpu: FakeGpu) -> None:  # noqa: F811
    """A fake GPU on which 70 us pass between two kernels of 5 us; the timer is told the laps of the tax."""

    def hiding() -> None:
        gpu.launch("parent", 5_000)
        gpu.free_ns += 70_000
        gpu.wait()
        gpu.launch("last", 5_000)

    timer, call, told = timer_of(gpu), call_of(lambda: gpu.launch("all", 7_000)), list[Any]()
    with timer.session() as session:
        session.take(call_of(hiding), 0)
        session.take(call, 0)
    assert [(taken.elapsed_us, taken.window_us) for taken in session.reps()] == [(10, 80), (7, 7)]
    timer.witness = cast(Any, SimpleNamespace(check=lambda *given: told.append(given)))
    timer.cross_check(call, (), 0.0)
    timer.taxes.outside_us[call.label, id(call.function)] = [7.0]
    timer.cross_check(call, [rep(7)], 0.5)
    assert told == [(call, (), 0.0, ()), (call, [rep(7)], 0.5, [7.0])]
    assert [each.elapsed_us for each in timer._reps_again(call, 0.0)] == [7.0] * PROBE_REPS


PLAN = Plan("cold", 20, None, 0.01, 10.0)


class Checking(ArmsTimer):
    """Refuse a call by its label; note the labels and reps that were to be checked."""

    def __init__(self, clock: Clock, refused: str) -> None:
        super().__init__(clock)
        self.refused, self.found = refused, list[tuple[str, int]]()

    def cross_check(self, call: Call, reps: Sequence[Rep], idle_s: float) -> None:
        self.found.append((call.label, len(reps)))
        if call.label == self.refused:
            raise IncompleteRecords("work is missing")


@pytest.mark.parametrize("refused", ["", "softmax"])
def test_a_measurement_is_checked_once(clock: Clock, refused: str) -> None:
    timer = Checking(clock, refused)
    with pytest.raises(IncompleteRecords) if refused else nullcontext():
        measure_call(call_of(nothing), timer, cpu_device(), PLAN, lambda timing: True, lambda text: None)
    assert timer.found == [("softmax", 20)]


@pytest.mark.parametrize("interleave", [True, False])
@pytest.mark.parametrize("refused", ["", "A", "B"])
def test_each_arm_of_a_comparison_is_checked_once(clock: Clock, refused: str, interleave: bool) -> None:
    timer = Checking(clock, refused)
    match = Match({name: replace(call_of(nothing), label=name) for name in "AB"}, "A", 3, interleave)
    with pytest.raises(IncompleteRecords) if refused else nullcontext():
        measure_in_turn(match, timer, cpu_device(), PLAN, lambda taken, looks: True, lambda text: None)
    assert timer.found == [("A", 20), ("B", 20)][: 1 if refused == "A" else 2]
