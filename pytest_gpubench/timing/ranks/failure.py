"""Why a rank cannot go on, told once: its error, the user's own lines of the traceback, how its process ended."""

import os
import signal
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpubench.errors import GpuBenchError, MeasurementError, WrongResult

__tracebackhide__ = True

OURS = f"{Path(__file__).parents[2]}{os.sep}"
"""What the name of a file of ours begins with."""


@dataclass(frozen=True)
class Failure:
    """What a rank says of itself when it cannot go on."""

    kind: type[Exception]
    """What the test is to raise."""
    sentence: str
    traceback: str = ""
    """Of the user's own lines."""
    died: bool = False
    """Whether it ended without a word."""
    at_s: float = field(default_factory=time.monotonic)
    """By a clock that all processes share."""


def failure_of(error: BaseException, label: str) -> Failure:
    """Return what the test is to raise for an error of a rank."""
    text = (str(error).strip().splitlines() or [""])[0]  # the traceback has all of them
    named = f"{type(error).__name__}: {text}".removesuffix(": ")
    if isinstance(error, (GpuBenchError, WrongResult)):
        return Failure(type(error), f"failed: {text}", own_traceback(error.__cause__) if error.__cause__ else "")
    sentence = f"raised {named}" if label else f"cannot begin ({named})"
    return Failure(MeasurementError, sentence, own_traceback(error))


def own_traceback(error: BaseException) -> str:
    """Return an error's traceback without our lines; with them where there are no others."""
    trace = traceback.TracebackException.from_exception(error)
    if any(not frame.filename.startswith(OURS) for frame in trace.stack):
        leave_out_ours(trace)
    return "".join(trace.format()).rstrip()


def leave_out_ours(trace: traceback.TracebackException | None) -> None:
    """Leave our lines out of the traceback of an error, and of those that it came from."""
    if trace is None:
        return
    trace.stack = traceback.StackSummary.from_list(
        [frame for frame in trace.stack if not frame.filename.startswith(OURS)]
    )
    leave_out_ours(trace.__cause__)
    leave_out_ours(trace.__context__)
    for each in getattr(trace, "exceptions", None) or ():  # of a group, from Python 3.11 on
        leave_out_ours(each)


def own_lines(dump: str) -> list[str]:
    """Return of what a process wrote about where it is, the innermost line first, those that are not ours."""
    lines = [line for line in dump.splitlines() if line.lstrip().startswith("File ")]
    within = next((place for place, line in enumerate(lines) if line.endswith(" in run_rank")), len(lines))
    return [line for line in lines[:within] if OURS not in line]


def died(code: int | None, doing: str) -> str:
    """Return how a process ended that did not say why."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name} while it was {doing}"
    return f"ended with exit code {code} while it was {doing}"
