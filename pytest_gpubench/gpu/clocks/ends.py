"""The end of the process, by its exit or by a signal: locked clocks are given back before it."""

import atexit
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Releasable(Protocol):
    """What is given back when the process ends."""

    def release(self) -> None:
        """Give it back; nothing where that is done."""


Lock = TypeVar("Lock", bound=Releasable)


@dataclass
class Ends(Generic[Lock]):
    """Gives all clocks back when the process ends: at its exit, and at signals, which then do what they did before."""

    locks: list[Lock] = field(default_factory=list)
    handlers: list["_Handler"] = field(default_factory=list)
    waiting: list["_Handler"] = field(default_factory=list)
    depth: int = 0
    registered: bool = False

    def add(self, lock: Lock) -> None:
        """Give the clocks of this lock back, too."""
        if not self.registered:
            atexit.register(self.release_all)
            self.registered = True
        self.locks.append(lock)
        if not self.handlers and in_main_thread():
            self.handlers = [handler for number in ENDINGS if (handler := _Handler.install(number, self))]

    def remove(self, lock: Lock) -> None:
        """Forget a lock, and with the last one the signals."""
        if lock in self.locks:
            self.locks.remove(lock)
        if not self.locks and in_main_thread():
            for handler in self.handlers:
                handler.remove()
            self.handlers = []

    def release_all(self) -> None:
        """Give all clocks back, whatever one of them says to it."""
        for lock in list(self.locks):
            try:
                lock.release()
            except Exception as error:
                with suppress(Exception):  # there may be no stderr any more
                    sys.stderr.write(f"gpu_bench: {error}\n")

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Let signals wait meanwhile: a handler that runs in the midst of it could not take the guard."""
        if not in_main_thread():
            yield
            return
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            while self.waiting and not self.depth:
                handler = self.waiting.pop(0)
                handler(handler.number, None)


@dataclass(eq=False)
class _Handler:
    """What is done at one signal, and what was done at it before: a chain, if others put theirs before it."""

    number: signal.Signals
    previous: Any
    ends: Ends[Any]

    @classmethod
    def install(cls, number: signal.Signals, ends: Ends[Any]) -> "_Handler | None":
        """Handle a signal; not one that is ignored, nor one that something other than Python handles."""
        previous = signal.getsignal(number)
        if previous in (signal.SIG_IGN, None):
            return None
        handler = cls(number, previous, ends)
        signal.signal(number, handler)
        return handler

    def remove(self) -> None:
        """Put the previous handler back, unless somebody has put another in this one's place."""
        current: object = signal.getsignal(self.number)
        if current is self:
            signal.signal(self.number, self.previous)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Give the clocks back and go on to the previous handler."""
        if self.ends.depth:
            self.ends.waiting.append(self)
            return
        self.ends.release_all()
        if callable(self.previous):
            self.previous(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def in_main_thread() -> bool:
    """Tell whether signals may be handled here."""
    return threading.current_thread() is threading.main_thread()
