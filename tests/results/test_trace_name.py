"""The names of trace files."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.results.trace_name import trace_name

NODEID = "tests/test_a.py::test_it[a/b]"


@given(st.text(), st.text(), st.integers(1, 99), st.text())
def test_a_name_is_safe_on_any_file_system(nodeid: str, label: str, number: int, example: str) -> None:
    name = trace_name(nodeid, label, number, example)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.json\.gz", name)
    assert len(name) <= 200


@pytest.mark.parametrize(
    "others",
    [
        ("tests/test_a.py::test_it[a-b]", "f", 1, ""),  # the same once it is safe
        ("tests/TEST_a.py::test_it[a/b]", "f", 1, ""),  # the same where capitals are
        ("other/test_a.py::test_it[a/b]", "f", 1, ""),
        (NODEID, "g", 1, ""),
        (NODEID, "f", 2, ""),
        (NODEID, "f", 1, "x=1"),
    ],
)
def test_no_two_calls_share_a_name(others: tuple[str, str, int, str]) -> None:
    assert trace_name(NODEID, "f").lower() != trace_name(*others).lower()


@pytest.mark.parametrize("tail", ["x" * 300, "ä" * 300, "/" * 300, "\ud800", "😀\n\t"])
def test_long_and_strange_names_differ_at_their_ends(tail: str) -> None:
    names = {trace_name(f"test_a.py::test_it[{tail}{number}]", "f") for number in range(20)}
    assert len(names) == 20
    assert max(map(len, names)) <= 200


def test_a_name_can_be_read() -> None:
    assert trace_name("tests/deep/test_a.py::test_it[4096]", "softmax").startswith("test_a.test_it-4096-softmax-")
