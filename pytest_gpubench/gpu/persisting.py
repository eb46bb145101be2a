"""L2 cache set aside for data that persists: what lies there survives a flush, so nothing may lie there.

CUDA sets 3/16 of the cache aside for whoever asks (11.25 MiB on an H200), and a reset of the lines alone does not make
them leave it: the limit has to be 0 as well, which makes them lines like any other.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytest_gpubench.errors import InvalidResult
from pytest_gpubench.units import format_bytes

LIMIT_PERSISTING_L2_CACHE_SIZE = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE of cuda.h: a limit of the process's CUDA context, no setting of the GPU."""


@contextmanager
def nothing_persists(driver: Any = None) -> Iterator[None]:
    """Let no data persist in the L2 cache meanwhile; raise InvalidResult if somebody set cache aside for it again.

    driver: the CUDA driver's library; None loads it. Does nothing where the driver knows no such limit.
    """
    driver = driver or load_driver()
    before = persisting_bytes(driver)
    if before and driver.cuCtxSetLimit(LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(0)):
        yield
        return
    try:
        if before:
            driver.cuCtxResetPersistingL2Cache()
        yield
        if kept := persisting_bytes(driver):
            raise InvalidResult(
                f"{format_bytes(kept)} of the L2 cache were set aside for persisting data while it was measured, "
                "and no flush reaches them: the cache is not cold; leave the limit alone, or measure with cache='hot'"
            )
    finally:
        if persisting_bytes(driver) != before:
            driver.cuCtxSetLimit(LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(before))


def load_driver() -> Any:
    """Return the CUDA driver's library; None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def persisting_bytes(driver: Any) -> int:
    """Return how many bytes of the L2 cache the current CUDA context sets aside; 0 where that cannot be found out."""
    size = ctypes.c_size_t(0)
    try:
        failed = driver.cuCtxGetLimit(ctypes.byref(size), LIMIT_PERSISTING_L2_CACHE_SIZE)
    except AttributeError:
        return 0
    return 0 if failed else size.value
