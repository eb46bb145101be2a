"""The wall timer on the CPU, and arguments of calls."""

import glob
import os
import sys
import threading
import time
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
import torch

from pytest_gpubench import BadRequest, DeviceFacts
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.calls import Arguments, leaves_of, make_arguments, make_call
from pytest_gpubench.timing.l2flush import flush_buffer, make_flush

T = TypeVar("T")


@pytest.mark.parametrize(
    ("cache", "prepared"),
    [
        ("cold", ["read"]),
        ("dirty", ["written"]),
        ("hot", []),
        ("producer", ["read", "produced"]),
        ("producer left out", ["read"]),
    ],
)
def test_reps_are_taken_in_order(monkeypatch: pytest.MonkeyPatch, cache: Any, prepared: list[str]) -> None:
    """The cache holds what a producer left, and nothing of the call before or of inputs that were put back."""
    calls: list[str] = []
    call = make_call(lambda: calls.append("timed"), make_arguments(setup=lambda: calls.append("setup")))
    if cache.startswith("producer"):
        cache = Producer(lambda: calls.append("produced"), cache.endswith("left out"))
    monkeypatch.setattr("torch.Tensor.sum", lambda buffer: calls.append("read"))
    monkeypatch.setattr("torch.Tensor.zero_", lambda buffer: calls.append("written"))
    with make_timer("wall", cpu_device(), cache).session() as session:
        for _ in range(3):
            session.take(call, 0.001)
    assert calls == ["setup", *prepared, "timed"] * 3
    assert [rep.elapsed_us > 0 for rep in session.reps()] == [True] * 3


def test_others_get_the_core_between_the_flush_and_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux looks at a thread's slice when the thread reads its own CPU time; it waits before the waiting is read."""
    calls: list[str] = []

    def told(what: str, answer: T) -> T:
        calls.append(what)
        return answer

    timer: Any = make_timer("wall", cpu_device(), "hot")
    timer.flush = lambda: calls.append("flush")
    monkeypatch.setattr(time, "thread_time_ns", lambda: told("ran", 0))
    own = f"/proc/self/task/{threading.get_native_id()}/schedstat"
    monkeypatch.setattr(glob, "glob", lambda pattern: [own])  # there are no other threads
    with timer.session() as session:
        monkeypatch.setattr(os, "pread", lambda *file: told("waited", b"0 0 0"))
        session.take(make_call(lambda: calls.append("timed")), 0.0)
    assert calls == ["flush", "ran", "waited", "timed", "waited", "ran"]


@pytest.mark.parametrize(
    ("elapsed", "ran", "all_ran", "waited", "held_up"),
    [
        (30, 30, 30, 0, 0),  # a quiet host
        (75, 30, 30, 45, 45),  # others had the core
        (75, 30, 70, 45, 5),  # mostly another thread of the process
        (75, 30, 120, 45, 0),
        (75, 30, 29, 45, 45),  # the clock of all threads is a little behind
        (75, 1, 1, 0, 0),  # it slept
        (30, 30, 30, 45, 0),  # the wait was before or after the call
        (30, 31, 31, 8, 0),
    ],
)
def test_only_what_others_took_is_taken_off(
    monkeypatch: pytest.MonkeyPatch, elapsed: int, ran: int, all_ran: int, waited: int, held_up: int
) -> None:
    """And nothing where a GPU computes, which goes on while its host waits."""
    assert rep_us(monkeypatch, "cpu", elapsed, ran, all_ran, waited) == (elapsed - held_up) / 1e3
    assert rep_us(monkeypatch, "cuda", elapsed, ran, all_ran, waited) == elapsed / 1e3


def rep_us(monkeypatch: pytest.MonkeyPatch, kind: Any, elapsed: int, ran: int, all_ran: int, waited: int) -> float:
    """Return the time of a rep which takes so many ns, of which the scheduler counts these."""
    done: list[int] = []

    def counted(more: int) -> int:
        return 1000 + more * len(done)

    monkeypatch.setattr(time, "perf_counter_ns", lambda: counted(elapsed))
    monkeypatch.setattr(time, "thread_time_ns", lambda: counted(ran))
    monkeypatch.setattr(time, "process_time_ns", lambda: counted(all_ran))
    device = Device(torch.device("cpu"), DeviceFacts(type=kind, name="fake", host="here"))
    timer: Any = make_timer("wall", device, "hot")
    timer.device = cpu_device()  # there is no GPU to wait for
    with timer.session() as session, monkeypatch.context() as scheduler:
        scheduler.setattr(os, "pread", lambda *file: b"7 %d 31" % counted(waited))
        session.take(make_call(lambda: done.append(1)), 0.0)
    (rep,) = session.reps()
    return float(rep.elapsed_us)


@pytest.mark.parametrize(
    ("scheduled", "waited_s"), [(b"7000000000 2500000000 31", 2.5), (b"", 0.0), (None, 0.0)]
)  # None: there is no such file
def test_waiting_for_a_core_costs_no_reps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheduled: bytes | None, waited_s: float
) -> None:
    file, plainly = tmp_path / "schedstat", os.open
    file.write_bytes(scheduled or b"")

    def open_it(path: str, flags: int) -> int:
        if scheduled is None:
            raise FileNotFoundError
        return plainly(file, flags)

    timer = make_timer("wall", cpu_device(), "hot")
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    with monkeypatch.context() as scheduler:
        scheduler.setattr(os, "open", open_it)
        assert timer.clock_s() == 100.0 - waited_s


@pytest.mark.parametrize(("waited_ns", "flags"), [(0.09, ()), (0.11, ("held up",))])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_rep_is_held_up_where_other_threads_of_the_call_wait_for_cores(
    monkeypatch: pytest.MonkeyPatch, kind: Any, waited_ns: float, flags: tuple[str, ...]
) -> None:
    device = Device(torch.device("cpu"), DeviceFacts(type=kind, name="fake", host="here"))
    timer: Any = make_timer("wall", device, "hot")
    timer.device = cpu_device()
    took, waited = iter([0, 1000]), iter([5, 5 + int(1000 * waited_ns)])
    with timer.session() as session:
        monkeypatch.setattr(session.schedule, "others_waited_ns", lambda: next(waited))
        monkeypatch.setattr(time, "perf_counter_ns", lambda: next(took))
        session.take(make_call(lambda: None), 0.0)
    assert [rep.flags for rep in session.reps()] == [flags if kind == "cpu" else ()]


@pytest.mark.parametrize(("others_ran_ns", "reads"), [(1900, 2), (2100, 6)])
def test_what_other_threads_waited_is_read_while_they_run(
    monkeypatch: pytest.MonkeyPatch, others_ran_ns: int, reads: int
) -> None:
    """A call of one thread is not slowed by that: 256 idle threads made 7 us of a hot one of 3 us."""
    timer: Any = make_timer("wall", cpu_device(), "hot")
    ran, read = count(0, others_ran_ns), count()
    monkeypatch.setattr(time, "thread_time_ns", lambda: 0)
    monkeypatch.setattr(time, "process_time_ns", lambda: next(ran))
    with timer.session() as session:
        monkeypatch.setattr(session.schedule, "others_waited_ns", lambda: 0 * next(read))
        for _ in range(3):
            session.take(make_call(double, make_arguments((1,))), 0.0)
    assert next(read) == reads


def test_what_other_threads_waited_is_read_of_each() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    timer: Any = make_timer("wall", cpu_device(), "hot")
    with timer.session() as session:
        assert session.schedule.others_waited_ns() >= 0
        files = [os.readlink(f"/proc/self/fd/{file}") for file in session.schedule._others]
    release.set()
    thread.join()
    assert any(f"/task/{thread.native_id}/" in file for file in files)
    assert not any(f"/task/{threading.get_native_id()}/" in file for file in files)


@pytest.mark.parametrize("calls", [1, 4])
def test_a_call_that_leaves_a_thread_running_is_refused(calls: int) -> None:
    """Also beside another; and not one whose first calls start a pool."""
    release, started = threading.Event(), list[threading.Thread]()

    def leaves() -> None:
        if len(started) < calls:
            started.append(threading.Thread(target=release.wait))
            started[-1].start()

    with make_timer("wall", cpu_device(), "hot").session() as session:
        for _ in range(4):
            session.take(make_call(leaves), 0.0)
            session.take(make_call(double, make_arguments((1,))), 0.0)
    release.set()
    if calls == 1:
        assert len(session.reps()) == 8
        return
    with pytest.raises(BadRequest, match="'leaves' starts a thread in each call that still runs when the call returns"):
        session.reps()


@pytest.mark.parametrize("cache_bytes", [1000, 1001, 1002, 1006])
def test_a_cache_of_any_size_can_be_flushed(cache_bytes: int) -> None:
    """By twice as much, which is kept: for tests that are not in the mode of the first one, too."""
    device = Device(torch.device("cpu"), DeviceFacts(type="cpu", name="CPU", host="here", cache_bytes=cache_bytes))
    with torch.inference_mode():
        make_flush(device, "cold")()
    make_flush(device, "dirty")()
    assert flush_buffer(device).nbytes == pytest.approx(2 * cache_bytes, abs=8)
    assert flush_buffer(device) is flush_buffer(device)


def test_the_cpu_is_timed_by_the_wall() -> None:
    names = {name: make_timer(name, cpu_device(), "hot").name for name in ("profiler", "wall", "scripted")}
    assert names == {"profiler": "wall", "wall": "wall", "scripted": "scripted"}


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_a_call_is_named_like_its_function() -> None:
    functions = (double, partial(partial(double), 3), torch.nn.Linear(2, 2))
    assert [make_call(each).label for each in functions] == ["double", "double", "Linear"]


def test_a_step_of_cuda_graphs_begins_before_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untimed: outputs of the call before are no longer needed."""
    calls: list[str] = []
    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", ModuleType("trees"))
    monkeypatch.setattr("torch.compiler.cudagraph_mark_step_begin", lambda: calls.append("step"))
    timed = make_call(lambda: calls.append("timed")).prepare()
    assert calls == ["step"]
    timed()
    assert calls == ["step", "timed"]


def test_backward_is_timed_alone_and_gradients_do_not_add_up() -> None:
    x = torch.ones(4, requires_grad=True)
    weight = torch.full((4,), 3.0, requires_grad=True)
    forwards: list[int] = []

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        forwards.append(1)
        return x.detach(), {"out": (x * weight).sum()}

    for backward, in_timed in (("backward", 0), ("both", 1)):
        call = make_call(forward, make_arguments((x,)), backward)  # type: ignore[arg-type]
        assert call.prepares_on_device
        for _ in range(3):
            timed = call.prepare()
            before = len(forwards)
            timed()
            assert len(forwards) - before == in_timed
            assert [each.grad.tolist() for each in (x, weight) if each.grad is not None] == [[3.0] * 4, [1.0] * 4]


def test_the_upstream_gradient_of_what_is_no_loss_is_the_same_noise_in_each_call() -> None:
    given = [torch.zeros(3, 4, dtype=torch.bfloat16, requires_grad=True) for _ in range(2)]
    noise = []
    for _ in range(2):
        make_call(lambda x, y: (x * 1, y * 1), make_arguments(given), "backward").prepare()()
        noise.append([x.grad.tolist() for x in given if x.grad is not None])
    (one, other), again = noise
    assert again == [one, other]
    assert one != other
    assert len({number for row in one for number in row}) > 6


def test_nested_tensors_get_no_upstream_gradient() -> None:
    rows = torch.nested.nested_tensor([torch.ones(3), torch.ones(4)], layout=torch.jagged, requires_grad=True)
    make_call(lambda: (2 * rows).values(), backward="backward").prepare()()
    with pytest.raises(BadRequest, match="for nested tensors: let the function return a loss, or values"):
        make_call(lambda: 2 * rows, backward="backward").prepare()


def test_leaves_are_found_through_the_graph() -> None:
    x, weight = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    shared = x * weight
    leaves = leaves_of([shared.sum(), shared.mean(), x])
    assert {id(leaf) for leaf in leaves} == {id(x), id(weight)}
    assert len(leaves) == 3, "each node of the graph is visited once"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (None, ((), {})),
        ((1, 2), ((1, 2), {})),
        ({"a": 1}, ((), {"a": 1})),
        (((1,), {"a": 2}), ((1,), {"a": 2})),
        (((1,), 2), (((1,), 2), {})),
    ],
)
def test_what_setup_may_return(made: object, expected: object) -> None:
    assert Arguments((), {}, lambda: made).fresh() == expected


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (3, "int: for a single"),
        ([1], "list: for a single"),
        ({1: 2}, "the keyword 1: give"),
        (((1,), {b"a": 3}), "the keyword b'a': give"),
    ],
)
def test_what_setup_may_not_return(made: object, found: str) -> None:
    with pytest.raises(BadRequest, match=f"must return a tuple of arguments, .* found {found}"):
        Arguments((), {}, lambda: made).fresh()
