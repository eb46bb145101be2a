"""Kernel names and idle time of a timing."""

import msgspec
import pytest
import torch

from pytest_gpubench.results.model import Kernel
from pytest_gpubench.timing.measurement import IDLE_GAP_US, demangled, is_idle
from tests.results.measured import timing_of

MANGLED = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (MANGLED, "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<"),
        ("_ZN99a", "_ZN99a"),
        ("f", "f"),  # which is float in a mangled name
    ],
)
def test_names_of_kernels_are_demangled(name: str, shown: str) -> None:
    assert demangled(name).startswith(shown)


def test_a_torch_that_demangles_nothing_leaves_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_demangle")
    assert demangled(MANGLED) == MANGLED


@pytest.mark.parametrize(
    ("launches", "busy_us", "span_us", "idle"),
    [
        (3, 6.0, 6.0 + 2 * IDLE_GAP_US, False),
        (3, 6.0, 6.1 + 2 * IDLE_GAP_US, True),
        (30, 60.0, 200.0, False),  # launches of 5 us
        (2, 200.0, 399.0, False),  # not for most of it
        (2, 200.0, 401.0, True),
        (1, 5.0, 5.0, False),
    ],
)
def test_a_gpu_that_waits_for_the_host(launches: int, busy_us: float, span_us: float, idle: bool) -> None:
    timing = msgspec.structs.replace(
        timing_of((busy_us,) * 3),
        busy_us=(busy_us,) * 3,
        span_us=(span_us,) * 3,
        kernels=(Kernel(name="add", kind="kernel", launches=launches, median_us=1.0),),
    )
    assert is_idle(timing) is idle
    assert not is_idle(msgspec.structs.replace(timing, busy_us=(), span_us=()))
