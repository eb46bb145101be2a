"""Whether CUDA was started in this process."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_gpubench.gpu import context
from pytest_gpubench.gpu.context import cuda_was_started


@pytest.mark.parametrize(
    ("modules", "driver", "expected"),
    [
        ({}, False, False),
        ({}, True, True),  # by something else than torch
        ({"torch": SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))}, False, True),
        ({"torch": SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))}, False, False),
        ({"torch": SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))}, True, True),
        ({"torch": SimpleNamespace()}, False, False),
        ({"torch": None}, False, False),
    ],
)
def test_whether_cuda_was_started(
    monkeypatch: pytest.MonkeyPatch, modules: dict[str, object], driver: bool, expected: bool
) -> None:
    monkeypatch.setattr(context, "driver_was_started", lambda: driver)
    assert cuda_was_started(modules) == expected


@pytest.mark.parametrize(("error", "expected"), [(3, False), (0, True), (100, True), (OSError(), False)])
def test_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch, error: int | OSError, expected: bool) -> None:
    modes: list[int] = []

    def load(name: str, mode: int) -> SimpleNamespace:
        modes.append(mode)
        if isinstance(error, OSError):
            raise error
        return SimpleNamespace(cuDeviceGetCount=lambda _: error)

    monkeypatch.setattr("ctypes.CDLL", load)
    assert context.driver_was_started() == expected
    assert modes == [os.RTLD_NOLOAD | os.RTLD_LAZY]


def test_without_a_driver_cuda_was_not_started() -> None:
    code = "from pytest_gpubench.gpu.context import cuda_was_started as c; import sys; print(c(), *sys.modules)"
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert words[0] == "False"
    assert not {"torch", "pynvml", "pytest", "msgspec"} & set(words)
