"""The failure of a rank: its error, the user's own lines of the traceback, how its process ended."""

import os
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpubench.errors import GpuBenchError, MeasurementError, WrongResult
from pytest_gpubench.results.model import text_of

__tracebackhide__ = True

OURS = f"{Path(__file__).parents[2]}{os.sep}"
"""The beginning of the names of our files."""


@dataclass(frozen=True)
class Failure:
    """Why a rank cannot go on."""

    kind: type[Exception]
    """The error that the test raises for it."""
    sentence: str
    traceback: str = ""
    """The user's own lines of it."""
    died: bool = False
    """True if the process ended without a message."""
    at_s: float = field(default_factory=time.monotonic)
    """The time of the failure, by a clock that all processes share."""


def failure_of(error: BaseException, label: str) -> Failure:
    """Return the failure that an error of a rank is; label: empty until the job has been read."""
    text = (text_of(error).strip().splitlines() or [""])[0]  # the traceback has all of them
    named = f"{type(error).__name__}: {text}".removesuffix(": ")
    if isinstance(error, (GpuBenchError, WrongResult)):
        return Failure(type(error), f"failed: {text}", _own_traceback(error.__cause__) if error.__cause__ else "")
    sentence = f"raised {named}" if label else f"cannot begin ({named})"
    return Failure(MeasurementError, sentence, _own_traceback(error))


def _own_traceback(error: BaseException) -> str:
    """Return an error's traceback without our lines, unless there are no others."""
    trace = traceback.TracebackException.from_exception(error)
    if any(not frame.filename.startswith(OURS) for frame in trace.stack):
        _leave_out_ours(trace)
    return "".join(trace.format()).rstrip()


def _leave_out_ours(trace: traceback.TracebackException | None) -> None:
    if trace is None:
        return
    frames = [frame for frame in trace.stack if not frame.filename.startswith(OURS)]
    trace.stack = traceback.StackSummary.from_list(frames)
    # exceptions: of a group, from Python 3.11 on
    for other in (trace.__cause__, trace.__context__, *(getattr(trace, "exceptions", None) or ())):
        _leave_out_ours(other)
