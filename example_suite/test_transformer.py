"""A whole training step: which part takes how long, what the parts add up to, and what a CUDA graph of it saves.

The limits hold on an H200.
"""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from example_suite.sizes import FULL_SIZE
from example_suite.transformer import EPS, Block, Training, rms_norm
from pytest_gpubench import GpuBench

HIDDEN, HEADS, BATCH, TOKENS = (1024, 16, 4, 1024) if FULL_SIZE else (32, 2, 2, 8)
DTYPES = [torch.float32, torch.bfloat16]
PATHS = [
    "forward",
    "forward/attention",
    "forward/attention/rms_norm",
    "forward/mlp",
    "forward/mlp/rms_norm",
    "loss",
    "backward",
    "backward/rms_norm",
    "optimizer",
    "(outside)",
]

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def make_training(dtype: torch.dtype, device: torch.device) -> Training:
    return Training(Block(HIDDEN, HEADS, dtype, device))


def batch(dtype: torch.dtype, device: torch.device, tokens: int = TOKENS) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(BATCH, tokens, HIDDEN, dtype=dtype, device=device)
    return x, torch.randn_like(x)


def capture(step: Step, x: torch.Tensor, target: torch.Tensor) -> Step:
    """Return what replays a CUDA graph of the step; it reads x and the target where they are now."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(x, target)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(x, target)

    def replay(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        graph.replay()
        return loss

    return replay


# that it is right


def test_rms_norm_matches_torch(device: torch.device) -> None:
    x = torch.randn(3, 5, 32, dtype=torch.float64, device=device, requires_grad=True)
    weight = torch.rand(32, dtype=torch.float64, device=device, requires_grad=True)
    out, expected = rms_norm(x, weight), functional.rms_norm(x, (32,), weight, EPS)
    torch.testing.assert_close(out, expected)
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, (x, weight), upstream)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (x, weight), upstream))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_sees_none_that_follow(device: torch.device, dtype: torch.dtype) -> None:
    block, (x, _) = Block(32, 2, dtype, device), batch(dtype, device, 8)
    x = x[..., :32].contiguous()
    changed = x.clone()
    changed[:, 5:] = 0
    out, other = block(x), block(changed)
    torch.testing.assert_close(out[:, :5], other[:, :5])
    assert not torch.equal(out[:, 5:], other[:, 5:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_leaves_gradients_and_no_trace_in_the_weights(device: torch.device, dtype: torch.dtype) -> None:
    training, (x, target) = make_training(dtype, device), batch(dtype, device)
    before = [weight.clone() for weight in training.block.parameters()]
    losses = [training.step(x, target) for _ in range(2)]
    torch.testing.assert_close(losses[0], losses[1])
    for weight, kept in zip(training.block.parameters(), before, strict=True):
        assert torch.equal(weight, kept)
        assert weight.grad is not None
        assert weight.grad.isfinite().all()
        assert weight.grad.any()


# where its time goes


@pytest.mark.perf(max_rel_std=0.05)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_part_of_a_step_is_accounted_for(gpu_bench: GpuBench, dtype: torch.dtype) -> None:
    training = make_training(dtype, gpu_bench.device)
    timing = gpu_bench.measure(training.step, batch(dtype, gpu_bench.device))
    assert [part.path for part in timing.regions] == PATHS
    calls = {part.path: part.calls for part in timing.regions}
    assert (calls["forward/mlp"], calls["backward/rms_norm"]) == (1, 2)
    tops = [part for part in timing.regions if not part.depth]
    for rep in range(len(tops[0].total_ns)):
        assert sum(part.total_ns[rep] for part in tops) == sum(part.own_ns[rep] for part in timing.regions)
    gpu_bench.extra_info["backward_share"] = next(part.share for part in tops if part.path == "backward")


@pytest.mark.perf(max_rel_std=0.05)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_halves_of_a_block_against_the_whole(gpu_bench: GpuBench, dtype: torch.dtype) -> None:
    block, (x, _) = Block(HIDDEN, HEADS, dtype, gpu_bench.device), batch(dtype, gpu_bench.device)
    found = gpu_bench.phases({"attention": block.attend, "mlp": block.feed}, block, (x,), elements=BATCH * TOKENS)
    assert found["attention"].share + found["mlp"].share == pytest.approx(1)
    assert found.adds_up or found.explanation


@pytest.mark.perf(max_rel_std=0.05)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_phases_of_a_step_against_the_whole(gpu_bench: GpuBench, dtype: torch.dtype) -> None:
    training, (x, target) = make_training(dtype, gpu_bench.device), batch(dtype, gpu_bench.device)
    training.step(x, target)  # leaves gradients, for the optimizer alone
    other = make_training(dtype, gpu_bench.device).block  # a backward needs weights that no optimizer touches
    weights, loss = list(other.parameters()), Training(other).loss(x, target)
    found = gpu_bench.phases(
        {
            "forward": lambda: training.loss(x, target),
            "backward": lambda: torch.autograd.grad(loss, weights, retain_graph=True),
            "optimizer": training.optimizer.step,
        },
        lambda: training.step(x, target),
        elements=BATCH * TOKENS,
    )
    assert sum(phase.share for phase in found.phases) == pytest.approx(1)


# what a graph saves


@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.parametrize("dtype", DTYPES)
def test_replay_matches_eager(device: torch.device, dtype: torch.dtype) -> None:
    training, (x, target) = make_training(dtype, device), batch(dtype, device)
    replay = capture(training.step, x, target)
    x.copy_(batch(dtype, device)[0])
    found = replay(x, target).clone()
    torch.testing.assert_close(found, training.step(x, target), rtol=0.016, atol=0.0)


@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.perf(min_speedup=0.95)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_graph_of_a_step_costs_no_gpu_time(gpu_bench: GpuBench, dtype: torch.dtype) -> None:
    training, inputs = make_training(dtype, gpu_bench.device), batch(dtype, gpu_bench.device)
    gpu_bench.compare({"graph": capture(training.step, *inputs)}, training.step, inputs, rtol=0.016, atol=0.0)


# some hundred small kernels: the host needs longer to launch them than the GPU to run them
@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.perf(min_speedup=2.0)
def test_a_graph_of_a_short_step_saves_the_launches(gpu_bench: GpuBench) -> None:
    inputs = batch(torch.bfloat16, gpu_bench.device, tokens=32)
    training = make_training(torch.bfloat16, gpu_bench.device)
    candidates = {"graph": capture(training.step, *inputs)}
    gpu_bench.compare(candidates, training.step, inputs, rtol=0.016, atol=0.0, timer="wall")
