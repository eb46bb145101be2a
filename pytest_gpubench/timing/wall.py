"""Time from the host's clock, around the call and a synchronisation: launches, gaps and Python included.

On the CPU, the time for which other processes kept the calling thread from a core is taken off.
"""

import glob
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Call, Rep, Session, Timer
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.startup import wait_for_startup
from pytest_gpubench.verdict.throttling import HELD_UP

OF_THREADS = "/proc/self/task/[0-9]*/schedstat"
"""Nanoseconds for which a thread ran, for which it waited for a core, and how often it got one."""
HELD_UP_SHARE = 0.1
"""A call is held up where its helper threads have waited for cores for longer than this part of its time."""


class Schedule:
    """Times of the thread that enters this, of its process and of its other threads, as the scheduler counts them."""

    def __enter__(self) -> "Schedule":
        self._own, self._files = threading.get_native_id(), dict[int, int]()
        for name in glob.glob(OF_THREADS):  # opening its own before each call would slow a hot one by 6 us
            with suppress(OSError):  # it has ended
                self._files[int(name.split("/")[-2])] = os.open(name, os.O_RDONLY)
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        for file in self._files.values():
            os.close(file)

    def read(self, waited_first: bool = False) -> tuple[int, int, int]:
        """Return the nanoseconds for which the thread had a core, all of its process had, and it waited for one.

        Reading a thread's CPU time makes Linux (6.6 on) see that its slice is over, as the flush often uses it up:
        others get the core now, and the call begins with a new slice. The waiting is read after that, and
        `waited_first` after a call: neither wait is the call's.
        """
        waited_ns = self.waited_ns() if waited_first else 0
        ran_ns, all_ran_ns = time.thread_time_ns(), time.process_time_ns()
        return ran_ns, all_ran_ns, waited_ns if waited_first else self.waited_ns()

    def waited_ns(self) -> int:
        """Return for how long the thread has waited for a core; 0 where Linux does not tell."""
        return _waited_ns(self._files.get(self._own))

    def others_waited_ns(self) -> int:
        """Return for how long the other threads have, all together, that were there when this was entered."""
        return sum(_waited_ns(file) for thread, file in self._files.items() if thread != self._own)


def _waited_ns(file: int | None) -> int:
    with suppress(OSError, IndexError):
        return 0 if file is None else int(os.pread(file, 64, 0).split()[1])
    return 0


class WallTimer(Timer):
    """Read the host's clock before the call and after the device is done."""

    name = "wall"

    def __init__(self, device: Device, cache: Cache) -> None:
        self.device = device
        self.flush = make_flush(device, cache)
        self.takes_off = device.type == "cpu"  # a GPU goes on while its host waits

    def clock_s(self) -> float:
        """Return the time less what this thread waited for a core: a busy host costs a measurement no reps."""
        with Schedule() as schedule:
            return time.perf_counter() - schedule.waited_ns() / 1e9

    def session(self) -> "WallSession":
        """Return a new session."""
        return WallSession(self)


class WallSession(Session):
    """Take reps one after the other."""

    def __init__(self, timer: WallTimer) -> None:
        self.timer = timer
        self.schedule = Schedule()
        self.taken: list[Rep] = []
        self.left: list[str] = []
        """The labels of calls that have left a thread running."""

    def __enter__(self) -> "WallSession":
        wait_for_startup()
        self.schedule.__enter__()
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        self.schedule.__exit__(kind, error, trace)

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep."""
        synchronize = self.timer.device.synchronize
        timed = call.prepare().run
        synchronize()
        if idle_s:
            time.sleep(idle_s)
        self.timer.flush()
        synchronize()
        waited_ns, threads = self.schedule.others_waited_ns(), threading.active_count()
        before = self.schedule.read()
        start_ns = time.perf_counter_ns()
        timed()
        synchronize()
        elapsed_ns = time.perf_counter_ns() - start_ns
        if self.timer.takes_off:
            elapsed_ns -= held_up_ns(elapsed_ns, before, self.schedule.read(waited_first=True))
        waited_ns = self.schedule.others_waited_ns() - waited_ns
        is_held_up = self.timer.takes_off and waited_ns > HELD_UP_SHARE * elapsed_ns
        self.taken.append(Rep(elapsed_ns / 1e3, flags=(HELD_UP,) if is_held_up else ()))
        if threading.active_count() > threads:
            self.left.append(call.label)

    def reps(self) -> Sequence[Rep]:
        """Return the reps taken; raise BadRequest where most calls left a thread running: a pool starts few."""
        if 2 * len(self.left) > len(self.taken):
            raise BadRequest(
                f"{self.left[0]!r} starts a thread in each call that still runs when the call returns, so its work is "
                "not in the time: join it in the call"
            )
        return self.taken


def held_up_ns(elapsed_ns: int, before: Sequence[int], after: Sequence[int]) -> int:
    """Return for how long others kept a thread from a core, as far as no thread of its own process had one instead.

    Never more than the thread was without a core. before, after: what the scheduler counted then.
    """
    ran_ns, all_ran_ns, waited_ns = (now - then for now, then in zip(after, before, strict=True))
    return max(0, min(waited_ns - max(0, all_ran_ns - ran_ns), elapsed_ns - ran_ns))
