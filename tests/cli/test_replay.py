"""`pytest-gpubench replay`: which call is meant, and what is written of it."""

import re
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.results.store import Storage
from tests.cli.stored import Command
from tests.results.measured import alone, record, run

SOFTMAX = msgspec.structs.replace(alone("softmax", 10.0), call="a" * 64)
GELU = msgspec.structs.replace(alone("gelu", 20.0), call="b" * 64)
EAGER = msgspec.structs.replace(alone("eager", 30.0), no_call="it launches kernels that Triton did not compile")
BARE = alone("bare", 5.0)
RUN = run(
    record(SOFTMAX, GELU, nodeid="a.py::test_both[4]"),
    record(SOFTMAX, nodeid="a.py::test_one"),
    record(EAGER, nodeid="a.py::test_eager"),
    record(BARE, nodeid="a.py::test_bare"),
)


@pytest.mark.parametrize(
    ("pattern", "label", "found"),
    [("test_one", None, SOFTMAX), ("test_both[4]", "gelu", GELU), ("test_b*4]", "softmax", SOFTMAX)],
)
def test_a_call_is_found_by_its_test_and_its_label(
    pattern: str, label: str | None, found: Measurement, command: Command
) -> None:
    """Here the storage has lost it."""
    assert f"calls/{found.call[:2]}/{found.call[2:]} cannot be read" in refused(command, pattern, label)


NONE_MEANT = "no call of this run is meant by "


@pytest.mark.parametrize(
    ("pattern", "label", "sentence"),
    [
        ("test_both", None, r"'test_both' means 2 calls: a\.py::test_both\[4\] softmax, .*; say more, or give --label"),
        ("softmax", None, NONE_MEANT + r"'softmax': it has a\.py::test_both\[4\] softmax, .* and 2 more"),
        ("test_one", "gelu", NONE_MEANT + "'test_one' with the label 'gelu': it has a"),
        ("test_eager", None, "the run has no call for 'test_eager': it launches kernels that Triton did not compile"),
        ("test_bare", None, "the run has no call for 'test_bare': the run was saved without calls"),
    ],
)
def test_what_is_no_single_call_is_refused(pattern: str, label: str | None, sentence: str, command: Command) -> None:
    assert re.search(sentence, refused(command, pattern, label))


def refused(command: Command, pattern: str, label: str | None) -> str:
    Storage(Path("runs")).save_each(RUN, "main")
    words = ["--label", label] if label else []
    status, _, err = command("replay", "main", pattern, *words, "--storage", "runs")
    assert status == 2
    return err
