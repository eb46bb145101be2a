"""Ends of the process inside measured code: with status 0 the run would look as if all of its tests had passed."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from pytest_gpubench.errors import InvalidResult

__tracebackhide__ = True


@contextmanager
def refusing_exit() -> Iterator[None]:
    """Raise InvalidResult where the measured code calls `os._exit(0)`.

    Other threads may call it, and processes that were forked; so may anybody with another status, as a failed run says
    so itself. A process that ends in other ways, by exit() in C, is seen only by what started it.
    """
    leave, process, thread = os._exit, os.getpid(), threading.get_ident()

    def guarded(status: int) -> NoReturn:
        if status == 0 and (os.getpid(), threading.get_ident()) == (process, thread):
            raise InvalidResult(
                "the measured code called os._exit(0), which would end the run as if all tests passed: let it return"
            )
        leave(status)

    os._exit = guarded
    try:
        yield
    finally:
        os._exit = leave
