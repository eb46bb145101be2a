"""Whether CUDA was started in this process."""

import os
from types import SimpleNamespace

import pytest

from pytest_gpubench.gpu.context import cuda_was_started

UNUSED, USED = (
    {"torch": SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda used=used: used))} for used in (0, 1)
)
NOT_STARTED, STARTED = 3, 0
"""The driver's answers."""


@pytest.mark.parametrize(
    ("modules", "driver", "expected"),
    [
        ({}, OSError(), False),
        ({}, NOT_STARTED, False),
        ({}, STARTED, True),  # by something else than torch
        ({}, 100, True),
        (UNUSED, NOT_STARTED, False),
        (UNUSED, STARTED, True),
        (USED, NOT_STARTED, True),
        ({"torch": SimpleNamespace()}, NOT_STARTED, False),
        ({"torch": None}, NOT_STARTED, False),
    ],
)
def test_torch_and_the_driver_are_asked(
    monkeypatch: pytest.MonkeyPatch, modules: dict[str, object], driver: int | OSError, expected: bool
) -> None:
    def load(name: str, mode: int) -> SimpleNamespace:
        assert mode == os.RTLD_NOLOAD | os.RTLD_LAZY
        if isinstance(driver, OSError):
            raise driver
        return SimpleNamespace(cuDeviceGetCount=lambda _: driver)

    monkeypatch.setattr("ctypes.CDLL", load)
    assert cuda_was_started(modules) is expected
