"""Explain where the time of a training step goes: by regions inside of it, and by phases measured alone."""

from functools import partial

import pytest
import torch

from example_suite import ON_GPU
from example_suite.transformer import Block, Training
from pytest_gpubench import GpuBench

HIDDEN, HEADS, BATCH, TOKENS = (1024, 16, 4, 1024) if ON_GPU else (32, 2, 2, 8)


@pytest.fixture
def training(gpu_bench: GpuBench) -> Training:
    return Training(Block(HIDDEN, HEADS, torch.bfloat16, gpu_bench.device))


@pytest.fixture
def batch(gpu_bench: GpuBench) -> tuple[torch.Tensor, torch.Tensor]:
    x, target = torch.randn(2, BATCH, TOKENS, HIDDEN, dtype=torch.bfloat16, device=gpu_bench.device)
    return x, target


def test_regions_of_a_step_add_up(
    gpu_bench: GpuBench, training: Training, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    timing = gpu_bench.measure(training.step, batch)
    tops = {part.path: part for part in timing.regions if not part.depth}
    assert list(tops) == ["forward", "loss", "backward", "optimizer", "(outside)"]
    assert sum(part.share for part in tops.values()) == pytest.approx(1)
    gpu_bench.extra_info["backward_share"] = tops["backward"].share


def test_phases_of_a_step_against_the_whole(
    gpu_bench: GpuBench, training: Training, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    training.step(*batch)  # leaves gradients, for the optimizer alone
    other = Training(Block(HIDDEN, HEADS, torch.bfloat16, gpu_bench.device))  # whose weights no optimizer changes
    weights, loss = list(other.block.parameters()), other.loss(*batch)
    phases = {
        "forward": lambda: training.loss(*batch),
        "backward": lambda: torch.autograd.grad(loss, weights, retain_graph=True),
        "optimizer": training.optimizer.step,
    }
    found = gpu_bench.phases(phases, partial(training.step, *batch), elements=BATCH * TOKENS)
    assert sum(phase.share for phase in found.phases) == pytest.approx(1)
