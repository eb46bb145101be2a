"""The profiler's start in the background: 4 to 6 s where CUPTI's libraries have to come from the disk."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import GpuBenchError

if TYPE_CHECKING:
    from pytest_gpubench.gpu.device import Device

LOG_LEVEL = "KINETO_LOG_LEVEL"
NO_LOG = "6"
"""Above every level of Kineto's log, whose highest, 5, is two lines on stderr for each session of torch 2.13."""

_startup: threading.Thread | None = None


def start_in_background(device: "Device") -> None:
    """Start the profiler while the first tests set themselves up.

    Our own kernels are compiled and our buffers made before it begins: what may warn, or allocate, belongs to the
    thread that runs the tests. So does the garbage collector, which is left as it is.
    """
    from pytest_gpubench.timing.base import call_of
    from pytest_gpubench.timing.profiler import ProfilerTimer

    def start() -> None:
        with timer.session() as session:
            session.take(call_of("noop", timer.sentinels.noop), 0.0)

    with suppress(GpuBenchError):  # the first measurement says what is wrong
        timer = ProfilerTimer(device, "cold")
        begin_startup(start)


def begin_startup(start: Callable[[], object]) -> None:
    """Run the start in the background, once; profilers and graph captures of others wait until it is over."""
    global _startup

    def run() -> None:
        # what goes wrong here goes wrong again in the first measurement, which can say so
        with others_waiting(), suppress(Exception):
            start()

    if _startup is None:
        init_kineto()
        _startup = threading.Thread(target=run, name="gpu_bench startup", daemon=True)
        _startup.start()


def wait_for_startup() -> None:
    """Wait until the background start, if there is one, is over: it holds up what others launch."""
    if _startup is not None and _startup is not threading.current_thread():
        _startup.join()


@cache
def init_kineto() -> None:
    """Initialise torch's profiler library by a session of CPU activity, which takes 1 ms.

    It reads its log level only then. In another thread than the one that imported torch it prints "ERROR: External
    init callback must run in same thread as registerClient", whatever the level.
    """
    import torch

    if torch._C._autograd._profiler_enabled():  # it is initialised, and a nested session breaks both
        return
    given = os.environ.get(LOG_LEVEL)
    os.environ[LOG_LEVEL] = NO_LOG if given is None else given
    try:
        with suppress(Exception), torch.autograd.profiler.profile(use_kineto=True):
            pass
    finally:
        if given is None:
            del os.environ[LOG_LEVEL]


@contextmanager
def others_waiting() -> Iterator[None]:
    """Make profilers started, and graphs captured, by other threads wait until this context is left.

    A profiler started while another one starts breaks both ("Can't disable Kineto profiler when it's not running",
    then empty results, seen with torch 2.11); an allocation by this thread would invalidate another's capture.
    """
    import torch

    over, owner = threading.Event(), threading.current_thread()
    choke_points = [(torch.autograd.profiler.profile, "_prepare_trace"), (torch.cuda.CUDAGraph, "capture_begin")]
    originals = [(place, name, getattr(place, name)) for place, name in choke_points if hasattr(place, name)]

    def waiting(original: Any) -> Any:
        def wait_first(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not owner:
                over.wait()
            return original(*args, **kwargs)

        return wait_first

    for place, name, original in originals:
        setattr(place, name, waiting(original))
    try:
        yield
    finally:
        for place, name, original in originals:
            setattr(place, name, original)
        over.set()
