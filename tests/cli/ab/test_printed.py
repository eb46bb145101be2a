"""What is printed in the end."""

import pytest

from pytest_gpubench.cli.ab.printed import exit_status, report_lines
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.regression import Change
from pytest_gpubench.verdict.saved_runs import Finding


def judgement(outcome: Outcome, compared: bool = True) -> Finding:
    change = Change(1.0, None, "median", 0.01) if compared else None
    return Finding(f"test_{outcome.value}", "f\n", outcome, "so", change)


def test_the_worst_comes_first() -> None:
    found = report_lines([judgement(outcome) for outcome in Outcome])
    assert found == [
        "FAIL          test_fail [f\\n]: so",
        "INVALID       test_invalid [f\\n]: so",
        "INCONCLUSIVE  test_inconclusive [f\\n]: so",
        "NOT JUDGED    test_not judged [f\\n]: so",
        "PASS          test_pass [f\\n]: so",
        "gpu_bench: 5 measurements compared: 1 fail, 1 invalid, 1 inconclusive, 1 not judged, 1 pass",
    ]


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 2),
        ([judgement(Outcome.NOT_JUDGED, compared=False), judgement(Outcome.INVALID, compared=False)], 2),
        ([judgement(Outcome.PASS), judgement(Outcome.NOT_JUDGED, compared=False)], 0),
        ([judgement(Outcome.INCONCLUSIVE)], 0),
        ([judgement(Outcome.PASS), judgement(Outcome.FAIL)], 1),
        ([judgement(Outcome.FAIL, compared=False)], 1),
        ([judgement(Outcome.PASS), judgement(Outcome.INVALID, compared=False)], 1),
        ([judgement(Outcome.INVALID)], 1),
        ([judgement(Outcome.INVALID, compared=False), judgement(Outcome.FAIL, compared=False)], 1),
    ],
)
def test_the_exit_status(findings: list[Finding], status: int) -> None:
    assert exit_status(findings) == status
