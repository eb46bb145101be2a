"""A timer that plays given reps, on a clock that only calls and sleeps advance."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat
from typing import cast

import pytest
from torch._C._autograd import DeviceType

from pytest_gpubench import IncompleteRecords
from pytest_gpubench.gpu.readings import Reading
from pytest_gpubench.timing.base import Call, Record, Rep, Session, Timer
from pytest_gpubench.timing.base import call_of as call_of_name
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.rounds import Instrument

POWER, HEAT = 0x04, 0x20
"""Masks of what throttles: a power cap, and a temperature."""
LOST = IncompleteRecords("a sentinel is missing")


@dataclass
class Clock:
    """A clock that only calls and sleeps advance."""

    now_s: float = 0.0
    tick_s: float = 1e-13
    """What goes by from one reading to the next: no two are the same."""
    late_s: float = 0.0
    """What a sleep takes beyond what was asked for."""
    slept_s: list[float] = field(default_factory=list)

    def read_by_all(self, patch: pytest.MonkeyPatch) -> "Clock":
        """Have everything read this clock, and sleep by it, instead of the real one."""
        patch.setattr(time, "perf_counter", self.perf_counter)
        patch.setattr(time, "sleep", self.sleep)
        return self

    def perf_counter(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds + self.late_s


def rep(elapsed_us: float, kernels: str = "a", sm_clock_mhz: float | None = None) -> Rep:
    """Return a rep of kernels named by one letter each, which take equally long one after the other."""
    share_ns = round(1e3 * elapsed_us / max(len(kernels), 1))
    records = [Record(name, "kernel", index * share_ns, (index + 1) * share_ns) for index, name in enumerate(kernels)]
    return Rep(elapsed_us, tuple(records), sm_clock_mhz)


def numbered(number: int) -> Rep:
    """Return a rep that can be told from all others, though they all take about 100 us."""
    return rep(100 + number / 1024)


@dataclass
class ProfilerEvent:
    """What the profiler says of a record: of the host's where its name begins with cuda, unless told otherwise."""

    label: str
    begin_ns: int
    length_ns: int = 10
    number: int = 1
    on_gpu: bool | None = None

    def name(self) -> str:
        return self.label

    def start_ns(self) -> int:
        return self.begin_ns

    def duration_ns(self) -> int:
        return self.length_ns

    def correlation_id(self) -> int:
        return self.number

    def device_type(self) -> DeviceType:
        on_gpu = not self.label.startswith("cuda") if self.on_gpu is None else self.on_gpu
        return DeviceType.CUDA if on_gpu else DeviceType.CPU

    def is_user_annotation(self) -> bool:
        return self.label.startswith("ProfilerStep")


class FakeTimer(Timer):
    """Play the reps that `play` makes of their numbers; the n-th session's records raise the n-th error.

    cost_s: what a rep takes on the clock, without its idle time.
    """

    name = "fake"
    sees_kernels = True

    def __init__(
        self,
        clock: Clock,
        play: Callable[[int], Rep] = numbered,
        errors: Iterable[Exception | None] = (),
        cost_s: float = 0.99e-3,
    ) -> None:
        self.clock = clock
        self.play = play
        self.errors: Iterator[Exception | None] = chain(errors, repeat(None))
        self.cost_s = cost_s
        self.sessions: list[FakeSession] = []

    def clock_s(self) -> float:
        return self.clock.perf_counter()

    @property
    def taken(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        return [len(session.taken) for session in self.sessions]

    def session(self) -> "FakeSession":
        self.sessions.append(FakeSession(self, next(self.errors)))
        return self.sessions[-1]


class FakeSession(Session):
    def __init__(self, timer: FakeTimer, error: Exception | None) -> None:
        self.timer = timer
        self.error = error
        self.taken: list[Rep] = []
        self.idles_s: list[float] = []
        self.collecting: list[bool] = []
        self.left = False

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        self.left = True

    def take(self, call: Call, idle_s: float) -> None:
        self.collecting.append(gc.isenabled())
        self.idles_s.append(idle_s)
        call.prepare()()
        self.timer.clock.now_s += self.timer.cost_s + idle_s
        self.taken.append(self.timer.play(self.timer.taken))

    def reps(self) -> Sequence[Rep]:
        assert self.left, "records are complete when the session has been left"
        if self.error is not None:
            raise self.error
        return self.taken


@dataclass
class Counted:
    """A function that knows how often it was called, and raises in its n-th call."""

    raises: dict[int, BaseException] = field(default_factory=dict)
    calls: int = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls in self.raises:
            raise self.raises[self.calls]


def call_of(function: Callable[[], object]) -> Call:
    return call_of_name("softmax", function)


def instrument_of(timer: Timer, masks: Iterable[int] = ()) -> Instrument:
    """Return a timer with a watch that sees these throttle reasons, one per look, and then nothing at all."""
    readings = chain((Reading(throttle_mask=mask) for mask in masks), repeat(Reading()))
    return Instrument(timer, readings.__next__, Pacing(None))


class ArmsTimer(FakeTimer):
    """Play the reps of several arms: `play_arm` makes them of the arm's name and the rep's number of all."""

    settles = False

    def __init__(
        self,
        clock: Clock,
        play_arm: Callable[[str, int], Rep] = lambda name, number: numbered(number),
        errors: Iterable[Exception | None] = (),
        cost_s: float = 0.99e-3,
        max_reps: int = 1000,
    ) -> None:
        super().__init__(clock, lambda number: play_arm(self.names[number], number), errors, cost_s)
        self.max_reps = max_reps  # type: ignore[misc] # a constant of real timers
        self.names: list[str] = []

    def session(self) -> "ArmsSession":
        self.sessions.append(ArmsSession(self, next(self.errors)))
        return cast(ArmsSession, self.sessions[-1])

    @property
    def names_by_session(self) -> list[str]:
        """The arms of each session's reps, by their names of one letter."""
        ends = list(accumulate(self.sizes))
        return ["".join(self.names[end - size : end]) for end, size in zip(ends, self.sizes, strict=True)]


class ArmsSession(FakeSession):
    def take(self, call: Call, idle_s: float) -> None:
        cast(ArmsTimer, self.timer).names.append(call.label)
        super().take(call, idle_s)
