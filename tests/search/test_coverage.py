"""Which files hypothesis follows to say what only failing examples run, while a test of ours does."""

import statistics
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import hypothesis
import hypothesis.internal.scrutineer as follower
import pytest
import torch

import pytest_gpubench.search
from pytest_gpubench.search import coverage
from pytest_gpubench.search.coverage import places_of, without_our_lines

FOLLOWED: Any = follower


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (pytest_gpubench.search.__file__, False),
        (pytest_gpubench.timing.__file__, False),
        (torch.nn.__file__, False),
        (hypothesis.__file__, False),
        (str(statistics.__file__), False),
        (__file__, True),
        (f"{Path(pytest_gpubench.__file__).parent}_of_mine/search.py", True),
        (str(Path(sys.modules["contextlib"].__file__ or "")), True),
    ],
)
def test_what_is_followed(name: str, expected: bool) -> None:
    with without_our_lines():
        assert FOLLOWED.should_trace_file(name) is expected


def test_hypothesis_is_left_as_it_was() -> None:
    original = FOLLOWED.should_trace_file
    with pytest.raises(ZeroDivisionError), without_our_lines(), without_our_lines():
        _ = 1 / (FOLLOWED.should_trace_file is original)
    assert FOLLOWED.should_trace_file is original


@pytest.mark.parametrize("module", [None, SimpleNamespace(), SimpleNamespace(should_trace_file="other")])
def test_a_hypothesis_that_decides_otherwise_is_left_alone(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, coverage.FOLLOWER, cast(Any, module))
    before = dict(vars(module)) if module is not None else {}
    with without_our_lines():
        assert (dict(vars(module)) if module is not None else {}) == before


def test_what_is_not_imported_has_no_place() -> None:
    found = places_of(("no_such_package", "torch", "statistics"))
    assert found == (f"{Path(torch.__file__).parent}/", str(statistics.__file__))
