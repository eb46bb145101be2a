"""`doctor --counters`: a table of what repeats, and the reason where nothing is taken."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.cli import counters, main
from pytest_gpubench.counters import COUNTERS
from pytest_gpubench.results.model import Counts, SavedRun, TestRecord
from tests.report.records import GPU
from tests.results.measured import timing_of

MIB = 2**20


def run_of(**calls: Counts) -> SavedRun:
    items = [Measurement(timing=timing_of((1.0,), label, counts=counts)) for label, counts in calls.items()]
    return SavedRun(records=(TestRecord(nodeid="t", device=GPU, measurements=tuple(items)),), datetime="")


def counted(instructions: Sequence[float], read: float = 64 * MIB) -> Counts:
    captures: dict[str, tuple[float, ...]] = {each.name: (5.0,) * 3 for each in COUNTERS}
    captures |= {"instructions": tuple(instructions), "dram_read_bytes": (read,) * 3}
    return Counts(captures=captures, cache_bytes=50 * MIB)


def tell(monkeypatch: pytest.MonkeyPatch, *runs: SavedRun) -> int:
    """Tell what these processes count."""
    left = list(runs)
    options: list[tuple[object, ...]] = []

    def take(tests: Path, *others: object) -> SavedRun:
        options.append(others)
        return left.pop(0)

    monkeypatch.setattr(counters, "take_run", take)
    monkeypatch.setattr(counters, "_why_never", str)
    status = main(["doctor", "--counters"])
    assert all("--gpu-bench-counters=all" in each for each in options)
    return status


def test_the_spread_is_that_of_all_captures_of_both_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run_of(add=counted([1000] * 3), sort=counted([1000, 1000, 1001]))
    second = run_of(add=counted([1000] * 3), sort=counted([1000, 1000, 990], read=40 * MIB))
    assert tell(monkeypatch, first, second) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["instructions"][1:8] == ["1", "of", "2", "calls", "1.1", "%", "sort"]
    assert lines["dram_read_bytes"][1:6] == ["1", "of", "1", "calls", "0"]  # sort fits into the cache
    assert lines["atomics"][1:6] == ["2", "of", "2", "calls", "0"]


def test_a_call_without_counters_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    both = [run_of(add=counted([1] * 3), sort=Counts(wrong="it launches other kernels"))] * 2
    assert tell(monkeypatch, *both) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "sort: it launches other kernels"


def test_what_is_not_permitted_is_told_after_the_first_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tell(monkeypatch, run_of(add=Counts(untaken="no rights"))) == 1
    assert capsys.readouterr().out == "counters (ncu): NOT taken: no rights\n"


@pytest.mark.skipif("__import__('torch').cuda.is_available()", reason="about machines without a GPU")
def test_without_a_gpu_it_says_so_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--counters"]) == 1
    assert capsys.readouterr().out.startswith("counters (ncu): NOT taken: there is no GPU: ")
