"""The kernels that mark where a rep begins and ends, where Triton can compile them."""

import os
from functools import cache as memoise
from typing import TYPE_CHECKING

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import unwarned

if TYPE_CHECKING:
    from pytest_gpubench.timing.kernels import Sentinels


def sentinels_of(device: Device) -> "Sentinels":
    """Return the device's sentinels; raise DeviceUnavailable where kernels are not compiled now."""
    _check_triton()
    return _compiled(device)


@memoise
def _compiled(device: Device) -> "Sentinels":
    from pytest_gpubench.timing.kernels import Sentinels

    sentinels = Sentinels(device)
    with unwarned():
        sentinels.begin(0)
        sentinels.end(1)
        sentinels.noop()
    device.synchronize()
    return sentinels


def _check_triton() -> None:
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y"):
        raise DeviceUnavailable(
            "TRITON_INTERPRET=1 is set: Triton would run on the CPU and nothing could be measured on the GPU; unset it"
        )
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise DeviceUnavailable(
            f"reps are marked with Triton kernels, but Triton cannot be imported ({error}): "
            "install triton, or use --gpu-bench-timer=wall"
        ) from None
