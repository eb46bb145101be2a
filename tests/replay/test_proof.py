"""A call is replayable where replays compute what it computes, and says why where they do not."""

import msgspec
import pytest
import torch

from pytest_gpubench.replay.capture import CapturedCall
from pytest_gpubench.replay.driver import DriverError
from pytest_gpubench.replay.proof import prove, ways_for
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.timing.base import Call
from tests.replay.fake_graphs import FakeFunction
from tests.replay.on_cpu import IMAGE, N, OnCpu, floats_at, raising, with_node


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(N, dtype=torch.float32)


def prove_it(on_cpu: OnCpu, call: Call, found: CapturedCall | None = None) -> None:
    prove(call, found or on_cpu.captured(call=call), on_cpu.device, on_cpu.builder)


def test_a_call_is_proved_and_its_inputs_are_as_they_were(on_cpu: OnCpu, x: torch.Tensor) -> None:
    prove_it(on_cpu, on_cpu.call(x, on_cpu.y))
    assert x.tolist() == list(range(N))
    assert len(on_cpu.cuda.launched) == 2  # as given, and with other values
    assert (on_cpu.cuda.modules, on_cpu.cuda.executables) == ({}, {})


def test_an_address_that_was_not_recognised_is_found_out(on_cpu: OnCpu, x: torch.Tensor) -> None:
    """It leads to the input itself, which holds other values when the proof replays."""
    call = on_cpu.call(x, on_cpu.y)
    found = on_cpu.captured(call=call)
    (node,) = found.data.graph.nodes
    values = x.data_ptr().to_bytes(8, "little"), *node.values[1:]
    with pytest.raises(NotReplayable, match=r"replayed, it computes something else: .*out"):
        prove_it(on_cpu, call, with_node(found, pointers=node.pointers[1:], values=values))


def test_an_address_that_leads_elsewhere_is_found_out(on_cpu: OnCpu, x: torch.Tensor) -> None:
    call = on_cpu.call(x, on_cpu.y)
    found = on_cpu.captured(call=call)
    first, *others = found.data.graph.nodes[0].pointers
    with pytest.raises(NotReplayable, match="computes something else"):
        prove_it(on_cpu, call, with_node(found, pointers=(msgspec.structs.replace(first, region=1), *others)))


def test_what_the_host_computed_is_found_out_by_other_values(on_cpu: OnCpu, x: torch.Tensor) -> None:
    """A number that was made of the inputs, as a shape or a scale, is the same in each replay."""

    def by_host(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return on_cpu.function(x, y, factor=int(x[0]) + 2)

    call = on_cpu.call(x, on_cpu.y, function=by_host)
    with pytest.raises(NotReplayable, match="computes something else"):
        prove_it(on_cpu, call)


def test_memory_beside_the_arguments_is_blamed(on_cpu: OnCpu, x: torch.Tensor) -> None:
    on_cpu.cuda.memory, on_cpu.others = [(on_cpu.y.data_ptr(), on_cpu.y.nbytes, 2)], [on_cpu.y]
    call = on_cpu.call(x, function=lambda x: on_cpu.function(x, on_cpu.y))
    with pytest.raises(NotReplayable, match="it uses 32 B that are no argument of it: give tensors as arguments"):
        prove_it(on_cpu, call)


def test_memory_beside_the_arguments_may_hold_zeros(on_cpu: OnCpu, x: torch.Tensor) -> None:
    """As a lock does, or a workspace."""
    on_cpu.y.zero_()
    on_cpu.cuda.memory, on_cpu.others = [(on_cpu.y.data_ptr(), on_cpu.y.nbytes, 2)], [on_cpu.y]
    prove_it(on_cpu, on_cpu.call(x, function=lambda x: on_cpu.function(x, on_cpu.y)))


def test_another_image_is_found_out(on_cpu: OnCpu, x: torch.Tensor) -> None:
    on_cpu.cuda.images[IMAGE] = [FakeFunction("other", (8, 8, 8, 4))]
    with pytest.raises(NotReplayable, match="rebuilt from its data, it fails: cuModuleGetFunction"):
        prove_it(on_cpu, on_cpu.call(x, on_cpu.y))


def test_inputs_that_the_call_changes_are_compared(on_cpu: OnCpu, x: torch.Tensor) -> None:
    """What the host writes into an input, no replay does."""

    def add(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(1)

    on_cpu.changes = add
    call = on_cpu.call(x, on_cpu.y)
    for _ in range(3):
        call.prepare()()
    with pytest.raises(NotReplayable, match="what it changes among its inputs differs"):
        prove_it(on_cpu, call)


def test_inputs_that_replays_change_alike_are_right(on_cpu: OnCpu, x: torch.Tensor) -> None:
    def scale_and_add(x: int, y: int, out: int, factor: int) -> None:
        floats_at(out).copy_(floats_at(x) * factor + floats_at(y))
        floats_at(x).add_(1)

    def add(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(1)

    on_cpu.cuda.kernels["scale"], on_cpu.changes = scale_and_add, add
    call = on_cpu.call(x, on_cpu.y)
    for _ in range(3):
        call.prepare()()
    prove_it(on_cpu, call)
    call.prepare()
    assert x.tolist() == list(range(N))


def test_outputs_may_differ_as_the_call_itself_does(on_cpu: OnCpu, x: torch.Tensor) -> None:
    """As sums of atomics do, which add in any order."""

    def scatter(x: torch.Tensor, y: torch.Tensor) -> None:
        on_cpu.out[N:] += 1e-2 * (on_cpu.calls % 2)

    def off(x: int, y: int, out: int, factor: int) -> None:
        floats_at(out).copy_(floats_at(x) * factor + floats_at(y) + 0.02)

    on_cpu.changes, on_cpu.cuda.kernels["scale"] = scatter, off
    prove_it(on_cpu, on_cpu.call(x, on_cpu.y))


@pytest.mark.parametrize(
    ("error", "broken", "kind", "said"),
    [
        (RuntimeError("mine"), "an illegal access", RuntimeError, "has broken CUDA .*an illegal.*save_calls='no'"),
        (DriverError("mine"), "an illegal access", RuntimeError, "has broken CUDA .*an illegal.*save_calls='no'"),
        (RuntimeError("mine"), None, RuntimeError, "^mine$"),
        (DriverError("mine"), None, NotReplayable, "^rebuilt from its data, it fails: mine$"),
        (torch.OutOfMemoryError(), None, NotReplayable, "no room for its memory twice"),
    ],
)
def test_a_replay_that_fails_is_a_reason_and_one_that_breaks_cuda_says_so(
    error: Exception,
    broken: str | None,
    kind: type[Exception],
    said: str,
    on_cpu: OnCpu,
    x: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no reason to go on with: all later calls of the process fail."""

    monkeypatch.setattr("pytest_gpubench.replay.proof.memory_for", raising(error))
    monkeypatch.setattr("pytest_gpubench.replay.proof.context_error", lambda: broken)
    with pytest.raises(kind, match=said):
        prove_it(on_cpu, on_cpu.call(x, on_cpu.y))


def test_the_ways_of_other_values() -> None:
    assert ways_for([("x", torch.arange(4.0))]) == ["as given", "turned round"]
    assert ways_for([("x", torch.tensor([3, 1, 2]))]) == ["as given", "turned round integer"]
    assert ways_for([("x", torch.ones(1)), ("n", 3)]) == ["as given"]
