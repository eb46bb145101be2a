"""Crossovers: the size from which on a candidate is faster, by the intervals of its speedups."""

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_gpubench import Measurement
from pytest_gpubench.report.terminal import summary_lines
from pytest_gpubench.results.model import TestRecord
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.summary import Interval
from tests.results.measured import arms, clocked, present, record

WORDS = {"<": (0.5, 0.9), ">": (1.1, 2.0), "?": (0.9, 1.1)}


def crossovers(records: list[TestRecord], **options: Any) -> list[str]:
    """Return the lines of the summary on the sizes from which on a candidate is faster."""
    lines = [line.removeprefix("gpu_bench: ") for line in summary_lines(records, Settings(**options))]
    return [line for line in lines if line.startswith("softmax over torch by ")]


def at(value: int, low: float, high: float) -> TestRecord:
    """Return the record of a test with n of a value, whose speedup has this interval."""
    found = compared((low * high) ** 0.5, n=str(value))
    reference, candidate = found.measurements
    speedup = replace(present(candidate.speedup), interval=Interval(low, high))
    return replace(found, measurements=(reference, replace(candidate, speedup=speedup)))


def words_of(pattern: str) -> str:
    """Return where a candidate is said to be faster that is slower (<), faster (>) or neither (?) at 1, 2, 4, ...."""
    records = [at(2**place, *WORDS[mark]) for place, mark in enumerate(pattern)]
    (line,) = crossovers(records, verbose=True)
    return line.removeprefix("softmax over torch by n, ").partition(":")[0]


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(1.0, 1.1, None), (1.0 + 1e-9, 1.1, "faster"), (0.9, 1.0, None), (0.9, 1.0 - 1e-9, "slower"), (0.9, 1.1, None)],
)
def test_the_interval_decides(low: float, high: float, word: str | None) -> None:
    (line,) = crossovers([at(1, low, high), at(2, low, high)], verbose=True)
    words = f"{word} everywhere" if word else "faster or slower is not decided at any size"
    assert line.startswith(f"softmax over torch by n, {words}: ")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("<>", "faster from n=2 on"),
        ("<<>>", "faster from n=4 on"),
        ("><", "faster up to n=1"),
        ("<><", "faster at n=2"),
        ("<>><", "faster from n=2 to 4"),
        ("><>", "faster up to n=1 and from n=4 on"),
        ("<><>", "faster at n=2 and from n=8 on"),
        ("<?>?><", "faster from n=4 to 16"),
        (">>", "faster everywhere"),
        ("<<", "slower everywhere"),
        (">?", "faster wherever it is decided"),
        ("?<", "slower wherever it is decided"),
        ("??", "faster or slower is not decided at any size"),
    ],
)
def test_where_it_is_faster(pattern: str, words: str) -> None:
    assert words_of(pattern) == words


def compared(
    ratio: float, nodeid: str = "tests/test_a.py::test_it", times: int = 1, interval: bool = True, **params: str
) -> TestRecord:
    """Return the record of a parametrised test; the interval is 1 % wide to each side."""
    values = "-".join(params.values())
    found: list[Measurement] = []
    for _ in range(times):
        found += arms(clocked("softmax", 100.0 / ratio), clocked("torch", 100.0), interval=interval)
    return record(*found, nodeid=f"{nodeid}[{values}]", params=params)


RATIOS = {"2048": 1.21, "512": 0.81, "1024": 0.995, "4096": 1.5}


def test_a_line() -> None:
    records = [compared(ratio, n=n) for n, ratio in RATIOS.items()]
    line = "softmax over torch by n, faster from n=2048 on: 512 0.810x, 1024 0.995x?, 2048 1.21x, 4096 1.50x"
    assert crossovers(records) == [line]
    assert crossovers(records, group_by="param:n") == [line]
    assert crossovers(records, group_by="param:m") == []
    assert crossovers(records, group_by="file") == [line]
    twice = [compared(ratio, f"test_{name}.py::test_it", n=n) for name in "ab" for n, ratio in RATIOS.items()]
    where = "test_b.py::test_it (NVIDIA H200, profiler, cold)"  # of two tests alike
    assert sum(each == f"gpu_bench: {where}: {line}" for each in summary_lines(twice, Settings())) == 1
    without = [compared(ratio, n=n) for n, ratio in (("8", 1.2), ("16", 1.3), ("32", 1.005))]
    assert crossovers(without) == []
    assert crossovers(without, verbose=True) == [
        "softmax over torch by n, faster wherever it is decided: 8 1.20x, 16 1.30x, 32 1.00x?"
    ]
    (again,) = crossovers([compared(0.1, n="1024"), *records])  # a test that was run again stands for itself
    assert "1024 0.995x?" in again


def test_other_parameters_are_the_same_along_a_line() -> None:
    kinds = itertools.product((("float16", 1.0), ("float32", 2.0)), RATIOS.items())
    records = [compared(ratio * factor, n=n, dtype=dtype) for (dtype, factor), (n, ratio) in kinds]
    records.append(compared(0.5, n="8", dtype="int8"))
    (line,) = crossovers(records)
    assert line.startswith("softmax over torch by n at dtype=float16, faster from n=2048 on: 512 ")
    assert [each.partition(",")[0] for each in crossovers(records, verbose=True)] == [
        "softmax over torch by n at dtype=float16",
        "softmax over torch by n at dtype=float32",
    ]
