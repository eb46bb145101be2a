"""Verdicts that throttling or other processes may have made are INVALID; what was INVALID before stays so."""

import pytest

from pytest_gpubench import Measurement, Verdict
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.verdict.throttling import beside, invalidate_throttled
from tests.results.measured import timing
from tests.results.measured import verdict as verdict_on

OUTCOMES = tuple(Outcome)
KEPT = (Outcome.INVALID, Outcome.NOT_JUDGED)
LIMITS = ("max_time_us=100.0", "max_rel_std=0.02", "min_speedup=1.5")


def verdict(outcome: Outcome, limit: str = LIMITS[0], enforced: bool = True) -> Verdict:
    return verdict_on(limit, outcome, "it is what it is", enforced)


@pytest.mark.parametrize("setting", ["fail", "warn"])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_throttled_verdicts(outcome: Outcome, limit: str, setting: str) -> None:
    given, throttled = verdict(outcome, limit), timing("f", 1.0, throttle_reasons=["sw_power_cap"])
    (found,) = invalidate_throttled([given], [timing("f", 1.0), throttled], setting)
    holds = outcome in KEPT or (outcome is Outcome.PASS and limit.startswith("max_time_us"))
    if setting == "warn" or holds:
        assert found == given
        return
    assert (found.outcome, found.limit, found.enforced) == (Outcome.INVALID, limit, True)
    assert found.sentence.startswith("the GPU was throttled while it was measured (sw_power_cap), so this says more ")
    assert "it is what it is" in found.sentence
    assert found.sentence.endswith("--gpu-bench-throttled=warn")


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_verdicts_on_threads_that_waited_for_cores(outcome: Outcome, limit: str) -> None:
    given = verdict(outcome, limit)
    (found,) = invalidate_throttled([given], [timing("f", 1.0, flags=("held up",)), timing("f", 1.0)], "warn")
    holds = outcome in KEPT or (outcome is Outcome.PASS and limit.startswith("max_time_us"))
    assert found.outcome is (outcome if holds else Outcome.INCONCLUSIVE)
    assert ("in most reps, so this says more about the CPU than about the code: it" in found.sentence) is not holds


OTHER = "1 other process: pid 7 computed on the GPU while it was measured on"


HOLDING = ("max_time_us=100.0", "max_dram_bytes=7")
"""Limits that are kept alone if they are kept beside others."""
UNCHANGED = ("max_kernels=1", "max_instructions=7", "max_counters={'atomics': 0}")


@pytest.mark.parametrize("limit", [*LIMITS, "max_dram_bytes=7", *UNCHANGED])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_verdicts_beside_another_process(outcome: Outcome, limit: str) -> None:
    given = verdict(outcome, limit)
    item = beside(Measurement(timing=timing("f", 1.0, throttle_reasons=["sw_power_cap"]), verdicts=(given,)), OTHER)
    assert item.timing.neighbours == OTHER
    (found,) = item.verdicts
    if outcome in KEPT or (outcome is Outcome.PASS and limit in HOLDING) or limit in UNCHANGED:
        assert found == given
        return
    assert (found.outcome, found.limit, found.enforced) == (Outcome.INVALID, limit, True)
    assert found.sentence == (
        f"{OTHER}, so this says more about the GPU than about the code: it is what it is; end what is not yours, "
        "let tests wait with --gpu-bench-busy=wait, or accept it with --gpu-bench-busy=accept"
    )


def test_other_processes_are_named_whatever_throttling_does_and_each_reason_once() -> None:
    hot = [timing("f", 1.0, throttle_reasons=reasons) for reasons in (["hw_slowdown", "sw_power_cap"], ["hw_slowdown"])]
    (found,) = invalidate_throttled([verdict(Outcome.FAIL)], hot, "fail")
    assert "(hw_slowdown, sw_power_cap)" in found.sentence
    (found,) = invalidate_throttled([verdict(Outcome.FAIL)], [timing("f", 1.0, neighbours=OTHER)], "warn")
    assert found.sentence.startswith(OTHER)
