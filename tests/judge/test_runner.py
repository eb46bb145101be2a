"""The calls of one arm."""

import gc
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pytest_gpubench import KernelsDiffer
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge import runner as runner_module
from pytest_gpubench.judge.channel import Channel, decode_reply
from pytest_gpubench.judge.layout import describe, layout_of, placed
from pytest_gpubench.judge.memory import GpuMemory, make_file
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.judge.worker import Worker
from pytest_gpubench.timing.base import Record, Rep, collection_off
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.rounds import Sample
from tests.timing.fakes import rep


@pytest.mark.parametrize("set_aside_bytes", [None, 0, 9 * 2**20])
@pytest.mark.parametrize("ends", ["end", "stop"])
def test_no_cache_is_set_aside_while_reps_are_taken(
    monkeypatch: pytest.MonkeyPatch, ends: str, set_aside_bytes: int | None
) -> None:
    """On a GPU, where a call may ask for that, now or before; the timer's session is inside."""
    done: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[Any]:
        done.append(name)
        try:
            yield SimpleNamespace(reps=lambda: [rep(1000)], take=lambda call, idle_s: None)
        finally:
            done.append(f"not {name}")

    runner = Runner(lambda: None, [()], cpu_device(), set_aside_bytes)
    monkeypatch.setattr(runner, "device", SimpleNamespace(type="cuda", cache_bytes=5))
    monkeypatch.setattr(runner, "timer", SimpleNamespace(session=lambda: noted("session"), sees_kernels=True))
    monkeypatch.setattr(
        runner_module, "set_aside_as_before", lambda size, before_bytes: noted(f"cold {before_bytes} of {size}")
    )
    runner.begin()
    getattr(runner, ends)()
    runner.stop()
    assert done == [f"cold {set_aside_bytes} of 5", "session", "not session", f"not cold {set_aside_bytes} of 5"]


def test_a_session_that_cannot_begin_sets_nothing_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, held = Runner(lambda: None, [()], cpu_device()), ExitStack()
    ended = list[str]()
    held.callback(ended.append, "as before")
    monkeypatch.setattr(runner, "_cold", lambda: held)
    monkeypatch.setattr(runner, "timer", SimpleNamespace(session=lambda: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        runner.begin()
    assert ended


def test_reps_without_kernels_beside_others_have_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(lambda: None, [()], cpu_device())
    reps, taken = [rep(1000), rep(0, ""), rep(1000)], list[object]()
    session = SimpleNamespace(reps=lambda: reps, take=lambda *given: taken.append(given))
    monkeypatch.setattr(runner, "timer", SimpleNamespace(session=lambda: nullcontext(session), sees_kernels=True))
    runner.begin()
    with pytest.raises(KernelsDiffer, match="it launches nothing on the GPU in some calls"):
        runner.end()
    reps[1] = reps[0]
    runner.begin()
    assert (runner.end(), taken) == (reps[:2], 2 * [(runner.call, 0.0)]), "the last one is taken after all copies"


def test_a_call_that_never_rests_tells_its_tax_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one on a throttled GPU: it is timed all the same."""
    timer: Any = object.__new__(ProfilerTimer)
    timer.taxes = SimpleNamespace(known=[], of=lambda call: 0.04)
    runner = Runner(lambda: None, [()], cpu_device())
    monkeypatch.setattr(runner, "timer", timer)
    unsettled = SimpleNamespace(settled=False, last=[rep(1000)], sample=Sample())
    monkeypatch.setattr(runner_module, "warm_up", lambda *given: {"": unsettled})
    runner.warm()
    assert runner.taxes == [({"a": 1}, 1040, 0.04)]
    assert runner.idle_s == pytest.approx(2.9e-3)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Return one that finds more of the cache set aside each time that it asks, from 9 bytes on."""
    amounts = count(9)
    monkeypatch.setattr("pytest_gpubench.judge.worker.persisting_bytes", lambda driver: next(amounts))
    return Worker(cast(Channel, None), "cpu", 0, torch.get_num_threads())


def begin_case(worker: Worker, *handles: str) -> None:
    layout = layout_of([torch.ones(2)])
    given = {"structure": describe(torch.ones(2), "")[0], "layout": layout, "outputs": layout}
    files = [] if handles else [make_file(3 * sum(placed(layout)[0]))]
    worker.do_case(*files, **given, handles=handles, blank=False)


def test_a_process_knows_what_was_set_aside_before_it_ran_a_candidate(worker: Worker) -> None:
    for _ in range(2):
        begin_case(worker)
        assert worker.runner.set_aside_bytes == 9


def test_a_process_has_the_memory_of_its_last_case_alone(worker: Worker) -> None:
    """It counts as memory of the candidate, once: a file is mapped, and none is open."""

    def held() -> tuple[int, int]:
        return Path("/proc/self/maps").read_text().count("memfd:gpu_bench"), len(os.listdir("/proc/self/fd"))

    gc.collect()
    mapped, are_open = held()
    with collection_off():
        for _ in range(3):
            begin_case(worker)
        assert held() == (mapped + 1, are_open)


def test_memory_of_a_gpu_is_given_back_before_that_of_the_next_case_is_taken(worker: Worker) -> None:
    """The driver frees none that another process has."""
    memory, done = dict[int, str](), list[tuple[str, str]]()

    def open_(handle: str, size: int) -> torch.Tensor:
        opened = torch.zeros(size, dtype=torch.uint8)
        memory[opened.data_ptr()] = handle
        done.append(("open", handle))
        return opened

    given = SimpleNamespace(open=open_, close=lambda opened: done.append(("close", memory[opened.data_ptr()])))
    worker.gpu = cast(GpuMemory, given)
    for handles in ("abc", "def"):
        begin_case(worker, *handles)
    assert done == [
        (act, each) for act, which in (("open", "abc"), ("close", "cba"), ("open", "def")) for each in which
    ]


def test_outputs_that_are_memory_of_inputs_are_told(worker: Worker) -> None:
    worker.function = lambda x, y: (y.view(1), x + 1)
    begin_case(worker)
    reply = worker.do_first().output
    assert reply is not None
    assert [each.is_input for each in reply[1]] == [True, False]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda *inputs: getattr(inputs, "\udc80"), r"AttributeError: 'tuple' .* attribute '\\udc80'"),
        (lambda *inputs: "\udc80", "BadRequest: the output cannot be sent: 'utf-8' codec"),
    ],
)
def test_a_text_that_cannot_be_sent_does_not_end_the_process(
    worker: Worker, call: Callable[..., object], found: str
) -> None:
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker.function, worker.channel = call, Channel(mine)
    begin_case(worker)
    with mine, other:
        worker.answer({"do": "first"}, [])
        reply = decode_reply(Channel(other).receive()[0])
    assert re.match(found, f"{reply.error}: {reply.text}")


def test_kernels_are_told_by_names_that_differ(worker: Worker) -> None:
    """Of torch's, the first 80 characters are the same."""
    names = [f"void elementwise_kernel<{20 * '4, '}{each}Functor<float> >(int)" for each in ("Mul", "Div")]
    records = tuple(Record(name, "kernel", 0, 1000) for name in names)
    worker.runner = cast(Runner, SimpleNamespace(end=lambda: [Rep(2.0, records)]))
    assert worker.do_end().kernels == [(f"elementwise_kernel<{each}Functor>", 1) for each in ("Mul", "Div")]
