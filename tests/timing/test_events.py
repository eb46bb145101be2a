"""The events timer, on a fake GPU whose queue follows the launches."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from pytest_gpubench import MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing import events
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.events import EventsTimer, Lap, Lead
from tests.timing.fake_gpu import LAUNCH_US, FakeGpu, gpu, take

__all__ = ["FakeGpu", "gpu"]  # a fixture, and what it gives

HOST_BOUND = "host-bound"
ATTEMPTS = 5
LATE_US = 100.0
LEAST_LEAD_US = 100.0
MOST_LEAD_US = 50_000.0


def call_of(function: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> Call:
    def prepared() -> Prepared:
        prepare()
        return Prepared(function)

    return Call("mine", prepared, function)


def kernels(gpu: FakeGpu, number: int, gpu_us: float, host_us: float = LAUNCH_US) -> Callable[[], None]:
    def launch() -> None:
        for _ in range(number):
            gpu.launch("kernel", gpu_us, host_us)

    return launch


def test_only_the_call_is_between_the_events(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device idles before the flush."""
    monkeypatch.setattr(events, "rest", lambda idle_s: gpu.log.append(f"rest {idle_s}"))
    call = call_of(kernels(gpu, 2, 10), lambda: gpu.launch("prepared", 50))
    (rep,) = take(EventsTimer(cpu_device(), "cold"), call, idle_s=0.002)
    before = ["prepared", "synchronize", "rest 0.002", "flush cold", "sleep", "sentinel 0"]
    assert gpu.log[:11] == [*before, "event", "kernel", "kernel", "event", "sentinel 1"]
    assert set(gpu.log[11:]) == {"synchronize"}
    assert (rep.elapsed_us, rep.host_us) == pytest.approx((20, 10))
    assert (rep.sm_clock_mhz, rep.records, rep.flags) == (1000, (), ())


def test_gaps_of_the_host_are_not_in_the_time(gpu: FakeGpu) -> None:
    slow_host = kernels(gpu, 10, 2, host_us=300)
    timer = EventsTimer(cpu_device(), "hot")
    reps = take(timer, call_of(slow_host), 3)
    assert [rep.elapsed_us for rep in reps if not rep.flags] == pytest.approx([20] * 3)
    assert gpu.log.count("sleep") == 4  # the first was too short, and its rep was taken again
    assert timer.remarks == {}


def test_without_a_lead_the_caller_waits_for_launches(gpu: FakeGpu) -> None:
    timer = EventsTimer(cpu_device(), "cold", ahead=False)
    reps = take(timer, call_of(kernels(gpu, 10, 2)), 2)
    assert [rep.elapsed_us for rep in reps] == pytest.approx([10 * LAUNCH_US + 2] * 2)
    assert "sleep" not in gpu.log
    assert (reps[0].flags, timer.remarks) == ((), {})


def test_a_call_that_waits_is_flagged_and_explained(gpu: FakeGpu) -> None:
    def item() -> None:
        gpu.launch("kernel", 10)
        gpu.synchronize()

    timer = EventsTimer(cpu_device(), "hot")
    reps = take(timer, call_of(item), 4)
    assert [rep.flags for rep in reps] == [(HOST_BOUND,)] * 4
    assert gpu.log.count("kernel") == ATTEMPTS + 3  # what was given up is not tried again
    assert "'mine' waits for the GPU while it is called (.item()" in timer.remarks["mine"]


def test_a_slow_host_is_flagged_and_explained(gpu: FakeGpu) -> None:
    timer = EventsTimer(cpu_device(), "hot")
    reps = take(timer, call_of(kernels(gpu, 1, 10, host_us=1.2 * MOST_LEAD_US)), 2)
    assert [rep.flags for rep in reps] == [(HOST_BOUND,)] * 2
    assert (
        "the host needs 60.0 ms to launch 'mine', longer than the GPU is kept busy for (50 ms" in timer.remarks["mine"]
    )


@pytest.mark.parametrize(("host_us", "flags"), [(0.99 * MOST_LEAD_US, ()), (1.01 * MOST_LEAD_US, (HOST_BOUND,))])
def test_the_longest_lead(gpu: FakeGpu, host_us: float, flags: tuple[str, ...]) -> None:
    (rep,) = take(EventsTimer(cpu_device(), "hot"), call_of(kernels(gpu, 1, 10, host_us)))
    assert rep.flags == flags


def test_one_slow_launch_is_taken_again(gpu: FakeGpu) -> None:
    launches: list[int] = []

    def hiccup() -> None:
        launches.append(1)
        gpu.launch("kernel", 10, 400 if len(launches) == 3 else LAUNCH_US)
        gpu.launch("kernel", 10)

    reps = take(EventsTimer(cpu_device(), "hot"), call_of(hiccup), 4)
    assert [rep.elapsed_us for rep in reps if not rep.flags] == pytest.approx([20] * 4)
    assert [rep.sm_clock_mhz for rep in reps] == [1000, 1001, 1002, 1003]
    assert len(launches) == 5


@pytest.mark.parametrize(("after_us", "refused"), [(0.9 * LATE_US, False), (LATE_US + 10, True)])
def test_work_on_a_stream_that_events_do_not_see(gpu: FakeGpu, after_us: float, refused: bool) -> None:
    def elsewhere() -> None:
        gpu.launch("kernel", 10)
        gpu.elsewhere_us = gpu.done_us + after_us

    said = "on a stream that the current one does not wait for"
    with pytest.raises(MeasurementError, match=said) if refused else nullcontext():
        take(EventsTimer(cpu_device(), "hot"), call_of(elsewhere))


@pytest.mark.parametrize(("late_laps", "calls"), [(0, 1), (1, 2), (ATTEMPTS, ATTEMPTS), (100, ATTEMPTS)])
@pytest.mark.parametrize("waiting_us", [0, 300])
def test_a_lap_tells_of_work_on_a_stream_that_events_do_not_see(
    gpu: FakeGpu, late_laps: int, calls: int, waiting_us: float
) -> None:
    """A slow host, as one whose every line is traced, is none."""
    gpu.waiting_us = waiting_us
    made: list[int] = []

    def elsewhere() -> None:
        made.append(1)
        gpu.launch("kernel", 10)
        gpu.elsewhere_us = gpu.done_us + 300 * (len(made) <= late_laps)

    lap = EventsTimer(cpu_device(), "hot").lap(call_of(elsewhere), 0.0)
    assert len(made) == calls
    assert lap.is_late is (late_laps > 1)
    assert lap.seen_us == pytest.approx(10 + (300 - LATE_US if lap.is_late else 0), abs=3)


def test_calls_learn_apart_whether_the_host_is_ahead(gpu: FakeGpu) -> None:
    timer = EventsTimer(cpu_device(), "hot")
    waiting, quick, slow = call_of(gpu.synchronize), call_of(kernels(gpu, 2, 10)), call_of(kernels(gpu, 1, 1, 1000))
    assert [timer.lap(call, 0.0).ahead for call in (waiting, slow, quick)] == [False, True, True]
    assert timer.remarks == {}
    assert timer.lead_of(slow).lead_us > 1000
    assert timer.lead_of(quick).lead_us == LEAST_LEAD_US


@pytest.mark.parametrize(("in_a_row", "given_up"), [(ATTEMPTS - 1, False), (ATTEMPTS, True)])
def test_only_failures_in_a_row_give_up(in_a_row: int, given_up: bool) -> None:
    lead = Lead()
    for ahead in [*[False] * (ATTEMPTS - 1), True] * 3 + [False] * in_a_row:
        lead.note(Lap(1, LEAST_LEAD_US, 5, 5, ahead, 0))
    assert lead.given_up is given_up
