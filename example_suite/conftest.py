"""Where the examples run, and how large they are there."""

import pytest
import torch

from example_suite.sizes import FULL_SIZE


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Return the GPU; the CPU where there is none, or where Triton interprets its kernels.

    `gpu_bench.device` would do as well, but a test that uses `gpu_bench` is a perf test, and `pytest -m "not perf"`
    is to check that the kernels are right.
    """
    return torch.device("cuda" if FULL_SIZE else "cpu")


@pytest.fixture(scope="session")
def full_size() -> bool:
    """Tell whether to take realistic sizes."""
    return FULL_SIZE


@pytest.fixture
def needs_gpu(device: torch.device) -> None:
    """Skip the test where there is no GPU."""
    if device.type != "cuda":
        pytest.skip("needs a GPU: CUDA graphs, and what torch.compile makes for one, cannot be run here")


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """Seed torch, so that a tolerance that holds once holds always."""
    torch.manual_seed(0)
