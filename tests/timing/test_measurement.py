"""What a timing says of its kernels."""

import pytest
import torch

from pytest_gpubench.timing.measurement import demangled

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
