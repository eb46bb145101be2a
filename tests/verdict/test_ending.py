"""What a limit does to its test where it ended without PASS, FAIL or INVALID."""

from typing import Any

import pytest

from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.verdict.ending import Ending, rule_for, unjudged
from pytest_gpubench.verdict.limits import Limits
from tests.results.measured import verdict

STRICT = Settings(strict=True, inconclusive="fail", missing_baseline="fail")
"""As the settings of --gpu-bench-strict alone resolve."""


@pytest.mark.parametrize(
    ("ending", "default", "strict"),
    [
        (Ending.INCONCLUSIVE, "warn", "fail"),
        (Ending.NOT_JUDGED, "warn", "fail"),
        (Ending.NO_RUN, "fail", "fail"),
        (Ending.NO_TEST, "warn", "fail"),
        (Ending.OTHER_HOST, "fail", "fail"),
    ],
)
def test_what_an_ending_does_to_its_test(ending: Ending, default: str, strict: str) -> None:
    assert (rule_for(ending, Settings()).action, rule_for(ending, STRICT).action) == (default, strict)


def test_every_ending_has_a_rule() -> None:
    assert all(rule_for(ending, Settings()).remedy for ending in Ending)


@pytest.mark.parametrize(
    ("ending", "setting", "action"),
    [
        (Ending.INCONCLUSIVE, {"inconclusive": "pass"}, "ignore"),
        (Ending.NO_RUN, {"missing_baseline": "warn"}, "fail"),
        (Ending.NO_RUN, {"missing_baseline": "ignore"}, "ignore"),
        (Ending.NO_TEST, {"missing_baseline": "ignore"}, "ignore"),
        (Ending.OTHER_HOST, {"host_mismatch": "warn"}, "warn"),
    ],
)
def test_a_finer_setting_counts(ending: Ending, setting: dict[str, Any], action: str) -> None:
    assert rule_for(ending, Settings(**setting)).action == action
    assert rule_for(ending, Settings(strict=True, **setting)).action == action


@pytest.mark.parametrize(
    ("limits", "verdicts", "sentences"),
    [
        ({}, [], []),
        ({"max_time_us": 5}, [("max_time_us=5", Outcome.PASS)], []),
        ({"max_time_us": 5}, [("max_time_us=5", Outcome.INCONCLUSIVE)], []),
        ({"max_time_us": 5}, [("max_time_us=5", Outcome.NOT_JUDGED)], ["max_time_us=5 so"]),
        ({"max_time_us": 5}, [], ["perf(max_time_us=5) was not judged by any measurement"]),
        ({"min_speedup": 2}, [("min_speedup=2", Outcome.NOT_JUDGED), ("min_speedup=2", Outcome.PASS)], []),
        ({"deterministic": False}, [], []),
        ({"max_time_us": 5}, [("the test", Outcome.INVALID)], []),
        ({}, [("compare_fail=5%", Outcome.NOT_JUDGED)], ["compare_fail=5% so"]),
        (
            {"max_time_us": 5, "max_kernels": 1},
            [("max_time_us=5", Outcome.PASS)],
            ["perf(max_kernels=1) was not judged by any measurement"],
        ),
    ],
)
def test_limits_that_no_measurement_was_judged_by(
    limits: dict[str, Any], verdicts: list[tuple[str, Outcome]], sentences: list[str]
) -> None:
    found = [verdict(limit, outcome, f"{limit} so") for limit, outcome in verdicts]
    assert unjudged(Limits(**limits), found) == sentences
