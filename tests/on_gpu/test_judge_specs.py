"""Problems of other formats, each with its own reference as the candidate: right, and as fast as itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench.judge.judging import Judge
from tests.judge.problems import PROBLEMS, judge_by
from tests.judge.test_spec_flashinfer import REFERENCE, WRITES, solution, write
from tests.on_gpu.judged import summary_of


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge: the next processes are warmed while one is used."""
    spec, _ = PROBLEMS["relu"].write(tmp_path_factory.mktemp("relu"))
    with Judge(spec, "cuda", budget_s=0.5, ahead=8, trust_claims=True) as judge:
        yield judge


SOME = ("square_matmul", "relu", "softmax", "layer_norm", "convolution")
"""Judged by default: each takes two seconds."""


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in PROBLEMS]
)
def test_a_kernelbench_problem_is_as_fast_as_itself(judge: Judge, tmp_path: Path, name: str) -> None:
    """Its kernels are those of torch's libraries, which the referee replays.

    Two processes time one of cuDNN's convolutions up to 4 % apart (64.1 and 61.8 us on an H200).
    """
    spec, candidate = PROBLEMS[name].write(tmp_path)
    found = judge_by(judge, spec, candidate)
    assert found.status in ("pass", "inconclusive"), summary_of(found)
    assert found.cases[0].timed_by == "referee", summary_of(found)
    interval = found.cases[0].interval
    assert interval is not None, summary_of(found)
    assert interval.low <= 1.05, summary_of(found)
    assert interval.high >= 0.95, summary_of(found)


def test_a_solution_of_a_flashinfer_definition_is_judged(judge: Judge, tmp_path: Path) -> None:
    found = judge_by(judge, write(tmp_path), solution(tmp_path, {"main.py": WRITES, "parts.py": REFERENCE}))
    assert found.passed, summary_of(found)
    assert [each.case for each in found.cases] == ["batch_size=2, workload='w2'", "batch_size=5, workload='w5'"]
