"""Captures: untimed calls in a process that ncu watches, each after a flush and a kernel that marks its beginning."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.sentinels import sentinels_of

WARM_CALLS = 3
"""Calls before the first capture: torch.compile with CUDA graphs needs three."""
CAPTURES = 3


def take_captures(call: Call, device: Device, cache: Cache, note: Callable[[], object]) -> None:
    """Make a call a few times while ncu listens, once it is warm; note: called before each."""
    flush, mark = make_flush(device, cache), sentinels_of(device).noop
    for _ in range(WARM_CALLS):
        call.prepare()()
    for _ in range(CAPTURES):
        timed = call.prepare()
        flush()
        device.synchronize()
        note()
        with listened_to():
            mark()
            timed()
            device.synchronize()


@contextmanager
def listened_to() -> Iterator[None]:
    """Let ncu take the counters of the kernels that are launched meanwhile."""
    import torch

    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
