"""The graph timer on the CPU: a recording graph, refused calls, and the reasons why a capture fails."""

import warnings
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from pytest_gpubench import BadRequest, MeasurementError, NothingRecorded
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing import graph
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.calls import make_arguments, make_call
from pytest_gpubench.timing.graph import GraphTimer
from tests.timing.fake_gpu import CAPTURING, FakeGpu, FakeGraph, gpu, streams, take

SIDE_CALLS = 3
SYNC = "it waits for the GPU or copies to or from the host's memory"
RANDOM = "it draws random numbers from a generator that the graph does not know"
STREAM = "it mixes in the default stream, or another that it does not wait for at its end"
REPLAYS = "it replays a CUDA graph, which cannot be captured in another"
MEMORY = "there is not room for it twice"

__all__ = ["gpu", "streams"]  # fixtures

X = torch.arange(6.0)


def timer_of() -> GraphTimer:
    return GraphTimer(cpu_device(), "cold")


def test_a_call_is_captured_once_after_calls_on_the_side(streams: FakeGpu) -> None:
    called: list[int] = []
    call = make_call(lambda: called.append(1), label="mine")
    timer = timer_of()
    reps = take(timer, call, 3) + take(timer, call, 2)
    assert len(called) == SIDE_CALLS + 1
    assert [rep.elapsed_us for rep in reps] == pytest.approx([7] * 5)
    log = streams.log
    once = ["side waits for main", "on side", "main waits for side"]
    assert log[: 3 * SIDE_CALLS] == once * SIDE_CALLS
    prepared = ["side waits for main", "on side", "synchronize", "empty cache"]
    captured = ["on side", "capture thread_local", "on side", "captured"]  # whichever stream the call leaves current
    assert log[3 * SIDE_CALLS :][:8] == [*prepared, *captured]
    assert log.count("captured") == 1
    assert log.count("replay") == 5
    assert log.count("flush cold") == 5


def test_each_call_has_its_graph_however_it_is_wrapped(streams: FakeGpu) -> None:
    timer, first, second = timer_of(), make_call(X.neg, label="a"), make_call(X.abs, label="b")
    for call in (first, second, replace(first, prepares_on_device=True)):
        take(timer, call)
    assert len(timer.captured) == 2


def test_what_keeps_outputs_is_given_the_captured_one(streams: FakeGpu) -> None:
    """After preparation, which runs before every replay."""
    log: list[object] = []

    def prepare() -> Prepared:
        log.append("prepared")
        return Prepared(lambda: 5, keep=log.append)

    take(timer_of(), Call("mine", prepare, print), 2)
    assert log == ["prepared"] * (SIDE_CALLS + 1) + ["prepared", 5] * 2


@pytest.mark.parametrize(
    ("captured", "others", "same"),
    [
        ((X, 2, "a", None, [True]), (X.view(6), 2, "a", None, [True]), True),
        ((float("nan"),), (float("nan"),), True),
        ((X, 2), (X[1:], 2), False),
        ((X, 2), (X, 3), False),
        ((X, 2), (X, 2.0), False),
        ((X, 2), (X.view(2, 3), 2), False),
        ((X, 2), (X.view(torch.int32), 2), False),
        ({"x": X}, {"x": X}, True),
        ({"x": X}, {"x": X.clone()}, False),
    ],
)
def test_inputs_are_known_by_memory_and_value(streams: FakeGpu, captured: object, others: object, same: bool) -> None:
    given = iter([*[captured] * (SIDE_CALLS + 1), others])
    arguments = make_arguments(setup=lambda: next(given))
    call = make_call(lambda *args, **kwargs: None, arguments, label="mine")
    with nullcontext() if same else pytest.raises(BadRequest, match="'mine' is given others in each rep"):
        take(timer_of(), call)


def failing(times: int, error: Exception) -> Call:
    """Return a call that raises in its n-th call."""
    called: list[int] = []

    def function() -> None:
        called.append(1)
        if len(called) == times:
            raise error

    return make_call(function, label="mine")


def test_a_failed_capture_is_mended_and_the_next_works(streams: FakeGpu) -> None:
    error = RuntimeError(CAPTURING)
    call, timer = failing(SIDE_CALLS + 1, error), timer_of()
    with pytest.raises(MeasurementError, match=r"'mine' cannot be captured as a CUDA graph: .* or use tim") as caught:
        take(timer, call)
    assert caught.value.__cause__ is error
    after = streams.log[streams.log.index("capture thread_local") :]
    assert after[1:6] == ["on side", "captured", "end pool", "release pool", "reset"]
    assert after.count("captured") == 2  # one that ends well, for the generator
    assert len(graph._unfinished) == 1
    assert timer.captured == {}
    assert len(take(timer, call)) == 1


def test_the_pool_of_a_failed_capture_is_closed_before_torch_2_8_too(
    streams: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function that closes it had another name."""
    monkeypatch.delattr(torch._C, "_cuda_endAllocateToPool")
    old = "_cuda_endAllocateCurrentStreamToPool"
    monkeypatch.setattr(torch._C, old, lambda *each: streams.log.append("end old pool"), raising=False)
    assert reason_of(RuntimeError(CAPTURING)).startswith(SYNC)
    assert streams.log.index("end old pool") + 1 == streams.log.index("release pool")


def test_memory_that_torch_takes_back_is_not_freed_twice(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*each: object) -> None:
        raise RuntimeError("not currently recording")

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", closed, raising=False)
    assert reason_of(RuntimeError(CAPTURING)).startswith(SYNC)
    assert "release pool" not in streams.log


@pytest.mark.parametrize(
    ("calls", "error"),
    [(1, RuntimeError("mine")), (SIDE_CALLS + 1, KeyError("mine")), (SIDE_CALLS + 1, ValueError("mine"))],
)
def test_the_calls_own_errors_go_through_and_are_mended(streams: FakeGpu, calls: int, error: Exception) -> None:
    """And so does any error before the capture."""
    call = failing(calls, error)
    with pytest.raises(type(error), match="mine") as caught:
        take(timer_of(), call)
    assert caught.value is error
    assert ("capture thread_local" in streams.log, "end pool" in streams.log) == (calls > 1, calls > 1)


def warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=1)


def test_an_empty_graph_is_nothing_recorded(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGraph, "capture_end", lambda self: warn("The CUDA Graph is empty. This usually means"))
    with pytest.raises(NothingRecorded, match="'mine' launched nothing"):
        take(timer_of(), make_call(lambda: None, label="mine"))


def test_other_warnings_are_passed_on(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGraph, "capture_end", lambda self: warn("something else"))
    with pytest.warns(UserWarning, match="something else"):
        take(timer_of(), make_call(lambda: None))


def reason_of(error: Exception) -> str:
    """Return why a call cannot be captured that raises an error then."""
    call = failing(SIDE_CALLS + 1, error)
    with pytest.raises(MeasurementError) as caught:
        take(timer_of(), call)
    said = str(caught.value).removeprefix("'mine' cannot be captured as a CUDA graph: ")
    return said.removesuffix("; or use timer='profiler' or 'events'")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Offset increment outside graph capture encountered unexpectedly.", [RANDOM]),
        ("Attempt to increase offset for a CUDA generator not in capture mode.", [RANDOM]),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", [MEMORY]),
        ("Cannot prepare for replay during capturing stage.", [REPLAYS]),
        ("CUDA error: capturing stream has unjoined work", [STREAM]),
        ("CUDA error: operation would make the legacy stream depend on a capturing blocking stream", [STREAM]),
        ("CUDA error: dependency created on uncaptured work in another stream", [STREAM]),
        (CAPTURING, [SYNC]),
        ("something else\nand more", ["RuntimeError: something else"]),
    ],
)
def test_the_message_that_says_why(streams: FakeGpu, message: str, expected: list[str]) -> None:
    reasons = reason_of(RuntimeError(message)).split("; or ")
    assert [said[: len(start)] for said, start in zip(reasons, expected, strict=True)] == expected


def test_the_error_behind_the_error_says_why(streams: FakeGpu) -> None:
    error = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    error.__context__ = RuntimeError("CUDA error: capturing stream has unjoined work")
    assert reason_of(error).startswith(STREAM)


def test_the_innermost_line_that_is_of_no_library_is_named(streams: FakeGpu) -> None:
    with pytest.raises(RuntimeError) as caught:
        exec(compile(f"raise RuntimeError({CAPTURING!r})", torch.__file__, "exec"))
    line = caught.traceback[0].lineno + 1
    assert reason_of(caught.value) == f"{graph.BARRED} (at test_graph.py:{line})"
