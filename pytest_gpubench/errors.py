"""Everything pytest-gpubench raises.

::

    GpuBenchError
    ├── BadRequest             an option, marker or argument that is not valid
    ├── DeviceUnavailable      the GPU that was asked for is not there, or too full
    ├── BadFile                a file of results that cannot be read, or written
    ├── NotMeasured            a number was asked of a Timing that holds none
    └── MeasurementError       the call ran, but no number can be given for it
        ├── ProfilerBusy       another profiler, or another measurement, is on
        ├── NothingRecorded    no work on the GPU was seen
        ├── IncompleteRecords  records are missing or contradict each other
        ├── KernelsDiffer      one call launches other kernels than the next
        ├── NoBaseline         there is no saved measurement to compare with, and there should be
        ├── UnfairComparison   the arms of a comparison were not given the same work
        └── InvalidResult      the number cannot be true: too fast for the memory, say, or a clock was tampered with
    LimitBroken                a limit of the `perf` marker is broken (an AssertionError)
    WrongResult                a candidate's outputs are not the reference's (an AssertionError)
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class GpuBenchError(Exception):
    """The base of all errors but `LimitBroken` and `WrongResult`."""

    page = "troubleshooting"
    """The page of the documentation that helps; empty where the message says all."""


class BadRequest(GpuBenchError, ValueError):
    """Raised for an option, marker keyword or argument that is not valid."""

    page = ""


class DeviceUnavailable(GpuBenchError, RuntimeError):
    """Raised when the device asked for is missing or has no room for the measurement."""


class BadFile(GpuBenchError, ValueError):
    """Raised for a file of results that is missing, damaged, foreign or of a newer version, or cannot be written."""


class NotMeasured(GpuBenchError):
    """Raised when a number is read from a `Timing` that was not measured; the test is then reported as skipped."""


class MeasurementError(GpuBenchError, RuntimeError):
    """Raised when a call ran but cannot be given a number that is known to be right."""


class ProfilerBusy(MeasurementError):
    """Raised when another profiler or measurement is active: two at once would break both."""


class NothingRecorded(MeasurementError):
    """Raised when a call, or the whole session, left no record of work on the GPU."""


class IncompleteRecords(MeasurementError):
    """Raised when the profiler's records are not complete, however often they were taken."""


class KernelsDiffer(MeasurementError):
    """Raised when calls of one function launch different kernels, so that no two samples mean the same."""


class NoBaseline(MeasurementError):
    """Raised when a test is to be compared with a saved run that has nothing it can be compared with."""

    page = "baselines"


class UnfairComparison(MeasurementError):
    """Raised when what the arms of a comparison did cannot be compared: overwritten inputs, say."""

    page = "comparing"


class InvalidResult(MeasurementError):
    """Raised when a number was measured that cannot be true, or by means that were tampered with."""


class LimitBroken(AssertionError):
    """Raised at the user's line when a limit of the `perf` marker is broken."""

    page = "limits"


class WrongResult(AssertionError):
    """Raised at the user's line when an output of a candidate differs from the reference's by more than is allowed."""

    page = "comparing"


def annotate(error: BaseException, note: str) -> None:
    """Add a note, once, that pytest prints below the error (`add_note`, which Python 3.10 lacks)."""
    notes = dict.fromkeys([*getattr(error, "__notes__", []), note])
    setattr(error, "__notes__", list(notes))  # noqa: B010 # type checkers know the attribute from Python 3.11 on


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it was raised from or while handling; nothing for None."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says; its kind where it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def first_and_last_line(error: BaseException) -> str:
    """Return the first and the last line of what an error says, as one."""
    lines = str(error).splitlines()
    return " ".join(map(str.strip, [*lines[:1], *lines[1:][-1:]]))


def is_ours(frame: FrameType) -> bool:
    """Tell whether code of this package runs in a frame."""
    return str(frame.f_globals.get("__name__")).startswith("pytest_gpubench.")


def hide_frames() -> None:
    """Let pytest leave this package's frames out of tracebacks, so that these end at the user's line."""
    for name, module in list(sys.modules.items()):
        if name.startswith("pytest_gpubench."):
            vars(module)["__tracebackhide__"] = True


@contextmanager
def annotating(note: Callable[[], str]) -> Iterator[None]:
    """Add a note to what is raised in the context, unless it is an error of ours: those say where they come from."""
    try:
        yield
    except GpuBenchError:
        raise
    except Exception as error:
        annotate(error, note())
        raise


@contextmanager
def refusing_cycles(name: str) -> Iterator[None]:
    """Raise BadRequest where the walk through a value, such as args=, does not end."""
    try:
        yield
    except RecursionError:
        raise BadRequest(
            f"{name} has a container that holds itself, or is nested too deep to be looked through: leave that "
            "container out, or let the function hold it"
        ) from None
