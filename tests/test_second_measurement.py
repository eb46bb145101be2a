"""A test that is measured once more for a saved run: what its own limits came to, and how often they are wrong."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from pytest_gpubench.bench.measurement import MeasureRequest
from pytest_gpubench.bench.work import Inspection, Work
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.counterpart import PastTest
from pytest_gpubench.results.model import Measurement, Outcome, TestRecord, Timing, Verdict
from pytest_gpubench.running_test import CurrentTest, keeping_failed, measure_and_compare
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.verdict.saved_runs import BaselineLimit, Compared
from tests.report.records import GPU
from tests.results.measured import verdict

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
SETTINGS = Settings(timer="scripted", device="cpu")
DEVICE = cpu_device()
MOVED_BYTES = 10**8


def timing_of(samples_us: Sequence[float]) -> Timing:
    return Timing(label="a", timer="scripted", cache="cold", device="GPU", samples_us=tuple(samples_us))


def held_against(samples_us: Sequence[float], tolerance: str) -> BaselineLimit:
    """Return a saved run of the same test, and by how much a median may be above its own."""
    known = PastTest("t.py::test_it", "main", GPU, "", {}, "", (Measurement(timing=timing_of(samples_us)),))
    allowed = RegressionTolerance("median", margin=float(tolerance))
    return BaselineLimit(known, allowed, "max_regression", f"median:{tolerance}")


def running(limits: Limits, past: BaselineLimit | None, settings: Settings = SETTINGS) -> CurrentTest:
    return CurrentTest("t.py::test_it", settings, limits, past=lambda facts: past)


def request_of(settings: Settings = SETTINGS) -> MeasureRequest:
    return MeasureRequest(settings, DEVICE, Limits(), (), {"a": make_call(lambda: None)})


def held(
    limits: Limits, past: BaselineLimit | None, obtain: Callable[[], list[Measurement]], settings: Settings = SETTINGS
) -> Compared:
    return measure_and_compare(running(limits, past, settings), request_of(settings), obtain)


def judged(samples_us: Sequence[float], limits: Limits, settings: Settings) -> Measurement:
    """Return what a measurement comes to that is looked at once."""
    judgement = Inspection(settings, DEVICE, limits).judgement(Work(MOVED_BYTES), single=True)
    judgement.look(timing_of(samples_us))
    return Measurement(timing=timing_of(samples_us), verdicts=judgement.verdicts)


def turns(*found: Measurement) -> Callable[[], list[Measurement]]:
    """Return these measurements, one by one."""
    rest = iter(found)
    return lambda: [next(rest)]


# what stands


@pytest.mark.parametrize("limit", ["max_time_us=1", "max_rel_std=0.1", "min_speedup=1", "min_gbps=1", "min_tflops=1"])
@pytest.mark.parametrize(
    ("first", "second"), list(itertools.permutations([PASS, FAIL, INCONCLUSIVE, Outcome.INVALID], 2))
)
def test_a_limit_is_judged_the_first_time(limit: str, first: Outcome, second: Outcome) -> None:
    """A broken one ends it: there is no second time."""
    slower = timing_of([11.0] * 40)
    measured = [Measurement(timing=slower, verdicts=(verdict(limit, each, each.value),)) for each in (first, second)]
    settings = replace(SETTINGS, alpha=0.01)
    found = held(Limits(), held_against([10.0] * 40, "0.05"), turns(*measured), settings)
    own, of_past = found.measurements[0].verdicts
    assert (own.outcome, of_past.outcome) == (first, FAIL)
    again = first in (PASS, INCONCLUSIVE)
    assert own.sentence == first.value + (" (in the first of two measurements)" if again else "")


def test_an_exact_limit_is_judged_whenever_it_can_be() -> None:
    measured = [
        Measurement(timing=timing_of([11.0] * 40), verdicts=(verdict("deterministic=True", each),))
        for each in (PASS, FAIL)
    ]
    found = held(Limits(), held_against([10.0] * 40, "0.05"), turns(*measured))
    assert [each.outcome for each in found.measurements[0].verdicts] == [FAIL, FAIL]


def test_what_is_as_fast_as_before_is_measured_once_with_all_of_alpha() -> None:
    """21 of 30 reps are below 10 us: enough at alpha 0.05, not at half of it."""
    samples_us = [9.0] * 21 + [10.5] * 9
    settings = replace(SETTINGS, alpha=0.05)
    alone, halved = (
        judged(samples_us, Limits(max_time_us=10), replace(settings, alpha=alpha)) for alpha in (0.05, 0.025)
    )
    found = held(Limits(), held_against([9.0] * 40, "0.5"), turns(alone), settings)
    assert [each.outcome for each in found.measurements[0].verdicts] == [PASS, PASS]
    assert [each.outcome for each in halved.verdicts] == [INCONCLUSIVE]


@pytest.mark.parametrize("number", [0, 1])
def test_what_raises_loses_nothing_that_was_measured(number: int) -> None:
    """What was measured before an error; the second time, what the first one found too."""
    taken = [Measurement(timing=timing_of([11.0] * 40)), Measurement(timing=timing_of([12.0] * 40))]
    calls = iter(range(2))
    test = running(Limits(), held_against([10.0] * 40, "0.05"))

    def obtain() -> list[Measurement]:
        call = next(calls)
        with keeping_failed(test, request_of(), taken[call : call + 1]):
            if call == number:
                raise ValueError("late")
        return taken[:1]

    with pytest.raises(ValueError, match="late"):
        measure_and_compare(test, request_of(), obtain)
    assert {item.timing for item in test.measurements} == {item.timing for item in taken[: number + 1]}


# a FAIL, again in a fresh process

WALL = replace(SETTINGS, timer="wall")
UNMEASURED = Timing(label="a", timer="wall", cache="cold", device="GPU", unmeasured="off")


def taken_at(us: float, *verdicts: Verdict) -> Measurement:
    """Return a measurement of 40 alike reps by the wall timer."""
    return Measurement(timing=msgspec.structs.replace(timing_of([us] * 40), timer="wall"), verdicts=verdicts)


def confirmed_by(
    fresh: TestRecord | str | None, first_us: float = 11.0, settings: Settings = WALL, second_us: float = 0.0
) -> tuple[Measurement, list[str], int]:
    """Return what is kept of a test, its warnings, and how often this process measured it."""
    past = held_against([10.0] * 40, "0.05")
    assert isinstance(past.found, PastTest)
    old = tuple(msgspec.structs.replace(each, timing=taken_at(10.0).timing) for each in past.found.measurements)
    test = running(Limits(), replace(past, found=replace(past.found, measurements=old)), settings)
    test.fresh = None if fresh is None else lambda: fresh
    here = itertools.chain([taken_at(first_us)], itertools.repeat(taken_at(second_us or first_us)))
    numbers: list[int] = []

    def obtain() -> list[Measurement]:
        numbers.append(1)
        return [next(here)]

    (item,) = measure_and_compare(test, request_of(settings), obtain).measurements
    return item, test.warnings, len(numbers)


def record_of(*items: Measurement) -> TestRecord:
    return TestRecord(nodeid="t.py::test_it", device=GPU, measurements=items)


def test_a_fail_is_confirmed_in_a_fresh_process() -> None:
    item, warnings, here = confirmed_by(record_of(taken_at(12.0)))
    (found,) = item.verdicts
    assert (found.outcome, item.timing.median_us, here, warnings) == (FAIL, 12.0, 1, [])
    assert found.sentence.endswith("; confirmed in a fresh process")


def test_a_fail_of_one_process_alone_is_none() -> None:
    item, warnings, here = confirmed_by(record_of(taken_at(10.0)))
    assert [each.outcome for each in item.verdicts] == [PASS]
    assert (item.timing.median_us, here) == (10.0, 1)
    (warning,) = warnings
    assert warning.startswith("measured a second time, in a fresh process, as the first time it came out otherwise: a ")


@pytest.mark.parametrize(("fresh_us", "outcome"), [(12.0, FAIL), (10.0, PASS), (10.5, INCONCLUSIVE)])
def test_a_fail_of_the_second_measurement_is_confirmed_too(fresh_us: float, outcome: Outcome) -> None:
    """One process that is slow may come to INCONCLUSIVE first."""
    item, warnings, here = confirmed_by(record_of(taken_at(fresh_us)), first_us=10.5, second_us=11.0)
    assert (item.verdicts[0].outcome, item.timing.median_us, here, warnings) == (outcome, fresh_us, 2, [])
    assert item.verdicts[0].sentence.endswith("; confirmed in a fresh process") == (outcome is FAIL)


@pytest.mark.parametrize(
    ("fresh", "why"),
    [
        ("no time is left", "no time is left"),
        (record_of(), "a was not measured in it"),
        (record_of(taken_at(10.0, verdict("validity=x", Outcome.INVALID, "throttled"))), "a: throttled"),
        (record_of(Measurement(timing=UNMEASURED)), "a: off"),
    ],
)
def test_where_no_fresh_process_can_the_same_one_measures_again(fresh: TestRecord | str, why: str) -> None:
    item, (warning,), here = confirmed_by(fresh)
    assert (item.verdicts[0].outcome, here) == (FAIL, 2)
    assert warning == f"measured a second time in the same process, as no fresh one could: {why}"


@pytest.mark.parametrize(
    ("first_us", "settings"),
    [
        (10.5, WALL),  # at the limit: INCONCLUSIVE
        (11.0, replace(WALL, device="auto")),  # not enforced
    ],
)
def test_a_fresh_process_is_for_fails_only(first_us: float, settings: Settings) -> None:
    _, _, here = confirmed_by(record_of(taken_at(10.0)), first_us, settings)
    assert here == 2


# how often it is wrong

NOISE = 0.01


def noisy(rng: np.random.Generator) -> list[float]:
    """Return reps whose median is 10 us."""
    found: list[float] = (10.0 * np.exp(NOISE * rng.standard_normal(60))).tolist()
    return found


@pytest.mark.parametrize("limit", ["max_time_us", "min_gbps", "max_rel_std"])
def test_a_limit_beside_a_saved_run_fails_as_seldom_as_alone(limit: str) -> None:
    """Exactly at the limit, and as fast as before, to be told within 0.001 %: every other test is measured twice."""
    alpha, number = 0.2, 400
    limits = {
        "max_time_us": Limits(max_time_us=10.0),
        "min_gbps": Limits(min_gbps=MOVED_BYTES / 10.0 / 1e3),
        "max_rel_std": Limits(max_rel_std=math.sqrt(math.expm1(NOISE**2))),
    }[limit]
    settings = replace(SETTINGS, alpha=alpha)
    failed = {"alone": 0, "beside": 0}
    taken = 0
    for seed in np.random.SeedSequence(20250613).spawn(number):
        past_seed, own_seed = seed.spawn(2)
        for name in failed:
            rng = np.random.default_rng(own_seed)

            def obtain(rng: np.random.Generator = rng) -> list[Measurement]:
                nonlocal taken
                taken += 1
                return [judged(noisy(rng), limits, settings)]

            past = held_against(noisy(np.random.default_rng(past_seed)), "0.00001") if name == "beside" else None
            found = held(limits, past, obtain, settings)
            own = [each for each in found.measurements[0].verdicts if not each.is_of_past]
            assert len(own) == 1
            failed[name] += own[0].outcome is FAIL
    assert taken > 2.5 * number  # many were measured a second time
    most = alpha / 2 if limit != "max_rel_std" else alpha  # the interval leaves out as much at either end
    assert failed["beside"] == failed["alone"]
    for fails in failed.values():
        assert fails / number <= most + 2 * math.sqrt(most * (1 - most) / number)
