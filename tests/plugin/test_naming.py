"""Notes of a fresh process, which calls with margins, on a test that broke the GPU."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from pytest_gpubench.plugin import fresh_process
from pytest_gpubench.plugin.fresh_process import Naming

VARIABLE = "PYTEST_GPUBENCH_NAMING"
PAST = "mine reads past args[1]"


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "notes"))
    return tmp_path / "notes"


def test_a_process_notes_one_sentence_a_line(notes: Path) -> None:
    found = Naming(cast(pytest.Config, None))
    for sentence in ("", f"{PAST},\nor so", ""):
        fresh_process.write_note(found.notes, sentence)
    assert list(map(json.loads, notes.read_text().splitlines())) == ["", f"{PAST},\nor so", ""]
    assert Naming(cast(pytest.Config, None)).notes is None, "what it starts is another process"


Start = Callable[..., int | None]


def start_with(sentences: Sequence[str], status: int | OSError | None, started: list[Sequence[str]]) -> Start:
    def start(
        config: object, folder: Path, tests: Sequence[str], *rest: object, others: Mapping[str, str]
    ) -> int | None:
        started.append(tests)
        if sentences:
            Path(others[VARIABLE]).write_text("".join(json.dumps(each) + "\n" for each in sentences))
        if isinstance(status, OSError):
            raise status
        return status

    return start


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
def test_the_last_note_counts_where_the_process_has_ended(
    monkeypatch: pytest.MonkeyPatch, sentences: Sequence[str], status: int | OSError | None, found: str
) -> None:
    started: list[Sequence[str]] = []
    monkeypatch.setattr(fresh_process, "start_fresh", start_with(sentences, status, started))
    assert Naming(cast(pytest.Config, None)).find("test_it") == found
    assert started == [["test_it"]]


@pytest.mark.parametrize(("taken_s", "runs"), [(119.5, 2), (120.0, 1)])
def test_the_time_for_it_is_limited(monkeypatch: pytest.MonkeyPatch, taken_s: float, runs: int) -> None:
    started: list[Sequence[str]] = []
    clock = iter((0.0, taken_s, 200.0, 201.0))
    monkeypatch.setattr(fresh_process, "start_fresh", start_with((PAST,), 1, started))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    found = Naming(cast(pytest.Config, None))
    assert [found.find("test_it") for _ in range(2)] == [PAST, PAST if runs == 2 else ""]
    assert len(started) == runs
