"""Where the examples run, and how large they are there."""

import os

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Return the GPU; the CPU where there is none, or where Triton interprets its kernels.

    `gpu_bench.device` would do as well, but a test that uses `gpu_bench` is a perf test, and `pytest -m "not perf"`
    is to check that the kernels are right.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return torch.device("cuda" if torch.cuda.is_available() and not interpreted else "cpu")


@pytest.fixture(scope="session")
def full_size(device: torch.device) -> bool:
    """Tell whether to take realistic sizes: Triton's interpreter would need hours for them."""
    return device.type == "cuda"


@pytest.fixture
def needs_gpu(device: torch.device) -> None:
    """Skip the test where there is no GPU."""
    if device.type != "cuda":
        pytest.skip("needs a GPU: CUDA graphs, and what torch.compile makes for one, cannot be run here")


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """Seed torch, so that a tolerance that holds once holds always."""
    torch.manual_seed(0)
