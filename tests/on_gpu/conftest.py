from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import torch

from pytest_gpubench import GpuBench

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs a GPU: nothing here is proved by this run"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test pass that catches our errors, as no other may: they are what it is about."""
    result = yield
    bench: GpuBench | None = getattr(item, "funcargs", {}).get("gpu_bench")
    test = bench._current() if bench else None
    if test is not None:
        test.failures.clear()
    return result


@pytest.fixture
def x(gpu_bench: GpuBench) -> torch.Tensor:
    return torch.randn(2**20, device=gpu_bench.device)


@pytest.fixture
def cached() -> torch.Tensor:
    """A tensor of a sixth of the L2 cache."""
    return torch.randn(torch.cuda.get_device_properties(0).L2_cache_size // 24_576 * 1024, device="cuda")


@pytest.fixture
def token(gpu_bench: GpuBench) -> Callable[[], object]:
    """A kernel of next to no work, so that something is recorded."""
    from tests.on_gpu.doubling import double_into

    cell = torch.zeros(32, device=gpu_bench.device)
    return lambda: double_into(cell, cell)


@pytest.fixture
def side_stream() -> Iterator[torch.cuda.Stream]:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    yield stream
    stream.synchronize()
