"""A call that one process saves and another one replays, with a driver of tables."""

import ctypes
from collections.abc import Callable
from functools import partial
from itertools import cycle
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest
import torch

from pytest_gpubench import BadFile, InvalidResult
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge import replayed as replayed_module
from pytest_gpubench.judge.reference import Reference
from pytest_gpubench.judge.replayed import ReplayedCall, SavedCall, launches_of, refuse_other_memory, saved_call
from pytest_gpubench.judge.request import spec_of
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.judge.worker import Worker
from pytest_gpubench.replay import builder, images
from pytest_gpubench.replay.call_data import CallData, Graph, Node, Pointer, Region, encode_call
from pytest_gpubench.replay.structures import DEVICE_MEMORY, HOST_MEMORY, MemcpyEnd, MemcpyParams
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.profiler import ProfilerTimer
from tests.replay.on_cpu import N, OnCpu, make_on_cpu, numbers
from tests.timing.test_events import FakeGpu, gpu
from tests.timing.test_graph import streams

__all__ = ["gpu", "streams"]  # fixtures


@pytest.fixture
def on_cpu(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> OnCpu:
    found = make_on_cpu(streams, monkeypatch)
    monkeypatch.setattr(builder, "find_builder", lambda: found.builder)
    return found


def runner_of(on_cpu: OnCpu, function: Callable[..., object] | None = None) -> Runner:
    """Return the runner of a function that is given a number beside its tensors, and returns it too."""
    function = function or (lambda x, y: {"scaled": [on_cpu.function(x, y)], "by": 3})
    return Runner(function, [(numbers(), on_cpu.y)], cpu_device())


@pytest.fixture
def reference(on_cpu: OnCpu) -> Reference:
    """Return one with a set of inputs."""
    found = Reference(spec_of(on_cpu.function, lambda seed: (numbers(), numbers()), None), cpu_device())
    found.begin_case((numbers(), numbers()), 1)
    return found


def saved_of(runner: Runner, on_cpu: OnCpu) -> bytes:
    found = saved_call(runner, on_cpu.device)
    assert isinstance(found, bytes), found
    return found


@pytest.fixture
def saved(on_cpu: OnCpu) -> bytes:
    return saved_of(runner_of(on_cpu), on_cpu)


def test_another_process_replays_what_one_saved(on_cpu: OnCpu, saved: bytes) -> None:
    """On each set of inputs, with their values of that time, and with the structure of what it returned."""
    replayed = ReplayedCall(saved, on_cpu.device)
    sets = [(numbers() + number, numbers()) for number in range(2)]
    calls = on_cpu.calls
    for number in (0, 1, 0):
        sets[number][0].add_(1)
        found: Any = replayed(*sets[number])
        assert found == {"scaled": [found["scaled"][0]], "by": 3}
        assert torch.equal(found["scaled"][0], sets[number][0] * 3 + sets[number][1])
    assert on_cpu.calls == calls, "the function itself is not called"
    assert (len(on_cpu.cuda.executables), len(on_cpu.cuda.modules)) == (len(sets), 1)
    launched = len(on_cpu.cuda.launched)
    sets[0][0].add_(1)
    found = replayed(*sets[0], whole=True)
    assert torch.equal(found["scaled"][0], sets[0][0] * 3 + sets[0][1])
    assert [each in on_cpu.cuda.executables for each in on_cpu.cuda.launched[launched - 1 :]] == [False, True]
    replayed.close()
    assert (on_cpu.cuda.executables, on_cpu.cuda.modules) == ({}, {})


@pytest.mark.parametrize(("share_bytes", "memories"), [(0, 4), (-1, 3), (-1000, 1)])
def test_each_set_of_inputs_has_memory_of_its_own_while_there_is_some(
    on_cpu: OnCpu, saved: bytes, monkeypatch: pytest.MonkeyPatch, share_bytes: int, memories: int
) -> None:
    """One placement may be 1 % slower than another; where there is too little, sets take it in turn."""
    regions = msgspec.msgpack.decode(msgspec.msgpack.decode(saved, type=SavedCall).call, type=CallData).regions
    own_bytes = sum(each.bytes for each in regions if each.kind != "input")
    monkeypatch.setattr(replayed_module, "MOST_OWN_BYTES", 4 * own_bytes + share_bytes)
    replayed: Any = ReplayedCall(saved, on_cpu.device)
    sets = [(numbers(), numbers()) for _ in range(4)]
    places = [replayed(*each)["scaled"][0].data_ptr() for each in sets]
    assert len({*places}) == memories
    assert [replayed(*each)["scaled"][0].data_ptr() for each in sets] == places


def test_queued_calls_are_whole_graphs(on_cpu: OnCpu, saved: bytes) -> None:
    """A queue has no room for the kernels of many chains, which it would wait for before the first is released."""
    worker: Any = object.__new__(Worker)
    worker.runner = Runner(ReplayedCall(saved, on_cpu.device), [(numbers(), on_cpu.y)], cpu_device())
    worker.outputs, worker.counters, done = [torch.zeros(N)], 100, list[tuple[int, ...]]()
    worker.gpu = SimpleNamespace(
        wait_for=lambda address, number: done.append((address, number)),
        write=lambda address, number: done.append((address, number, len(on_cpu.cuda.launched))),
    )
    worker.do_queue(2, 5)
    assert done == [  # an output is copied when it is asked for
        *((100, 5), (228, 5, 1), (356, 5), (484, 5, 1)),
        *((100, 6), (228, 6, 2), (356, 6), (484, 6, 2)),
    ]
    assert {*on_cpu.cuda.launched} <= {*on_cpu.cuda.executables}
    assert torch.equal(worker.outputs[0], numbers() * 3 + on_cpu.y)


def test_a_references_timed_calls_are_replays_too(on_cpu: OnCpu, reference: Reference) -> None:
    """They are kept for the next candidate, and unloaded with the inputs that they were made for."""
    saved, launched, example = saved_of(reference.runner, on_cpu), [], (numbers(), numbers())
    reference.begin_case(example, 2)
    for given in (b"", saved, saved, b"", saved):
        reference.launch(given)
        before = on_cpu.calls
        for index in range(2):
            reference.runner.function(*reference.sets[index])
        launched.append((on_cpu.calls - before, len(on_cpu.cuda.executables)))
    assert launched == [(2, 0), (0, 2), (0, 2), (2, 2), (0, 2)]
    replayed = reference.runner.function
    reference.close()
    assert reference.runner.function is reference.function
    assert (on_cpu.cuda.executables, on_cpu.cuda.modules) == ({}, {}), "while it is still held"
    reference.launch(saved)
    assert reference.runner.function is not replayed
    reference.begin_case(example, 1)
    assert reference.runner.function is reference.function
    assert (on_cpu.cuda.executables, on_cpu.cuda.modules) == ({}, {})


def test_a_references_time_as_one_graph_is_less_what_two_events_add(
    on_cpu: OnCpu, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph of a kernel of 1 us takes 4 us there, of which the events' 3 us are asked once; each more takes 1 us."""
    assert reference.whole_us() == 0.0, "it is not replayed"
    reference.launch(saved_of(reference.runner, on_cpu))
    noops: list[int] = []
    lengths_us = cycle([9.0, 14.0, 90.0])

    def lap(call: Call, idle_s: float) -> SimpleNamespace:
        before = len(noops), len(on_cpu.cuda.launched)
        call.prepare()()
        if len(noops) > before[0]:
            return SimpleNamespace(elapsed_us=3.0 + noops[-1])
        assert on_cpu.cuda.launched[before[1] :][0] in on_cpu.cuda.executables, "as a graph"
        return SimpleNamespace(elapsed_us=next(lengths_us))

    timer: Any = object.__new__(ProfilerTimer)
    launched: list[int] = []
    timer.events, timer.sentinels = SimpleNamespace(lap=lap), SimpleNamespace(noop=lambda: launched.append(1))
    monkeypatch.setattr(reference.runner, "timer", timer)

    def capture(call: Call, device: object) -> SimpleNamespace:
        launched.clear()
        call.prepare()()
        return SimpleNamespace(graph=SimpleNamespace(replay=partial(noops.append, len(launched))))

    monkeypatch.setattr("pytest_gpubench.timing.graph.capture", capture)
    monkeypatch.setattr("pytest_gpubench.judge.reference.take_reps_of_noop", lambda timer, reps: [Rep(1.0, ())] * reps)
    assert reference.whole_us() == 11.0
    asked = len(noops)
    assert reference.whole_us() == 11.0
    assert len(noops) == asked > 0
    assert reference.launch_us == 1.0


def test_a_reference_whose_replay_failed_is_made_again(
    on_cpu: OnCpu, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = saved_of(reference.runner, on_cpu)
    with monkeypatch.context() as broken:
        broken.setattr(reference.runner, "call_on_each", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reference.launch(saved)
    assert (reference.runner.function, on_cpu.cuda.modules) == (reference.function, {})
    called: list[int] = []
    monkeypatch.setattr(reference.runner, "call_on_each", lambda: called.append(1))
    reference.launch(saved)
    assert called == [1], "before it is timed"
    with monkeypatch.context() as broken:
        broken.setattr(ReplayedCall, "close", lambda replayed: torch.ones(1).cpu().view(2))  # RuntimeError
        reference.close()
    assert reference.runner.function is reference.function, "on a broken GPU, too"


def test_the_launches_of_a_call_are_those_of_its_graph(saved: bytes) -> None:
    found = msgspec.msgpack.decode(saved, type=SavedCall)
    assert launches_of(saved) == 1
    unread = msgspec.msgpack.encode({"call": found.call, "node": [{}] * 9, "images": 5, "contents": None})
    assert launches_of(unread) == 1, "the rest may unpack to more memory than there is"


def test_a_huge_graph_is_not_read(saved: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its nodes takes the memory of many, and the referee has no time limit."""
    size = len(msgspec.msgpack.decode(saved, type=SavedCall).call)
    monkeypatch.setattr(replayed_module, "MOST_GRAPH_BYTES", size)
    assert launches_of(saved) == 1
    monkeypatch.setattr(replayed_module, "MOST_GRAPH_BYTES", size - 1)
    with pytest.raises(BadFile, match=f"its graph takes {size} B, and may take {size - 1} B"):
        launches_of(saved)


@pytest.mark.parametrize("damaged", [b"", b"x", msgspec.msgpack.encode({"call": b"x"})])
def test_a_damaged_call_is_refused(damaged: bytes) -> None:
    with pytest.raises(BadFile, match="a saved call is damaged"):
        launches_of(damaged)


def kept_y(on_cpu: OnCpu) -> Runner:
    """Return the runner of a call that keeps one of its tensors, 0, 1, 4, 9, ..., beside its inputs."""
    return Runner(lambda x: on_cpu.function(x, on_cpu.y), [(numbers(),)], cpu_device())


def test_memory_beside_the_inputs_is_saved(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kernel's packed weights; up to a size. Another length than the region's is refused."""
    on_cpu.cuda.memory = [(on_cpu.y.data_ptr(), on_cpu.y.nbytes, DEVICE_MEMORY)]
    on_cpu.others = [on_cpu.y]
    saved = saved_of(kept_y(on_cpu), on_cpu)
    expected, x = numbers() * 3 + on_cpu.y, numbers()
    on_cpu.y.zero_()
    replayed: Any = ReplayedCall(saved, on_cpu.device)
    assert torch.equal(replayed(x), expected)
    assert torch.equal(replayed(numbers()), expected)
    call = msgspec.msgpack.decode(saved, type=SavedCall)
    other = msgspec.structs.replace(call, contents=dict.fromkeys(call.contents, b"x"))
    with pytest.raises(InvalidResult, match="contents of another length"):
        ReplayedCall(msgspec.msgpack.encode(other), on_cpu.device)(x)
    monkeypatch.setattr(replayed_module, "MOST_KEPT_BYTES", on_cpu.y.nbytes)
    assert isinstance(saved_call(kept_y(on_cpu), on_cpu.device), bytes)
    monkeypatch.setattr(replayed_module, "MOST_KEPT_BYTES", on_cpu.y.nbytes - 1)
    assert saved_call(kept_y(on_cpu), on_cpu.device) == "it keeps more than 31 B of memory beside its inputs"


def test_a_call_that_cannot_be_saved_says_why(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_of(on_cpu, lambda x, y: (on_cpu.function(x, y), torch.empty(0)))
    assert saved_call(runner, on_cpu.device) == "it returns tensors that need no memory, or lie elsewhere"
    monkeypatch.setattr(images, "COMPILED", {})
    assert "the images of its kernels were not found" in str(saved_call(runner_of(on_cpu), on_cpu.device))


def test_a_call_of_other_inputs_is_refused(on_cpu: OnCpu, saved: bytes) -> None:
    """Its regions are named as inputs that the reference does not have."""
    with pytest.raises(InvalidResult, match=r"the saved call has no input out\[1\]"):
        ReplayedCall(saved, on_cpu.device)(numbers())
    found = msgspec.msgpack.decode(saved, type=SavedCall)
    assert sorted(found.images) == sorted(msgspec.msgpack.decode(found.call, type=CallData).images)


def copy_of(
    source: int, destination: int, moved: tuple[str, ...], kind: Literal["memcpy", "memset"] = "memcpy"
) -> CallData:
    """Return a call that copies between memory of these types; moved: the ends whose addresses lie in a region."""
    ends = {"source": MemcpyEnd(memory_type=source), "destination": MemcpyEnd(memory_type=destination)}
    params = MemcpyParams(**ends)
    pointers = tuple(Pointer(0, getattr(MemcpyParams, name).offset + MemcpyEnd.device.offset, 0, 0) for name in moved)
    node = Node(kind=kind, values=(bytes(params),), pointers=pointers)
    assert ctypes.sizeof(params) == len(node.values[0])
    return CallData(
        label="", capability=(9, 0), graph=Graph((node,), ()), inputs=(), outputs=(),
        regions=(Region(kind="own", bytes=N, misalignment=0),),
    )  # fmt: skip


BOTH = ("source", "destination")


def test_copies_between_regions_are_replayed() -> None:
    refuse_other_memory(copy_of(DEVICE_MEMORY, DEVICE_MEMORY, BOTH))
    refuse_other_memory(copy_of(HOST_MEMORY, HOST_MEMORY, (), "memset"))


@pytest.mark.parametrize(
    "call",
    [
        copy_of(HOST_MEMORY, DEVICE_MEMORY, BOTH),
        copy_of(DEVICE_MEMORY, HOST_MEMORY, BOTH),
        copy_of(DEVICE_MEMORY, DEVICE_MEMORY, ("source",)),
        copy_of(DEVICE_MEMORY, DEVICE_MEMORY, ("destination",)),
    ],
)
def test_copies_of_other_memory_are_refused(call: CallData) -> None:
    """Of the host's, that is of the process that replays, and of any address that the candidate names."""
    saved = msgspec.msgpack.encode(SavedCall(encode_call(call), {}, ["v", None], {}))
    with pytest.raises(InvalidResult, match="no region of it"):
        ReplayedCall(saved, cpu_device())
