"""Tricks that got a PASS within one process: judged in a process of their own none passes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.spec import read_spec
from tests.on_gpu.judged_tricks import SMOOTH, TRICKS, Trick


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge, whose spec each test replaces: the next process is warmed while one is judged."""
    spec = tmp_path_factory.mktemp("spec") / "spec.py"
    spec.write_text(SMOOTH)
    with Judge(spec, "cuda", timeout_s=20, budget_s=0.5, ahead=2) as judge:
        yield judge


def status_of(judge: Judge, folder: Path, trick: Trick) -> str:
    """Return the status of a candidate, and why."""
    (folder / "spec.py").write_text(trick.spec)
    (folder / "candidate.py").write_text(trick.text)
    judge.spec = read_spec(folder / "spec.py")
    found = judge(folder / "candidate.py")
    print(found.to_json())
    return f"{found.status}: {found.reason} {found.detail[-300:]}"


@pytest.mark.parametrize("name", TRICKS)
def test_no_trick_passes(judge: Judge, tmp_path: Path, name: str) -> None:
    assert not status_of(judge, tmp_path, TRICKS[name]).startswith("pass")
