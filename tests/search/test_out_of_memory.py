"""Which errors are of a GPU whose memory is full."""

import pytest

from pytest_gpubench import DeviceUnavailable
from pytest_gpubench.search.out_of_memory import is_out_of_memory
from tests.search.errors import caused_by, full

pytestmark = pytest.mark.usefixtures("quick_collection")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (full(), True),
        (caused_by(full(), DeviceUnavailable("no room for the buffer")), True),
        (RuntimeError("CUDA error: out of memory\nCompile with ..."), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("CUDA error: out of memory"), False),
        (MemoryError(), False),
        (DeviceUnavailable("no room"), False),
        (None, False),
    ],
)
def test_what_is_out_of_memory(error: Exception | None, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_what_was_raised_while_handling_it_is_something_else() -> None:
    error = AssertionError("the fallback is wrong")
    error.__context__ = full()
    assert not is_out_of_memory(error)
