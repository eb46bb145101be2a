"""The signals that end a process: locked clocks are reset before they do."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndSignals:
    """Calls `release` at the signals that end the process, which then do what they did before.

    Only the main thread handles signals: other threads install nothing.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release
        self.handlers: list[_Handler] = []
        self.depth = 0
        self.waiting: list[_Handler] = []

    def install(self) -> None:
        """Handle the signals, except those that are ignored or that something other than Python handles."""
        if self.handlers or not _in_main_thread():
            return
        for number in ENDINGS:
            previous = signal.getsignal(number)
            if previous not in (signal.SIG_IGN, None):
                handler = _Handler(self, number, previous)
                signal.signal(number, handler)
                self.handlers.append(handler)

    def remove(self) -> None:
        """Put the previous handlers back, except where somebody has replaced ours."""
        if not _in_main_thread():
            return
        for handler in self.handlers:
            current: object = signal.getsignal(handler.number)
            if current is handler:
                signal.signal(handler.number, handler.previous)
        self.handlers = []

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Let signals wait: a handler that interrupts the block could not take the guard that the block holds."""
        if not _in_main_thread():
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


class _Handler:
    """The handler of one signal, which calls the handler that it replaced."""

    def __init__(self, signals: EndSignals, number: signal.Signals, previous: Any) -> None:
        self.signals = signals
        self.number = number
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signals.depth:
            self.signals.waiting.append(self)
            return
        self.signals.release()
        if callable(self.previous):
            self.previous(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
