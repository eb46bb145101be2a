"""Which examples are judged: the worst, those near the limit, and none twice."""

import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pytest_gpubench import Measurement, MeasurementError, Phases, Timing, WrongResult
from pytest_gpubench.bench.phases import PhasesRequest
from pytest_gpubench.bench.request import CallResult
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.search import Example, Search
from pytest_gpubench.search.budget import TimeBudget
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.compilations import Compilations
from pytest_gpubench.verdict.limits import Limits
from tests.results.measured import verdict as verdict_on
from tests.search.requests import WHEN_TIMED, WRONG, Harness, compared, request_of
from tests.search.test_example import Opaque

pytestmark = pytest.mark.usefixtures("quick_collection")

NEAR = 1.1


def test_only_the_worst_so_far_is_judged() -> None:
    harness = Harness()
    found = []
    for n, ratio in enumerate([2.0, 2.0, 3.0, 1.999, 2.0, 0.5]):
        harness.compare(n, fast=ratio)
        found.append(harness.took())
    assert found == [["quick", "full"], ["quick"], ["quick"], ["quick", "full"], ["quick"], ["quick", "full"]]


@pytest.mark.parametrize(("ratio", "judged"), [(NEAR * 2 - 1e-6, True), (NEAR * 2, False), (NEAR * 2 + 1e-6, False)])
def test_what_is_near_its_limit_is_judged(ratio: float, judged: bool) -> None:
    harness = Harness(fast=2.0)
    harness.compare(0, fast=1.0)
    harness.took()
    harness.compare(1, fast=ratio)
    assert harness.took() == (["quick", "full"] if judged else ["quick"])


def test_each_candidate_and_comparison_has_its_worst() -> None:
    harness = Harness(second=2.0)
    harness.compare(0, first=1.0, second=5.0)
    harness.further(first=3.0, second=6.0)
    assert harness.took() == ["quick", "full"] * 2
    harness.compare(1, first=2.0, second=4.9)
    harness.further(first=3.1, second=5.5)
    assert harness.took() == ["quick", "full"] * 2
    harness.compare(2, first=2.0, second=4.9)
    harness.further(first=3.1, second=5.5)
    assert harness.took() == ["quick"] * 2


def test_a_comparison_is_remembered_by_its_arguments() -> None:
    harness = Harness()
    first = harness.compare(1, args=(torch.zeros(3),), fast=2.0)
    told = list(harness.measured)
    assert [item.example for item in told] == ["n=1"] * 2
    second = harness.further(args=(torch.zeros(3),), fast=2.0)
    assert harness.took() == ["quick", "full", "quick", "full"]
    assert first is not second
    assert harness.compare(1, args=(torch.zeros(3),), fast=9.0) is first
    assert all(item is before for item, before in zip(harness.measured, told, strict=True))
    assert harness.further(args=(torch.zeros(3),), fast=0.1) is second
    assert harness.took() == ["checked", "checked"]
    assert harness.compare(1, args=(torch.zeros(4),), fast=9.0) is not first
    assert harness.compare(2, args=(torch.zeros(3),), fast=9.0) is not first
    assert harness.took() == ["quick", "quick"]


def test_a_budget_that_is_spent_leaves_the_check() -> None:
    harness = Harness(budget_s=5.0)
    known = harness.compare(0, fast=2.0)
    harness.took()
    harness.search.time.spent_s = 5.0
    harness.compare(1, fast=1.0)
    assert harness.log == [("checked", "--gpu-bench-given-budget-s of 5 s is spent")]
    assert harness.compare(0, fast=1.0) is known
    harness.took()
    harness.search.time.spent_s = 4.99
    harness.compare(1, fast=1.0)
    assert harness.took() == ["checked"]  # as it was before
    for spent_s, has_failed, done in (
        (4.99, False, ["quick", "full"]),
        (9.99, True, ["quick", "full"]),  # a failure has as much again to shrink
        (10.0, True, ["checked"]),
    ):
        harness = Harness(budget_s=5.0)
        harness.search.time.spent_s, harness.search.time.has_failed = spent_s, has_failed
        harness.compare(2, fast=1.0)
        assert harness.took() == done


def test_a_failed_comparison_is_paid_for() -> None:
    harness = Harness()
    with pytest.raises(ValueError, match="no"):
        harness.obtain(request_of({"fast": 1.0}, harness.log, error=ValueError("no")))
    assert harness.search.time.spent_s > 0
    assert not harness.search.known


def test_what_cannot_be_told_apart_is_not_remembered() -> None:
    harness = Harness()
    found = []
    for ratio in (2.0, 0.5):
        harness.search.begin(Example.of({"case": Opaque()}))
        found.append(harness.further(fast=ratio)["fast"].speedup)
    assert found[0] != found[1]


def test_a_number_of_reps_leaves_out_the_cheap_look() -> None:
    harness = Harness()
    harness.compare(0, reps=40, fast=2.0)
    harness.compare(1, reps=40, fast=3.0)
    assert harness.log == [("take", 40, 0.01 / 2), ("take", 40, 0.01 / 6)]


@pytest.mark.parametrize(
    ("limits", "candidates", "number"),
    [
        (Limits(), 3, 1),
        (Limits(max_kernels=1, deterministic=True), 3, 1),
        (Limits(min_speedup=1), 1, 1),
        (Limits(min_speedup=1), 3, 3),
        (Limits(min_speedup=1, max_time_us=40, max_rel_std=0.1, max_kernels=1), 2, 6),
        (Limits(min_gbps=1, min_tflops=1, min_peak_fraction=0.5), 1, 3),
    ],
)
def test_noisy_limits_of_all_candidates_share_alpha(limits: Limits, candidates: int, number: int) -> None:
    harness = Harness()
    ratios = dict.fromkeys("abc"[:candidates], 2.0)
    request = request_of(ratios, harness.log, Settings(reps=40, alpha=0.01), limits=ratios)
    harness.obtain(replace(request, limits=limits))
    assert harness.log == [("take", 40, 0.01 / 2 / number)]


def test_the_trend_of_a_failure() -> None:
    harness = Harness()
    for n in range(4):
        harness.compare(n, fast=4.0 - n)
    assert harness.search.explain("fast", "ref") == ""
    harness.compare(4, fast=0.12345)
    expected = (
        "fast by n, over 5 examples: up to 0: 4.00x, up to 1: 3.00x, up to 2: 2.00x, up to 3: 1.00x, up to 4: 0.123x"
    )
    assert harness.search.explain("fast", "ref") == f"gpu_bench: {expected}"
    assert harness.search.explain("other", "ref") == ""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"error": WHEN_TIMED}, {}),
        ({"error": WHEN_TIMED, "wrong": [WRONG]}, {}),
        ({"error": MeasurementError("no")}, {}),
        ({"error": MeasurementError("no"), "wrong": [WRONG]}, {"error": MeasurementError("other")}),
        ({}, {"error": WHEN_TIMED}),
    ],
)
@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize("spent_s", [0.0, 100.0])
def test_an_example_stays_what_it_was(
    first: dict[str, Any], second: dict[str, Any], is_wrong: bool, spent_s: float
) -> None:
    """Whatever happens between: another example is wrong, or time is up, or there is more of it."""
    harness = Harness()
    before = compared(harness, 1, **{**first, "wrong": list(first.get("wrong", []))})
    harness.search.is_wrong, harness.search.time.spent_s = is_wrong, spent_s
    assert compared(harness, 1, **second) == before


@pytest.mark.parametrize(("is_wrong", "spent_s"), [(True, 0.0), (False, 30.0)])
def test_what_was_only_checked_is_never_timed_and_what_was_wrong_then_stays_so(is_wrong: bool, spent_s: float) -> None:
    harness = Harness()
    harness.search.is_wrong, harness.search.time.spent_s = is_wrong, spent_s
    assert "wrong result" in (reason := compared(harness, 1)) or "budget" in reason
    assert [compared(harness, 2, wrong=[WRONG]), compared(harness, 2)] == ["wrong", "wrong"]
    assert harness.search.is_wrong
    harness.search.is_wrong, harness.search.time.spent_s = False, 0.0
    harness.log.clear()
    compared(harness, 1)
    assert harness.took() == ["checked"]


def test_only_what_is_wrong_in_any_call_ends_the_timing() -> None:
    harness = Harness()
    assert compared(harness, 1, error=WHEN_TIMED) == "wrong when timed"
    harness.log.clear()
    assert compared(harness, 2) == "timed"
    assert compared(harness, 3, error=WHEN_TIMED, wrong=[WRONG]) == "wrong"
    harness.log.clear()
    assert "so later ones are only checked" in compared(harness, 4)


def test_what_was_wrong_is_checked_again_for_hypothesis_to_follow() -> None:
    """Whatever comes of that: an example stays what it was."""
    harness = Harness()
    found = [compared(harness, 1, wrong=[WRONG], error=WHEN_TIMED)]
    harness.log.clear()
    found += [compared(harness, 1, wrong=[WrongResult("otherwise")]), compared(harness, 1)]
    assert found == ["wrong"] * 3
    assert harness.took() == ["checked", "checked"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_phases_shown_are_those_that_broke_a_limit_and_then_the_slowest(order: tuple[int, ...]) -> None:
    found = [phases_of("b", 5.0, "pass"), phases_of("b", 9.0, "pass"), phases_of("b", 7.0, "fail")]
    search = Search(TimeBudget(30.0), Example("", {}))
    for place in order:
        search.known[f"n={place}", 1, PhasesRequest, "b"] = found[place]
        search.known[f"n={place}", 2, PhasesRequest, "b"] = phases_of("b", 1.0 + place, "pass")
    shown = search.shown_phases([], found[0].result)
    assert [(each.title, each.sum_us) for each in shown] == [("b at n=2", 7.0), ("b at n=2", 3.0)]


def phases_of(title: str, sum_us: float, outcome: str) -> CallResult[Phases]:
    timing = Timing(label=title, timer="scripted", cache="hot", device="CPU", samples_us=(sum_us,))
    verdict = verdict_on("max_time_us=6", Outcome(outcome))
    phases = Phases(title=title, timer="scripted", cache="hot", device="CPU", sum_us=sum_us)
    return CallResult(phases, (Measurement(timing=timing, verdicts=(verdict,)),))


@pytest.mark.parametrize(
    ("examples", "number", "line"),
    [
        (42, 0, None),
        (42, 1, "42 examples, 1 compilation (31 s)"),
        (42, 10, "42 examples, 10 compilations (31 s)"),
        (40, 9, "40 examples, 9 compilations (31 s)"),
        (41, 10, "41 examples, 10 compilations (31 s)"),
        (40, 10, "40 examples, 10 compilations (31 s); for fewer, bucket the shapes: multiple_of=64, say, in their "),
        (9, 9, "9 examples, 9 compilations (31 s)"),
    ],
)
def test_compilations_are_told(examples: int, number: int, line: str | None) -> None:
    search = Search(TimeBudget(30.0), Example("", {}))
    for n in [*range(examples), 0]:
        search.begin(Example(f"n={n}", {"n": n}, compilations=Compilations(number, 31.0)))
    lines = search.explain("fast", "ref").splitlines()
    assert [each.removesuffix("strategy") for each in lines] == ([] if line is None else [f"gpu_bench: {line}"])
    assert str(search) == (f"{examples} examples" if line is None else line.partition(";")[0])


def test_compiling_is_not_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a hundred seconds by the clock, of which ninety are compiling."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    runtime = SimpleNamespace(jit_cache_hook=None, jit_post_compile_hook=None)
    monkeypatch.setitem(sys.modules, "triton.knobs", cast(Any, SimpleNamespace(runtime=runtime)))

    def compiling() -> None:
        clock[0] += 5
        runtime.jit_cache_hook(key="k")
        clock[0] += 45
        runtime.jit_post_compile_hook(key="k")

    harness = Harness()
    compared(harness, 1, during=compiling)
    assert harness.search.time.spent_s == 10  # a cheap look, and the full protocol
    with pytest.raises(ValueError, match="no"):
        compared(harness, 2, during=compiling, error=ValueError("no"))
    assert harness.search.time.spent_s == 15
