"""Planted kernels of the study `margins` that may break the GPU, as tests: a fresh process names the tensor."""

import pytest
import torch

from pytest_gpubench import GpuBench
from tests.on_gpu.study.margins_planted import PLANTED

BY_NAME = {each.name: each for each in PLANTED if each.may_fault}


@pytest.mark.parametrize("name", BY_NAME)
def test_planted(gpu_bench: GpuBench, name: str) -> None:
    garbage = [torch.randint(2**62, (2**16,), device=gpu_bench.device) for _ in range(8)]
    del garbage  # what lies behind small tensors then is no index
    candidate, reference, args = BY_NAME[name].make(gpu_bench.device)
    gpu_bench.compare({"it": candidate}, reference, args, vary=False, reps=12, rtol=1e-3, atol=1e-3)
