"""Whole judgements on the CPU: one spec, many candidates, a process for each."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.judge.isolation import landlock
from pytest_gpubench.judge.judgement import Judgement
from pytest_gpubench.judge.judging import Judge
from tests.judge.candidates import HARMLESS, HONEST, STATUSES, text_of

SPEC = """
import torch

def reference(x):
    y = x
    for _ in range(4):
        y = torch.tanh(y) + x
    return y

def inputs(seed):
    return (torch.randn(20_000, generator=torch.Generator().manual_seed(seed)),)
"""
ISOLATED = pytest.mark.skipif(not landlock.version(), reason="needs a kernel with Landlock")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge by one spec."""
    spec = tmp_path_factory.mktemp("judge") / "spec.py"
    spec.write_text(SPEC)
    with Judge(spec, "cpu", timeout_s=60, memory_bytes=2**31, budget_s=0.1, ahead=1) as judge:
        yield judge


def judged(judge: Judge, folder: Path, body: str) -> Judgement:
    """Return the judgement of a candidate."""
    path = folder / "candidate.py"
    path.write_text(text_of(body))
    return judge(path)


def test_an_honest_candidate_passes(judge: Judge, tmp_path: Path) -> None:
    """It is right, timed in both ways, and the judgement survives JSON."""
    path = tmp_path / "honest.py"
    path.write_text(HONEST)
    found = judge(path)
    assert found.status == "pass", found
    assert found.cases[0].compared > 20
    assert found.ratio is not None
    assert found.attested_ratio is not None
    assert msgspec.json.decode(found.to_json(), type=Judgement) == found


@pytest.mark.parametrize("name", STATUSES)
def test_what_does_not_do_its_work_never_passes(judge: Judge, tmp_path: Path, name: str) -> None:
    """Each has its status, and costs only itself."""
    status, body = STATUSES[name]
    found = judged(judge, tmp_path, body)
    assert found.status == status, found
    assert found.reason


@ISOLATED
@pytest.mark.parametrize("name", HARMLESS)
def test_attempts_to_reach_out_come_to_nothing(judge: Judge, tmp_path: Path, name: str) -> None:
    """The candidate is judged like any other."""
    found = judged(judge, tmp_path, HARMLESS[name])
    assert found.status == "pass", found
