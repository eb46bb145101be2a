"""Tricks that got a PASS within one process: judged in a process of their own none passes."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench import Judgement
from pytest_gpubench.judge.judging import Judge
from tests.judge.problems import judge_by
from tests.on_gpu.judged import summary_of
from tests.on_gpu.judged_honest import HONEST
from tests.on_gpu.judged_tricks import LAUNCHED_BY_THE_GPU, LIMIT, PARENT, SMOOTH, TRICKS, Trick
from tests.on_gpu.nvcc import compiled

LOOKS = 4
EACH = 3
"""One in so many tricks and honest candidates is judged; all with `-m slow`."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge: the next processes are warmed while one is used."""
    spec = tmp_path_factory.mktemp("spec") / "spec.py"
    spec.write_text(SMOOTH)
    with Judge(spec, "cuda", timeout_s=20, budget_s=0.3, ahead=8) as judge:
        yield judge


def judged(judge: Judge, folder: Path, trick: Trick, more: str = "") -> Judgement:
    """Return the judgement of a trick."""
    (folder / "spec.py").write_text(f"{trick.spec}\nlimits = {{'min_speedup': {LIMIT}}}\n{more}\n")
    (folder / "candidate.py").write_text(trick.text)
    return judge_by(judge, folder / "spec.py", folder / "candidate.py")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if at % EACH else ()) for at, each in enumerate(TRICKS)]
)
def test_no_trick_passes(judge: Judge, tmp_path: Path, name: str) -> None:
    found = judged(judge, tmp_path, TRICKS[name])
    assert not found.passed, summary_of(found)


def test_work_that_the_gpu_launches_itself(judge: Judge, tmp_path: Path) -> None:
    """Its kernels may be in no record of the candidate's profiler; by the referee's clock they take their time."""
    library = base64.b64encode(compiled(PARENT, tmp_path).read_bytes())
    trick = Trick(SMOOTH, f"LIBRARY = {library!r}\n{LAUNCHED_BY_THE_GPU}")
    found = judged(judge, tmp_path, trick)
    assert not found.passed, summary_of(found)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if at % EACH else ()) for at, each in enumerate(HONEST)]
)
def test_what_is_honest_passes(judge: Judge, tmp_path: Path, name: str) -> None:
    """The limit is one that nobody breaks; a host that is busy makes a short call INCONCLUSIVE, not for ever."""
    for _ in range(LOOKS):
        found = judged(judge, tmp_path, HONEST[name], "limits, trust_claims = {'min_speedup': 0.001}, True")
        if found.status != "inconclusive":
            break
    assert found.passed, summary_of(found)
