"""Facts about a test: its source's hash, which tells a changed test from a changed kernel, and its parameters."""

import linecache
import runpy
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.plugin.items import source_hash
from tests.plugin.conftest import RecordRun

LONGEST_PARAMETER = 500

EVERYTHING = """
def test_it(gpu_bench, n: int = 3, *, k=(1, 2)) -> None:
    x = torch.randn(n, device="cuda")[1:, None]
    y = f"{x!r:>{n}} {'a'}{n=}"
    with first as a, second: pass
    for i in range(3): y += f'{i}' "b" + u"c" + rb"d".decode()
    def inner(*args, **kw): return (yield 1), lambda q: q[1, 2], None, ..., 1e3, 2j
    class Inner(Base, key=1): pass
    try: pass
    except (A, B) as e: raise X from e
    match x:
        case [1, *r]: pass
    gpu_bench.compare(lambda x: x, torch.add, (x, x), limits={**d}, t=[*z, -1, not a, {1, 2}])
"""


def hash_of(source: str, folder: Path) -> str:
    (folder / "test_it.py").write_text(source)
    linecache.clearcache()
    found = source_hash(runpy.run_path(str(folder / "test_it.py"))["test_it"])
    assert found
    return found


def test_every_version_of_python_agrees(tmp_path: Path) -> None:
    """The values are those of Python 3.10 to 3.13: an upgrade is no change of the test."""
    assert hash_of(EVERYTHING, tmp_path) == "ecea724585aca899"
    assert source_hash(measured) == source_hash(measured_too) == "7c233abddbc9856b"


@pytest.mark.parametrize("n", [3])
def measured(gpu_bench: Any, n: int) -> None:
    """Say what it does, which may be said better one day."""
    gpu_bench.measure(abs, (n, None), label=f"{n!r:>{n}} {n}")  # a comment


def measured_too(gpu_bench: Any, n: int) -> None:
    gpu_bench.measure(
        abs,
        (n, None),
        label=f"{n!r:>{n}} {n}",
    )


def is_changed(text: str, by: str, folder: Path) -> bool:
    assert text in EVERYTHING
    return hash_of(EVERYTHING.replace(text, by), folder) != hash_of(EVERYTHING, folder)


@pytest.mark.parametrize(
    ("text", "by"),
    [("class Inner", "# a comment\n    class Inner"), ("(1, 2)) ->", "( 1,2, ))->"), ("f'{i}' ", 'f"{i}" ')],
)
def test_what_only_looks_otherwise_is_the_same(text: str, by: str, tmp_path: Path) -> None:
    assert not is_changed(text, by, tmp_path)


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("None, ...", "..., None"),
        ("yield 1", "yield"),
        ("[1:, None]", "[1:]"),
        ('u"c"', 'u"C"'),
        ("{n=}", "{n}"),
        ("**d", "'d': d"),
        ("-> None", ""),
        ("raise X from e", "raise X"),
        ("n: int = 3", "n: int"),
        ("!r", "!s"),
        ("*, k", "k"),
        ("*z", "z"),
        ("-1", "1"),
        ("None, ...", "..."),
        ("(1, 2)", "(1, '')"),
        ("class Inner(Base, key=1)", "class Inner(Base)"),
    ],
)
def test_what_is_otherwise_differs(text: str, by: str, tmp_path: Path) -> None:
    assert is_changed(text, by, tmp_path)


def test_a_long_parameter_is_kept_short_and_told_from_others(record_run: RecordRun) -> None:
    """A list of two million numbers was stored whole, twice."""
    source = """
LONG = [[*range(100_000), last] for last in (1, 2, 1)]
TEXTS = ["x" * 500, "x" * 501]

@pytest.mark.parametrize("n", [*LONG, *TEXTS], ids=[*"abcde"])
def test_it(gpu_bench, n): gpu_bench(fast)
"""
    long, other, again, text, cut = (each.params["n"] for each in record_run(source).records)
    assert len(long) < LONGEST_PARAMETER + 60
    assert long != other
    assert long == again
    assert text == "x" * LONGEST_PARAMETER
    assert cut.startswith("x" * LONGEST_PARAMETER + "… (501 letters, ")
