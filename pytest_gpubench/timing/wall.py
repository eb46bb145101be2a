"""Time from the host's clock, around the call and a synchronisation: launches, gaps and Python included.

On the CPU, the time for which other processes kept the calling thread from a core is taken off.
"""

import glob
import os
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Call, Rep, Session, Timer
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.startup import wait_for_startup
from pytest_gpubench.verdict.throttling import HELD_UP

SCHEDULED, OF_THREADS = "/proc/thread-self/schedstat", "/proc/self/task/[0-9]*/schedstat"
"""Nanoseconds for which a thread ran, for which it waited for a core, and how often it got one."""
HELD_UP_SHARE = 0.1
"""A call is held up where its helper threads have waited for cores for longer than this part of its time."""
ALONE_NS = 2000
"""Other threads than the calling one have run in a call if the CPU times of both differ by more than this."""


class Schedule(ExitStack):
    """Times of the thread that makes this, of its process and of its other threads, as the scheduler counts them."""

    def __init__(self) -> None:
        super().__init__()
        self._own = self._open(SCHEDULED)  # opening it before each call would slow a hot one by 6 us
        self._others: list[int] | None = None

    def _open(self, *names: str) -> list[int]:
        """Return the descriptors of those files that there are."""
        found: list[int] = []
        for name in names:
            with suppress(OSError):  # Linux does not tell, or the thread has ended
                found.append(os.open(name, os.O_RDONLY))
                self.callback(os.close, found[-1])
        return found

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
        return _waited_ns(self._own)

    def others_waited_ns(self) -> int:
        """Return for how long the other threads have, all together, that were there when this was first called."""
        if self._others is None:
            own = str(threading.get_native_id())
            self._others = self._open(*(name for name in glob.glob(OF_THREADS) if name.split("/")[-2] != own))
        return _waited_ns(self._others)


def _waited_ns(files: Sequence[int]) -> int:
    total_ns = 0
    for file in files:
        with suppress(OSError, IndexError):  # the thread has ended
            total_ns += int(os.pread(file, 64, 0).split()[1])
    return total_ns


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
        self.taken: list[Rep] = []
        self.left: dict[str, list[bool]] = {}
        """For each call, by its label, whether it has left a thread running."""
        self.alone: dict[str, bool] = {}
        """For each label, whether the calling thread alone ran in the last call: reading of others slows a hot one."""

    def __enter__(self) -> "WallSession":
        wait_for_startup()
        self.schedule = Schedule()
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        self.schedule.close()

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep."""
        synchronize = self.timer.device.synchronize
        timed = call.prepare().run
        synchronize()
        if idle_s:
            time.sleep(idle_s)
        self.timer.flush()
        synchronize()
        watches = self.timer.takes_off and not self.alone.get(call.label)
        others_ns, threads = self.schedule.others_waited_ns() if watches else 0, threading.active_count()
        before = self.schedule.read()
        start_ns = time.perf_counter_ns()
        timed()
        synchronize()
        elapsed_ns = time.perf_counter_ns() - start_ns
        flags: tuple[str, ...] = ()
        if self.timer.takes_off:
            after = self.schedule.read(waited_first=True)
            elapsed_ns -= held_up_ns(elapsed_ns, before, after)
            if watches and self.schedule.others_waited_ns() - others_ns > HELD_UP_SHARE * elapsed_ns:
                flags = (HELD_UP,)
            self.alone[call.label] = others_ran_ns(before, after) < ALONE_NS
        self.taken.append(Rep(elapsed_ns / 1e3, flags=flags))
        self.left.setdefault(call.label, []).append(threading.active_count() > threads)

    def reps(self) -> Sequence[Rep]:
        """Return the reps taken; raise BadRequest where most of a call's left a thread running: a pool starts few."""
        for label, left in self.left.items():
            if 2 * sum(left) > len(left):
                raise BadRequest(
                    f"{label!r} starts a thread in each call that still runs when the call returns, so its work is "
                    "not in the time: join it in the call"
                )
        return self.taken


def others_ran_ns(before: Sequence[int], after: Sequence[int]) -> int:
    """Return for how long other threads of the process than the calling one had cores."""
    return max(0, after[1] - before[1] - (after[0] - before[0]))


def held_up_ns(elapsed_ns: int, before: Sequence[int], after: Sequence[int]) -> int:
    """Return for how long others kept a thread from a core, as far as no thread of its own process had one instead.

    Never more than the thread was without a core. before, after: what the scheduler counted then.
    """
    ran_ns, waited_ns = after[0] - before[0], after[2] - before[2]
    return max(0, min(waited_ns - others_ran_ns(before, after), elapsed_ns - ran_ns))
