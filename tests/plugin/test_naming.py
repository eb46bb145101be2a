"""Notes of a fresh process, which calls with margins, on a test that broke the GPU."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_gpubench.plugin import fresh_process
from pytest_gpubench.plugin.fresh_process import FurtherProcesses
from tests.plugin.conftest import BenchRun

VARIABLE = "PYTEST_GPUBENCH_NAMING"
PAST = "mine reads past args[1],\nor so"


def test_a_process_notes_one_sentence_a_line(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is not passed on to processes that it starts."""
    monkeypatch.setenv(VARIABLE, "notes")
    bench_run(f"""
def test_it(gpu_bench, monkeypatch):
    import os
    from pytest_gpubench import public_call
    monkeypatch.setattr(public_call, "name_what_breaks", lambda note, request: list(map(note, ["", {PAST!r}])))
    gpu_bench.compare(fast, slow)
    assert {VARIABLE!r} not in os.environ
""").assert_outcomes(passed=1)
    assert list(map(json.loads, Path("notes").read_text().splitlines())) == ["", PAST]


@pytest.mark.parametrize(
    ("sentences", "status", "found"),
    [
        (("", PAST), 1, PAST),
        ((PAST,), -6, PAST),
        ((PAST, ""), 1, ""),
        ((), 1, ""),
        (("", PAST), None, ""),
        ((), OSError("no more processes"), ""),
    ],
)
@pytest.mark.parametrize(("taken_s", "runs"), [(0.5, 2), (1.0, 1)])
def test_the_last_note_counts_where_the_process_has_ended(
    monkeypatch: pytest.MonkeyPatch,
    sentences: Sequence[str],
    status: int | OSError | None,
    found: str,
    taken_s: float,
    runs: int,
) -> None:
    """As long as the time for such processes lasts."""
    started: list[Sequence[str]] = []

    def start(config: object, folder: Path, tests: Sequence[str], *rest: object, others: Mapping[str, str]) -> Any:
        started.append(tests)
        if sentences:
            Path(others[VARIABLE]).write_text("".join(json.dumps(each) + "\n" for each in sentences))
        if isinstance(status, OSError):
            raise status
        return status

    clock = iter((0.0, taken_s, 200.0, 201.0))
    monkeypatch.setattr(fresh_process, "start_fresh", start)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    processes = FurtherProcesses(cast(pytest.Config, None), 1.0)
    assert [processes.what_broke("test_it") for _ in range(2)] == [found, found if runs == 2 else ""]
    assert started == [["test_it"]] * runs
