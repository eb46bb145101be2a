"""Candidates that end, hang, take memory, access illegally or forge a verdict, on a GPU: each costs only itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench.judge.judging import Judge
from tests.judge.hostile import HONEST, hostile, spec_text
from tests.on_gpu.judged import summary_of

ALL = hostile(on_gpu=True)
EACH = 7
"""One in so many is judged; all with `-m slow`."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge whose limit an honest candidate keeps."""
    spec = tmp_path_factory.mktemp("hostile") / "spec.py"
    spec.write_text(spec_text((4096, 4096), 0.5))
    with Judge(spec, "cuda", timeout_s=5, memory_bytes=8 * 2**30, budget_s=0.3, ahead=8) as judge:
        yield judge


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=() if not at % EACH or each == "reaches out" else pytest.mark.slow)
        for at, each in enumerate(ALL)
    ],
)
def test_hostile_candidates_cost_only_themselves(judge: Judge, tmp_path: Path, name: str) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(ALL[name].text)
    found = judge(path)
    assert found.status in ALL[name].statuses, summary_of(found)


def test_the_next_is_judged_right(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(HONEST)
    found = judge(path)
    assert found.passed, summary_of(found)
