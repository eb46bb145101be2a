"""A search within a time, in which examples beyond it are called, not timed; and with so many reps for each example."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

import pytest_gpubench.bench.ranks
from tests.plugin.conftest import BenchRun, RecordRun
from tests.plugin.test_given import TROUBLE, limited
from tests.plugin.test_ranks import ON_CPU, STEADY_US, replace_ranks, take_samples

CALLED = "before = len(called); gpu_bench.{}; gpu_bench.extra_info[f'{{{{n}}}}'] = len(called) - before"
MEASURE = CALLED.format("measure({}, (torch.ones(n),))")
PHASES = CALLED.format("phases(dict(a={}), args=(torch.ones(n),))")


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whatever is paid for take a second."""
    clock = itertools.count()
    stopped = SimpleNamespace(perf_counter=lambda: float(next(clock)))
    monkeypatch.setattr("pytest_gpubench.search.search.time", stopped)


@pytest.mark.usefixtures("seconds")
@pytest.mark.parametrize("body", [MEASURE, PHASES])
@pytest.mark.parametrize(("budget_s", "measured"), [("3", 3), ("3.5", 4)])
def test_what_the_budget_does_not_reach_is_called_once(
    record_run: RecordRun, body: str, budget_s: str, measured: int
) -> None:
    source = limited(body.format("add(10.0)"), marks="max_time_us=11")
    (record,) = record_run(source, f"--gpu-bench-given-budget-s={budget_s}").records
    left = f"--gpu-bench-given-budget-s of {budget_s} s is spent"
    assert [item.timing.unmeasured for item in record.measurements] == [None] * measured + [left] * (25 - measured)
    assert not [item for item in record.measurements[measured:] if item.verdicts]
    calls = [record.extra_info[item.example.removeprefix("n=")] for item in record.measurements]
    assert [number == 1 for number in calls] == [not item.timing.measured for item in record.measurements]


@pytest.mark.usefixtures("seconds")
def test_ranks_are_called_when_it_is_spent(record_run: RecordRun, monkeypatch: pytest.MonkeyPatch) -> None:
    take_samples(monkeypatch, STEADY_US)
    module: Any = pytest_gpubench.bench.ranks
    take, timed = module.measure_ranks, []

    def noting(job: Any, device: object, world_size: int) -> object:
        timed.append(job.timed)
        return take(job, device, world_size) if job.timed else None

    replace_ranks(monkeypatch, noting)
    source = limited("gpu_bench.ranks(scripted)", marks="max_time_us=11")
    (record,) = record_run(source, *ON_CPU, "--gpu-bench-given-budget-s=2").records
    assert timed == [True] * 2 + [False] * 23
    reasons = [item.timing.unmeasured for item in record.measurements]
    assert reasons == [None] * 2 + ["--gpu-bench-given-budget-s of 2 s is spent"] * 23


FEW = (
    "with reps=12 not every example of @given can be judged, as all of them together spend alpha 0.001: take at least "
    "31 reps, enough for max_examples=25 and to shrink what fails, or give no reps"
)


@pytest.mark.parametrize("policy", ["fail", "pass"])
def test_too_few_reps_for_a_verdict_go_as_asked_for_what_is_open(bench_run: BenchRun, policy: str) -> None:
    body = "gpu_bench.measure(add(1000.0 if n > 1 else 10.0), (torch.ones(n),))"
    options = ("--gpu-bench-reps=12", f"--gpu-bench-inconclusive={policy}")
    result = bench_run(limited(body, marks="max_time_us=20"), *options)
    text = result.stdout.str()
    result.assert_outcomes(**{"failed" if policy == "fail" else "passed": 1})
    assert text.count(f"LimitBroken: {FEW}") == (policy == "fail")
    assert not any(word in text for word in TROUBLE)
