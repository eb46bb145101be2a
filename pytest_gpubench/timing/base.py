"""The interface of timers: each opens a session in which reps are taken, with nothing between two launches."""

import gc
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pytest_gpubench.gpu.readings import NO_READING, Reading

Leaves = list[tuple[str, object]]
"""Leaves of arguments by name."""


@dataclass(frozen=True)
class Prepared:
    """The timed part of a rep, ready to run."""

    run: Callable[[], object]
    args: tuple[object, ...] = ()
    """The arguments of the user's function in it."""
    kwargs: dict[str, object] = field(default_factory=dict)
    made: tuple[Any, ...] = ()
    """Its other inputs, made for this rep alone: a forward run's outputs, and the gradients at them."""
    keep: Callable[[object], object] | None = None
    """Told the output where something else runs in its place."""
    on_device: bool = False
    """True if preparing this rep, unlike others, may have launched work on the GPU."""

    def __call__(self) -> object:
        """Run it."""
        return self.run()


@dataclass(frozen=True)
class Call:
    """Something to time: `prepare` does the untimed part of a rep and returns the part that is timed."""

    label: str
    prepare: Callable[[], Prepared]
    function: Callable[..., object]
    """The user's function, which is timed."""
    prepares_on_device: bool = False
    """True if `prepare` may itself launch work on the GPU."""
    flags: Callable[[], Sequence[str]] = tuple
    """Returns warnings about what the calls so far did."""
    inputs: Callable[[], Leaves] | None = None
    """Returns what each rep is given, by name; None where that is not the same memory in each."""


def call_of(label: str, function: Callable[[], object]) -> Call:
    """Return the call of a function that takes nothing, and for which nothing has to be prepared."""
    return Call(label, lambda: Prepared(function), function)


@dataclass(frozen=True)
class Record:
    """One kernel, copy or memset on the GPU, on the clock of the session."""

    name: str
    kind: Literal["kernel", "memcpy", "memset"]
    start_ns: int
    end_ns: int
    launch: int = 0
    """CUPTI's number of the call that launched it, which grows from one call of the process to the next."""

    @property
    def duration_ns(self) -> int:
        """Its duration."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Rep:
    """One timed call."""

    elapsed_us: float
    records: tuple[Record, ...] = ()
    sm_clock_mhz: float | None = None
    flags: tuple[str, ...] = ()
    """Warnings about its time."""
    reading: Reading = field(default=NO_READING, kw_only=True)
    """NVML's readings right after it; some may be some milliseconds old."""
    window_us: float = field(default=0.0, kw_only=True)
    """The time between its sentinels, where the timer sees kernels."""
    host_us: float = field(default=0.0, kw_only=True)
    """The time of the call on the host, until it returned, where the timer notes it."""


class Session(ABC):
    """A stretch of reps that are taken together; used as a context, and read when it has been left."""

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        return None

    @abstractmethod
    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep: prepare, leave the device idle, bring the cache into its state, and time the call."""

    @abstractmethod
    def reps(self) -> Sequence[Rep]:
        """Return the reps in the order they were taken; raise MeasurementError if they are not all there."""


class Timer(ABC):
    """A way to time calls."""

    name: ClassVar[str]
    max_reps: ClassVar[int] = 1000
    """The reps that one session can hold."""
    tick_us: float = 0.0
    """The step of its readings where that is coarse; 0 where it is not."""
    sees_kernels: ClassVar[bool] = False
    settles: ClassVar[bool] = True
    """True if calls have to be warmed up before their times mean anything."""
    remarks: Mapping[str, str] = MappingProxyType({})
    """Warnings by label, about calls that this timer cannot time as it should."""

    def clock_s(self) -> float:
        """Return the time in seconds that reps are paid with: a measurement takes as many as its budget allows."""
        return time.perf_counter()

    def calibrate(self, call: Call, reps: Sequence[Rep], idle_s: float, rep_s: float) -> Sequence[Rep]:
        """Learn, given a call's reps at rest, what the timer adds to its time; return them as they are without that.

        rep_s: what a rep takes on the host.
        """
        return reps

    def cross_check(self, call: Call, reps: Sequence[Rep], idle_s: float) -> None:
        """Raise IncompleteRecords where the GPU worked on a call for much longer than the records of its reps say."""
        return None

    @abstractmethod
    def session(self) -> Session:
        """Return a new session."""


PROBE_REPS = 5


def reps_of(session: Session, call: Call, number: int, idle_s: float = 0.0) -> Sequence[Rep]:
    """Return so many reps of a call from a session of their own, throttled or not."""
    with collection_off(), session:
        for _ in range(number):
            session.take(call, idle_s)
    return session.reps()


@contextmanager
def collection_off() -> Iterator[None]:
    """Keep Python's garbage collector from running between two launches."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def unwarned() -> Iterator[None]:
    """Let kernels of our own be compiled: Triton 3.9 warns, with each compilation, of a default of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
