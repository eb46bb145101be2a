"""Failures of ranks: the user's own lines, and processes that ended without a message."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import pytest_gpubench
from pytest_gpubench import KernelsDiffer, MeasurementError, Rank, WrongResult
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.ranks import Job
from pytest_gpubench.timing.ranks.failure import failure_of
from pytest_gpubench.timing.ranks.job import bus_bytes
from pytest_gpubench.timing.ranks.result import combine
from pytest_gpubench.timing.ranks.worker import call_once
from tests.timing.ranks.jobs import PLAN, nothing, timing

OURS = f"{Path(pytest_gpubench.__file__).parent}{os.sep}"


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ValueError("x"), MeasurementError, "raised ValueError: x"),
        (KernelsDiffer("x"), KernelsDiffer, "failed: x"),
        (WrongResult("x"), WrongResult, "failed: x"),
    ],
)
def test_what_a_rank_raises_is_what_the_test_raises(error: Exception, kind: type[Exception], sentence: str) -> None:
    found = failure_of(error, "f")
    assert (found.kind, found.sentence) == (kind, sentence)


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_error_without_a_text_is_told_by_its_name() -> None:
    found = failure_of(raised(fail_without_text), "f")
    assert found.sentence == "raised NoText: <NoText object>"
    assert "fail_without_text" in found.traceback


def fail_without_text() -> None:
    raise NoText


def raised(call: Callable[[], object]) -> Exception:
    """Return what a call raises, with its traceback."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def divide() -> float:
    return 1 / 0


def convert() -> None:
    try:
        divide()
    except ZeroDivisionError as error:
        raise ValueError("first line\nsecond line") from error


class Alone:
    """Stands for the other ranks where there are none."""

    def meet(self) -> None:
        pass


def through_ours(function: Callable[[], object], check: Callable[[Rank, Any], object] | None = None) -> Exception:
    """Return what a function raises, or a check, that is called as a rank calls it."""
    job, device, alone = Job(function, PLAN, check=check), cpu_device(), cast(Any, Alone())
    rank = Rank(0, 2, device.torch_device)
    return raised(lambda: call_once(make_call(function), job, rank, device, alone))


def test_a_traceback_is_of_the_users_own_lines() -> None:
    found = failure_of(through_ours(convert), "f")
    assert found.sentence == "raised ValueError: first line"
    assert "second line" in found.traceback
    assert OURS not in found.traceback
    in_order = re.findall(r", in (divide|convert|call_once)\n", found.traceback)
    assert in_order == ["convert", "divide", "convert"]  # what it came from is told first


def test_an_error_of_ours_has_no_traceback() -> None:
    ours = raised(lambda: combine([timing(1.0), timing()]))
    assert (failure_of(ours, "f").traceback, failure_of(ours, "f").kind) == ("", MeasurementError)


def test_a_bug_of_ours_has_its_own() -> None:
    bug = raised(lambda: bus_bytes("all_reduce", 1000, 0))
    while bug.__traceback__ is not None and not bug.__traceback__.tb_frame.f_code.co_filename.startswith(OURS):
        bug.__traceback__ = bug.__traceback__.tb_next
    assert "in bus_bytes" in failure_of(bug, "f").traceback


def test_a_check_shows_where_it_failed() -> None:
    error = through_ours(nothing, lambda rank, out: must_be_four())
    found = failure_of(error, "f")
    assert (found.kind, found.sentence) == (WrongResult, "failed: it is not 4")
    assert "in must_be_four" in found.traceback
    assert OURS not in found.traceback
    assert "direct cause" not in found.traceback


def must_be_four() -> None:
    raise AssertionError("it is not 4")
