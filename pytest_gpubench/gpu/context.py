"""The CUDA context of this process: whether it was started, and whether it can still be used."""

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pytest_gpubench.errors import causes_of, first_line
from pytest_gpubench.units import printable

SUSPICIOUS = re.compile(r"cuda|cublas|cudnn|nccl|accelerator", re.IGNORECASE)
CUDA_LIBRARY = "libcuda.so.1"
CUDA_ERROR_NOT_INITIALIZED = 3


def cuda_was_started(modules: Mapping[str, Any] = sys.modules) -> bool:
    """Tell whether CUDA was started in this process, after which CUDA_VISIBLE_DEVICES changes nothing.

    The driver is asked too, if it is loaded: counting GPUs starts it, and others than torch may. Asking imports and
    starts nothing.
    """
    torch = modules.get("torch")
    with suppress(AttributeError):  # a torch that is being imported
        if torch is not None and torch.cuda.is_initialized():
            return True
    import ctypes

    try:  # tells whether cuInit was called
        driver = ctypes.CDLL(CUDA_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED)
    except (OSError, AttributeError):
        return False


def context_error() -> str | None:
    """Return the error that every CUDA call of this process now ends with; None where CUDA is usable or not used."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError as error:
        return printable(first_line(error))
    except AttributeError:  # a torch that is being imported
        pass
    return None


def may_be_cuda_error(error: BaseException | None) -> bool:
    """Tell whether an error or one of its causes may come from CUDA, so that it is worth waiting for CUDA to ask it."""
    with suppress(Exception):  # of a foreign `__str__` or `__cause__`: CUDA's errors have none of their own
        return any(SUSPICIOUS.search(f"{type(each).__name__}: {each}") for each in causes_of(error))
    return False
