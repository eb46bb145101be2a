"""The rules for limits that ended without PASS, FAIL or INVALID, and the order in which verdicts are told."""

from functools import partial
from typing import Any

import pytest
from msgspec import structs

from pytest_gpubench import PastChange
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.verdict.ending import Ending, rule_for, unjudged
from pytest_gpubench.verdict.limits import Limits, severity
from tests.results.measured import alone, speedup_over, verdict


@pytest.mark.parametrize(
    ("ending", "setting", "default", "strict"),
    [
        (Ending.INCONCLUSIVE, {}, "warn", "fail"),
        (Ending.NOT_JUDGED, {}, "warn", "fail"),
        (Ending.NO_RUN, {}, "fail", "fail"),
        (Ending.NO_TEST, {}, "warn", "fail"),
        (Ending.OTHER_HOST, {}, "fail", "fail"),
        # a finer setting counts
        (Ending.INCONCLUSIVE, {"inconclusive": "pass"}, "ignore", "ignore"),
        (Ending.NO_RUN, {"missing_baseline": "warn"}, "fail", "fail"),
        (Ending.NO_RUN, {"missing_baseline": "ignore"}, "ignore", "ignore"),
        (Ending.NO_TEST, {"missing_baseline": "ignore"}, "ignore", "ignore"),
        (Ending.OTHER_HOST, {"host_mismatch": "warn"}, "warn", "warn"),
    ],
)
def test_what_an_ending_does_to_its_test(ending: Ending, setting: dict[str, Any], default: str, strict: str) -> None:
    known = {"strict": True, "inconclusive": "fail", "missing_baseline": "fail", **setting}  # as --gpu-bench-strict is
    rules = rule_for(ending, Settings(**setting)), rule_for(ending, Settings(**known))
    assert [each.action for each in rules] == [default, strict]
    assert all(each.remedy for each in rules)


NEVER = "was not judged by any measurement"


@pytest.mark.parametrize(
    ("limits", "verdicts", "sentences"),
    [
        ({}, [], []),
        ({"max_time_us": 5}, [("max_time_us=5", Outcome.PASS)], []),
        ({"max_time_us": 5}, [("max_time_us=5", Outcome.INCONCLUSIVE)], []),
        ({"max_time_us": 5}, [("max_time_us=5", Outcome.NOT_JUDGED)], ["max_time_us=5 so"]),
        ({"max_time_us": 5}, [], ["perf(max_time_us=5) " + NEVER]),
        (
            {"min_speedup": {"a": 2}},
            [("min_speedup={'a': 2}", Outcome.NOT_JUDGED), ("min_speedup=2", Outcome.PASS)],
            [],
        ),
        ({"deterministic": False}, [], []),
        # what has a verdict for each of its parts is judged by them
        ({"forbid": ("sync", "alloc")}, [("forbid='sync'", Outcome.PASS)] * 2, []),
        (
            {"forbid": ("sync", "alloc")},
            [("forbid='sync'", Outcome.PASS), ("forbid='alloc'", Outcome.NOT_JUDGED)],
            ["forbid='alloc' so"],
        ),
        (
            {"max_counters": {"loads": 1}},
            [("max_counters={'loads': 1}", Outcome.NOT_JUDGED), ("max_counters={'stores': 1}", Outcome.PASS)],
            ["max_counters={'loads': 1} so"],
        ),
        ({"forbid": "sync"}, [("forbid='sync'", Outcome.NOT_JUDGED), ("forbid='sync'", Outcome.FAIL)], []),
        ({"max_time_us": 5}, [("the test", Outcome.INVALID)], []),
        ({}, [("compare_fail=5%", Outcome.NOT_JUDGED)], ["compare_fail=5% so"]),
        ({"max_time_us": 5, "max_kernels": 1}, [("max_time_us=5", Outcome.PASS)], ["perf(max_kernels=1) " + NEVER]),
    ],
)
def test_unjudged_limits(limits: dict[str, Any], verdicts: list[tuple[str, Outcome]], sentences: list[str]) -> None:
    found = [verdict(limit, outcome, f"{limit} so") for limit, outcome in verdicts]
    assert unjudged(Limits(**limits), found) == sentences


FROM_WORST = (
    ("nothing was measured", Outcome.INVALID),
    ("max_kernels=1", Outcome.FAIL),  # exact
    ("max_time_us=100", Outcome.FAIL),  # 3 times as long
    ("max_regression=0.05", Outcome.FAIL),  # 1.5 times
    ("compare_fail=median:60us", Outcome.FAIL),  # 1.2 times
    ("min_speedup=1.0", Outcome.FAIL),  # 1.1 times
    ("max_rel_std=0.05", Outcome.FAIL),
    ("max_time_us=299", Outcome.INCONCLUSIVE),
    ("max_time_us={'A100': 1}", Outcome.NOT_JUDGED),
    ("max_kernels=9", Outcome.PASS),
)


def test_verdicts_are_told_from_the_worst_on() -> None:
    change = PastChange(baseline="main", metric="median", ratio=1.575, interval=None, old_us=190.5)
    item = structs.replace(alone(us=300), change=change, speedup=speedup_over(273, 0.91))
    wanted = [verdict(limit, outcome) for limit, outcome in FROM_WORST]
    backwards = wanted[::-1]
    assert sorted(backwards, key=partial(severity, item)) == wanted
