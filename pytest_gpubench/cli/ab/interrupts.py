"""Ctrl-C and SIGTERM: raised, noted for later, or ignored for a while."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """Make SIGTERM, with which CI cancels a job, an interrupt like Ctrl-C, so that worktrees are removed."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class InterruptsLater:
    """Note a Ctrl-C or SIGTERM instead of raising it: one while a process is started would leave it running."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> None:
        self.before = {each: signal.signal(each, self._note) for each in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self.came = True


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Let no second Ctrl-C, or SIGTERM, stop the cleaning up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
