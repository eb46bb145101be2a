"""Problems of other formats, each with its own reference as the candidate: right, and as fast as itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.spec import read_spec
from tests.judge.problems import PROBLEMS
from tests.judge.test_spec_flashinfer import REFERENCE, WRITES, solution, write


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge, whose spec each test replaces: the next process is warmed while one is judged."""
    spec, _ = PROBLEMS["relu"].write(tmp_path_factory.mktemp("relu"))
    with Judge(spec, "cuda", budget_s=0.5, ahead=4) as judge:
        yield judge


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_kernelbench_problem_is_as_fast_as_itself(judge: Judge, tmp_path: Path, name: str) -> None:
    spec, candidate = PROBLEMS[name].write(tmp_path)
    judge.spec = read_spec(spec)
    found = judge(candidate)
    assert found.passed, found
    assert found.ratio == pytest.approx(1, abs=0.02), found


def test_a_solution_of_a_flashinfer_definition_is_judged(judge: Judge, tmp_path: Path) -> None:
    judge.spec = read_spec(write(tmp_path))
    found = judge(solution(tmp_path, {"main.py": WRITES, "parts.py": REFERENCE}))
    assert found.passed, found
    assert [each.case for each in found.cases] == ["batch_size=2, workload='w2'", "batch_size=5, workload='w5'"]
