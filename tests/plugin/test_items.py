"""Facts about a test: its source's hash, which tells a changed test from a changed kernel, and its parameters."""

from collections.abc import Sequence
from pathlib import Path

from tests.plugin.conftest import HEAD, RecordRun

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

MEASURED = """
@pytest.mark.parametrize("n", [3])
def test_measured(gpu_bench: Any, n: int) -> None:
    \"\"\"Say what it does, which may be said better one day.\"\"\"
    gpu_bench.measure(abs, (n, None), label=f"{n!r:>{n}} {n}")  # a comment
"""
MEASURED_TOO = """
def test_measured_too(gpu_bench: Any, n: int) -> None:
    gpu_bench.measure(
        abs,
        (n, None),
        label=f"{n!r:>{n}} {n}",
    )
"""
MEASURES = """
@pytest.fixture(autouse=True)
def measure(gpu_bench): gpu_bench(fast)
@pytest.fixture
def n(): return 3
"""
LOOKS_OTHERWISE = [
    ("class Inner", "# a comment\n    class Inner"),
    ("(1, 2)) ->", "( 1,2, ))->"),
    ("f'{i}' ", 'f"{i}" '),
]
IS_OTHERWISE = [
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
]


def hashes_of(sources: Sequence[str], record_run: RecordRun) -> list[str]:
    """Return the hash of each test: a fixture measures, and the tests themselves fail."""
    Path("conftest.py").write_text(f"{HEAD}{MEASURES}")
    for number, source in enumerate(sources):
        Path(f"test_{number:02}.py").write_text(f"import pytest\nfrom typing import Any\n{source}")
    records = sorted(record_run("").records, key=lambda record: record.nodeid)
    assert len(records) == len(sources)
    return [record.source for record in records]


def test_every_version_of_python_agrees(record_run: RecordRun) -> None:
    """The values are those of Python 3.10 to 3.13: an upgrade is no change of the test."""
    found = hashes_of([EVERYTHING, MEASURED, MEASURED_TOO], record_run)
    assert found == ["ecea724585aca899", "7c233abddbc9856b", "7c233abddbc9856b"]


def test_a_changed_test_has_another_hash_unless_it_only_looks_otherwise(record_run: RecordRun) -> None:
    changes = [*LOOKS_OTHERWISE, *IS_OTHERWISE]
    assert all(text in EVERYTHING for text, _ in changes)
    first, *found = hashes_of([EVERYTHING, *(EVERYTHING.replace(*change) for change in changes)], record_run)
    assert [change for change, each in zip(changes, found, strict=True) if each != first] == IS_OTHERWISE


def test_a_long_parameter_is_kept_short_and_told_from_others(record_run: RecordRun) -> None:
    """A list of two million numbers was stored whole, twice."""
    source = """
LONG = [[*range(100_000), last] for last in (1, 2, 1)]
TEXTS = ["x" * 500, "x" * 501]
OBJECTS = [[*range(1000), object()] for _ in range(2)]

@pytest.mark.parametrize("n", [*LONG, *TEXTS, *OBJECTS], ids=[*"abcdefg"])
def test_it(gpu_bench, n): gpu_bench(fast)
"""
    long, other, again, text, cut, one, alike = (each.params["n"] for each in record_run(source).records)
    assert len(long) < LONGEST_PARAMETER + 60
    assert long != other
    assert long == again
    assert one == alike, "an address is another in each run"
    assert text == "x" * LONGEST_PARAMETER
    assert cut.startswith("x" * LONGEST_PARAMETER + "… (501 letters, ")
