"""A saved call and today's in turn: what they share, when they are one, and when there is nothing to compare."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import pytest
import torch

from pytest_gpubench.replay import comparison
from pytest_gpubench.replay.call_data import CallData, Region
from pytest_gpubench.replay.capture import CapturedCall
from pytest_gpubench.replay.comparison import ReplayedPair, is_same, refuse_other_inputs, shared_memory
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.replayed import memory_for
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.verdict.replays import Replay
from tests.replay.fake_graphs import FakeFunction
from tests.replay.image_files import image_of
from tests.replay.on_cpu import IMAGE, OTHER, N, OnCpu, floats_at, numbers, with_node
from tests.timing.fakes import ArmsTimer, Clock, rep

TWO_PERCENT = parse_tolerance("median:2%")


def compared(
    on_cpu: OnCpu,
    saved: CapturedCall,
    monkeypatch: pytest.MonkeyPatch,
    times_us: Callable[[int, str], float] = lambda number, arm: 10.0,
    reps: int | None = None,
) -> tuple[Replay, list[ArmsTimer]]:
    """Return what a comparison with today's call finds, and a timer for each time that both were timed.

    times_us: the time of an arm, in the n-th comparison.
    """
    timers: list[ArmsTimer] = []

    def make_timer(*args: object) -> ArmsTimer:
        number = len(timers)
        timers.append(ArmsTimer(Clock(), lambda name, at: rep(times_us(number, name) * (1 + 1e-4 * (at % 3)))))
        return timers[-1]

    monkeypatch.setattr(comparison, "make_timer", make_timer)
    x = numbers().add_(1)
    call = on_cpu.call(x, on_cpu.y)
    pair = ReplayedPair(saved, on_cpu.captured(call=call), call, on_cpu.device, on_cpu.builder)
    plan = Plan("cold", reps, None, 0.005, 1e9)
    found = pair.compare(TWO_PERCENT, replace(Settings(), reps=reps), plan, lambda text: None)
    assert x.tolist() == [each + 1.0 for each in range(N)]
    assert (on_cpu.cuda.modules, on_cpu.cuda.executables) == ({}, {})
    return found, timers


def test_the_same_call_runs_the_same_code_in_regions_of_one_size(on_cpu: OnCpu) -> None:
    """Line numbers are no code."""
    images = [
        image_of({".text.scale": code, ".debug_line": line})
        for code, line in ((b"1", b"1"), (b"1", b"2"), (b"2", b"1"))
    ]
    one, other_lines, other_code = map(on_cpu.captured, images)
    assert is_same(one, other_lines)
    assert not is_same(one, other_code)
    *inputs, own = one.data.regions
    larger = (*inputs, msgspec.structs.replace(own, bytes=2 * own.bytes))
    assert not is_same(one, replace(one, data=msgspec.structs.replace(one.data, regions=larger)))


def test_another_image_is_timed_in_turn_and_the_same_one_is_not(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its inputs lie elsewhere in the two processes."""
    assert compared(on_cpu, on_cpu.captured(), monkeypatch) == (Replay(None), [])
    found, [timer] = compared(on_cpu, on_cpu.captured(OTHER), monkeypatch)
    assert found.found is not None
    assert found.found.ratio == pytest.approx(1, abs=1e-3)
    assert (found.doubt, found.notes) == ("", ())
    assert (found.old_us, found.new_us) == pytest.approx((10, 10), rel=1e-3)
    assert {"saved", "today"} == set(timer.names)


@pytest.mark.parametrize(("slower", "timed"), [(1.019, 1), (1.022, 2)])
def test_a_slower_call_is_timed_in_other_memory_too(
    slower: float, timed: int, on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = on_cpu.captured(OTHER)
    found, timers = compared(on_cpu, saved, monkeypatch, lambda number, arm: 10 * (slower if arm == "today" else 1))
    assert len(timers) == timed
    assert on_cpu.cuda.loaded == [OTHER, IMAGE, IMAGE, OTHER][: 2 * timed]  # the second time the other way round
    assert found.doubt == ""
    assert found.found is not None
    assert 1 / found.found.ratio == pytest.approx(slower, abs=1e-3)


@pytest.mark.parametrize("elsewhere", [Outcome.PASS, Outcome.INCONCLUSIVE])
def test_a_call_that_is_slower_only_here_is_in_doubt(
    elsewhere: Outcome, on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Replay(SpeedupEstimate(0.9, None, 24, 0.001))
    outcomes = iter([Outcome.FAIL, elsewhere])
    monkeypatch.setattr(comparison, "time_in_turn", lambda *args: (replay, next(outcomes)))
    found, _ = compared(on_cpu, on_cpu.captured(OTHER), monkeypatch)
    assert (found.found, found.doubt) == (replay.found, "but not in other memory")
    assert next(outcomes, None) is None


def test_a_fixed_number_of_reps_is_taken_once(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = on_cpu.captured(OTHER)
    _, timers = compared(on_cpu, saved, monkeypatch, lambda number, arm: 12 if arm == "today" else 10, reps=40)
    assert len(timers) == 1


def test_a_saved_call_that_computes_something_else_is_said(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = on_cpu.captured(OTHER)
    on_cpu.cuda.images[OTHER] = [FakeFunction("twice", (8, 8, 8, 4))]

    def twice(x: int, y: int, out: int, factor: int) -> None:
        floats_at(out).copy_(2 * floats_at(x))

    on_cpu.cuda.kernels["twice"] = twice
    kernel = saved.data.graph.nodes[0].kernel
    assert kernel is not None
    saved = with_node(saved, kernel=msgspec.structs.replace(kernel, symbol="twice"))
    found, _ = compared(on_cpu, saved, monkeypatch)
    (note,) = found.notes
    assert note.startswith("scale does not compute what the saved call does: ")


# what cannot be compared


def different(data: CallData) -> Iterator[tuple[CallData, str]]:
    """Yield calls that cannot be given the inputs of this one, each with the reason."""
    change = msgspec.structs.replace
    x, y = data.inputs
    yield change(data, capability=(8, 0)), r"it was compiled for compute capability 8\.0, and this GPU has 9\.0"
    yield change(data, capability=(10, 0)), r"it was compiled for compute capability 10\.0, and this GPU has 9\.0"
    yield change(data, numbers=("args[2]=5",)), r"it was given args\[2\]=5, and is given none now"
    other_shape = change(data, inputs=(change(x, shape=(4, 2), strides=(2, 1)), y))
    yield other_shape, r"args\[0\] was a tensor of float32 \[4, 2\], and is another one now"
    yield change(data, inputs=(change(x, dtype="int32"), y)), r"args\[0\] was a tensor of int32"
    yield change(data, inputs=(change(x, name="args[9]"), y)), r"args\[9\] was a tensor"
    first, *others = data.regions
    yield change(data, regions=(change(first, misalignment=8), *others)), r"args\[0\] lay in memory of another size"
    yield change(data, regions=(change(first, bytes=64), *others)), r"args\[0\] lay in memory of another size or ali"


@pytest.mark.parametrize("number", range(8))
def test_a_call_that_was_given_something_else_is_not_compared(number: int, on_cpu: OnCpu) -> None:
    data = on_cpu.captured().data
    refuse_other_inputs(data, data)
    other, reason = list(different(data))[number]
    with pytest.raises(NotReplayable, match=f"^{reason}"):
        refuse_other_inputs(other, data)


def test_both_use_the_same_memory_where_it_fits(on_cpu: OnCpu) -> None:
    data = on_cpu.captured().data
    device = torch.device("cpu")
    memory = memory_for(data.regions, device)
    assert [each.data_ptr() for each in shared_memory(data, data, memory, device)] == [
        each.data_ptr() for each in memory
    ]
    *inputs, own = data.regions
    larger = msgspec.structs.replace(data, regions=(*inputs, msgspec.structs.replace(own, bytes=2 * own.bytes)))
    found = shared_memory(larger, data, memory, device)
    assert [each.data_ptr() for each in found[:2]] == [each.data_ptr() for each in memory[:2]]
    assert found[2].data_ptr() != memory[2].data_ptr()
    assert (found[2].nbytes, found[2].data_ptr() % 2**21) == (2 * own.bytes, own.misalignment)


def test_no_two_regions_of_a_call_use_the_same_memory(on_cpu: OnCpu) -> None:
    """Though both are as large as one of the other call."""
    data, device = on_cpu.captured().data, torch.device("cpu")
    twice = msgspec.structs.replace(data, regions=(*data.regions, data.regions[-1]))
    memory = memory_for(data.regions, device)
    *shared, new = shared_memory(twice, data, memory, device)
    assert [each.data_ptr() for each in shared] == [each.data_ptr() for each in memory]
    assert new.data_ptr() not in [each.data_ptr() for each in memory]


@pytest.mark.parametrize(("alignment", "spare"), [(1, 0), (2**21, 2**21)])
def test_memory_is_no_larger_than_its_alignment_takes(
    monkeypatch: pytest.MonkeyPatch, alignment: int, spare: int
) -> None:
    """With more than torch needs for it a chain of kernels took less time than launched as ever."""
    monkeypatch.setattr("pytest_gpubench.replay.replayed.ALIGNMENTS", {"own": alignment})
    (memory,) = memory_for([Region(kind="own", bytes=64, misalignment=0)], torch.device("cpu"))
    assert memory.data_ptr() % alignment == 0
    assert (memory.nbytes, memory.untyped_storage().nbytes()) == (64, 64 + spare)
