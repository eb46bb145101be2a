"""Ends of the test and of the process inside measured code."""

import os
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from pytest_gpubench import InvalidResult
from pytest_gpubench.bench.exits import refusing_exit


class Leaves(BaseException):
    pass


class Group(BaseException):
    """As BaseExceptionGroup, which Python 3.10 lacks."""

    def __init__(self, *exceptions: BaseException) -> None:
        self.exceptions = exceptions


ENDS: dict[str, Callable[[], object]] = {
    "os._exit": lambda: os._exit(0),
    "os._exit by keyword": lambda: os._exit(status=0),
    "os.execv": lambda: os.execv("/bin/true", ["true"]),
    "os.execve": lambda: os.execve("/bin/true", ["true"], {}),
    "os.execl": lambda: os.execl("/bin/true", "true"),
    "os.execvpe": lambda: os.execvpe("true", ["true"], {}),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("in_thread", [False, True])
def test_the_process_cannot_end_as_if_all_were_well(name: str, in_thread: bool) -> None:
    notes: list[Exception] = []
    raised: list[BaseException] = []

    def end() -> None:
        try:
            ENDS[name]()
        except InvalidResult as error:
            raised.append(error)

    with refusing_exit(note=notes.append):
        if in_thread:
            thread = threading.Thread(target=end)
            thread.start()
            thread.join()
        else:
            end()
    assert [str(each) for each in raised] == [str(each) for each in notes]
    assert str(notes[0]).startswith("the measured code called os.")
    assert notes[0].__traceback__ is None, "it would keep what the frames of measured code hold"


def test_a_forked_process_may_end_and_so_may_this_one_with_another_status(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with refusing_exit():
        cast(Any, os)._exit(1)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        cast(Any, os)._exit(0)
    assert ended == [1, 0]


def test_the_functions_are_as_before_afterwards() -> None:
    before = os._exit, os.execv, os.execve
    with pytest.raises(ValueError, match="theirs"), refusing_exit():
        raise ValueError("theirs")
    assert (os._exit, os.execv, os.execve) == before


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (Leaves("now"), True),
        (Group(Leaves(), Leaves()), True),
        (Group(Group(Leaves())), True),
        (Group(Leaves(), ValueError()), False),
        (Group(), False),
        (ValueError(), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_an_exception_that_ends_the_test_is_invalid(error: BaseException, refused: bool) -> None:
    with pytest.raises(InvalidResult if refused else type(error)) as caught, refusing_exit((Leaves,)):
        raise error
    assert str(caught.value).startswith("the measured code ended its test: ") == refused
