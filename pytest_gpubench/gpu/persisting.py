"""L2 cache set aside for persisting data, and lines of the highest priority in it.

CUDA sets aside 3/16 of the cache (9.4 MiB on an H100) for kernels that ask for it. No flush that reads leaves their
data: it reads with the same priority, and after it a kernel on data in such a window takes as long as one without. A
limit that a call raises leaves the others less cache: with 31 MiB set aside, 3.10 instead of 2.94 us on an H100.
"""

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_gpubench.errors import InvalidResult
from pytest_gpubench.gpu.context import CUDA_LIBRARY
from pytest_gpubench.units import format_bytes

LIMIT_PERSISTING_L2_CACHE_SIZE = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE of cuda.h: a limit of the process's CUDA context, not of the GPU."""
PARTS = 16


@contextmanager
def set_aside_as_before(
    cache_bytes: int, driver: Any = None, before_bytes: int | None = None
) -> Iterator[Callable[[], None]]:
    """Raise InvalidResult if a block changes how much cache is set aside, and put that back.

    cache_bytes: the size of the L2 cache. driver: the CUDA driver's library; None loads it. before_bytes: what has to
    be set aside; None for what is now. Yields the check, for calls that put it back before the end.
    """
    driver = driver or driver_library()
    before = persisting_bytes(driver) if before_bytes is None else before_bytes
    own = "set it before, for all calls alike, or use cache='hot'"
    advice = own if before_bytes is None else "leave it as it was when the process began"

    def check() -> None:
        if _parts(now := persisting_bytes(driver), cache_bytes) != _parts(before, cache_bytes):
            raise InvalidResult(
                f"a call changed how much of the L2 cache is set aside for persisting data from {format_bytes(before)} "
                f"to {format_bytes(now)}: the others have what is left; {advice}"
            )

    try:
        yield check
        check()
    finally:
        if persisting_bytes(driver) != before:
            driver.cuCtxSetLimit(LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(before))


def _parts(set_aside_bytes: int, cache_bytes: int) -> int:
    """Return the sixteenths of the cache that are set aside.

    The driver sets whole ones aside, and says so later: 4 MiB of an H100's 50 were 6.25 once a kernel had run.
    """
    return math.ceil(set_aside_bytes / max(cache_bytes // PARTS, 1))


def driver_library() -> Any:
    """Return the CUDA driver's library; None where there is none."""
    try:
        return ctypes.CDLL(CUDA_LIBRARY)
    except OSError:
        return None


def persisting_bytes(driver: Any) -> int:
    """Return the bytes of the L2 cache that the CUDA context sets aside; 0 if they are not known."""
    size = ctypes.c_size_t(0)
    try:
        failed = driver.cuCtxGetLimit(ctypes.byref(size), LIMIT_PERSISTING_L2_CACHE_SIZE)
    except AttributeError:
        return 0
    return 0 if failed else size.value
