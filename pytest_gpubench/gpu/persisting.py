"""L2 cache set aside for persisting data: data in it survives a flush, so it must be empty.

CUDA sets aside 3/16 of the cache for a process that asks (11.25 MiB on an H200). Resetting the lines alone does not
evict them: the limit must be 0 too, which makes them ordinary lines.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_gpubench.errors import InvalidResult
from pytest_gpubench.units import format_bytes

LIMIT_PERSISTING_L2_CACHE_SIZE = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE of cuda.h: a limit of the process's CUDA context, not of the GPU."""


@contextmanager
def nothing_persists(driver: Any = None) -> Iterator[Callable[[], None]]:
    """Let no data persist in the L2 cache during a block; raise InvalidResult if the block sets cache aside.

    driver: the CUDA driver's library; None loads it. Does nothing where the driver has no such limit. Yields the check,
    for calls that give back what they set aside before the block ends.
    """
    driver = driver or load_driver()
    before = persisting_bytes(driver)
    if before and driver.cuCtxSetLimit(LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(0)):
        yield lambda: None
        return

    def check() -> None:
        if kept := persisting_bytes(driver):
            raise InvalidResult(
                f"{format_bytes(kept)} of the L2 cache were set aside for persisting data while it was measured, "
                "and no flush reaches them: the cache is not cold; leave the limit alone, or measure with cache='hot'"
            )

    try:
        if before:
            driver.cuCtxResetPersistingL2Cache()
        yield check
        check()
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
    """Return the bytes of the L2 cache that the CUDA context sets aside; 0 if they are not known."""
    size = ctypes.c_size_t(0)
    try:
        failed = driver.cuCtxGetLimit(ctypes.byref(size), LIMIT_PERSISTING_L2_CACHE_SIZE)
    except AttributeError:
        return 0
    return 0 if failed else size.value
