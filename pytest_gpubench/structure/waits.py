"""Waits of the host for the GPU.

torch's sync debug mode sees torch's own operations wait (`.item()`, `.cpu()`, `nonzero`, `Stream.synchronize`), and the
stack tells where. It does not see `torch.cuda.synchronize` and `Event.synchronize`: calls of those from Python are seen
by Python's profile function, in the thread that calls.
"""

import linecache
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from pytest_gpubench.results.observed import Wait

SYNC_WARNING = "called a synchronizing CUDA operation"
BLIND_SPOTS = frozenset({"_cuda_synchronize", "_accelerator_synchronizeDevice", "synchronize"})
"""Functions of torch's C++ that wait unseen by its debug mode: of the methods `synchronize`, those of events."""
WARNINGS_FILES = ("warnings.py", "_py_warnings.py")
OWN_FOLDER = f"{Path(__file__).parents[1]}{os.sep}"


@contextmanager
def noting_waits(waits: list[Wait]) -> Iterator[None]:
    """Note where the host waits for the GPU, as torch and Python see it."""

    def show(message: Warning | str, *others: Any, **more: Any) -> None:
        if SYNC_WARNING in str(message):
            waits.append(wait_at(sys._getframe(1), "an operation of torch"))

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with noting_blind_spots(waits):
                yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def noting_blind_spots(waits: list[Wait]) -> Iterator[None]:
    """Note where Python calls what torch's debug mode does not see; a profile that somebody else takes goes on."""

    def see(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call" or getattr(function, "__name__", "") not in BLIND_SPOTS:
            return
        if function.__name__ != "synchronize" or isinstance(function.__self__, (torch.cuda.Event, torch.Event)):
            waits.append(wait_at(frame, "synchronize()"))

    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)


def wait_at(frame: FrameType | None, otherwise: str) -> Wait:
    """Return a wait with the source line of the innermost frame that is neither torch's nor ours."""
    while frame is not None and is_of_libraries(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return Wait(otherwise)
    name = frame.f_code.co_filename
    source = linecache.getline(name, frame.f_lineno, frame.f_globals).strip()
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return Wait(source or otherwise, f"{name if relative.startswith(os.pardir) else relative}:{frame.f_lineno}")


def is_of_libraries(filename: str) -> bool:
    """Tell whether a file is torch's or written by it, triton's, Python's `warnings`, or this package's."""
    folders = [Path(module.__file__ or "").parent for name in ("torch", "triton") if (module := sys.modules.get(name))]
    ours = (OWN_FOLDER, *(f"{folder}{os.sep}" for folder in folders))
    return filename.startswith(ours) or "torchinductor_" in filename or Path(filename).name in WARNINGS_FILES
