"""`gpu_bench.compare`: outputs are checked before the speedup; refused requests; the report."""

import re

import pytest

from tests.plugin.conftest import BenchRun, CheckRows, RecordRun

FUNCTIONS = """
import torch

x = torch.arange(8.0)

@scripted([20.0, 20.2, 19.8], kernels=["multiply"])
def double(x): return x * 2

@scripted([10.0, 10.1, 9.9], kernels=["load", "store"])
def add(x): return x + x

@scripted([10.0, 10.0, 10.4, 10.4])
def shaky(x): return x + x

@scripted([10.0])
def wrong(x): return x * 2 + (x > 5)
"""


def limited(limit: str, body: str) -> str:
    return f"{FUNCTIONS}\n@pytest.mark.perf(min_speedup={limit})\ndef test_it(gpu_bench):\n    {body}\n"


def unlimited(body: str) -> str:
    return f"{FUNCTIONS}\ndef test_it(gpu_bench):\n    {body}\n"


def test_each_variant_has_its_limit(record_run: RecordRun) -> None:
    body = "gpu_bench.compare({'fast': add, 'same': double, 'free': shaky}, double, (x,))"
    recorder = record_run(limited("{'fast': 1.9, 'same': 1.5}", body))
    assert recorder.call.failed
    reference, *candidates = recorder.records[0].measurements
    assert (reference.timing.label, reference.verdicts, reference.speedup) == ("double", (), None)
    found = {item.timing.label: [(each.limit, each.outcome.value) for each in item.verdicts] for item in candidates}
    free = ("min_speedup={'fast': 1.9, 'same': 1.5}", "not judged")
    assert found == {"fast": [("min_speedup=1.9", "pass")], "same": [("min_speedup=1.5", "fail")], "free": [free]}
    ratios = [item.speedup.ratio for item in candidates if item.speedup]
    assert ratios == pytest.approx([2, 1, 1.96], abs=0.05)


def test_a_comparison_without_a_limit_ends_when_it_is_precise(bench_run: BenchRun) -> None:
    body = """comparison = gpu_bench.compare(add, double, (x,))
    assert comparison.speedup == pytest.approx(2)
    assert comparison.interval.low <= comparison.speedup <= comparison.interval.high
    quads = comparison["add"].speedup.quads
    assert 6 < quads < 640
    assert gpu_bench.compare(shaky, double, (x,))["shaky"].speedup.quads == 640
    assert gpu_bench.compare(shaky, double, (x,), precision=0.1)["shaky"].speedup.quads == 6
    assert (comparison.timing.reps, comparison.reference.reps) == (2 * quads, 2 * quads)
    assert comparison.timing.median_us == pytest.approx(10, abs=0.1)
    assert (comparison.verdicts, comparison.differences) == ((), ("out PASS max_diff=0",))"""
    bench_run(unlimited(body)).assert_outcomes(passed=1)


CANNOT = {
    "alpha=0.5": "alpha is 0.5: a comparison needs one below 0.5, or chance decides",
    "min_speedup={'tritn': 1.5}": "perf(min_speedup=...) names 'tritn', but the candidates are triton, b: use the *",
}


def test_what_a_mark_asks_and_no_comparison_can_do_is_refused(check_rows: CheckRows) -> None:
    test = "@pytest.mark.perf({})\ndef test_it(gpu_bench): gpu_bench.compare({{'triton': add, 'b': add}}, double, (x,))"
    check_rows(FUNCTIONS, {test.format(marks): sentence for marks, sentence in CANNOT.items()})


# how it is measured


def test_one_arm_after_the_other(bench_run: BenchRun) -> None:
    source = """
order = []
@scripted([20.0])
def one(): order.append("A"); return 1
@scripted([10.0])
def two(): order.append("B"); return 1

def test_it(gpu_bench):
    gpu_bench.compare(two, one, reps=40, interleave=False)
    assert "".join(order[2:]) in ("A" * 40 + "B" * 40, "B" * 40 + "A" * 40)  # the first two are the check
"""
    bench_run(source).assert_outcomes(passed=1)


# right before fast


CHECKED: dict[str, str | None] = {
    "compare(in_place, double, (x,))": "WrongResult: in_place is wrong: args[[]0]: the candidate overwrites it, the "
    "reference leaves it alone; if that is meant, give overwrites=('args[[]0]',)",
    "compare(in_place, in_place, (x,), overwrites='args[0]')": "BadRequest: overwrites= must be True, or names of *",
    "compare({'a': double, 'b': batched}, double, (x,), batch_invariant=True)": "WrongResult: b is not batch-in*",
    "compare(half, double, (leaf,), golden='float64', grads=True)": "WrongResult: half is wrong: grad args[[]0[]]: *"
    "against golden its largest error is *",
    "compare(in_place, double, setup=lambda: (x.clone(),), reps=20)": None,
    "compare(in_place, double, (x,), overwrites=True, vary=False, reps=20); assert x[1] == 1": None,
    "compare(add, double, (leaf,), golden='float64', grads=True, reps=20)": None,
    "measure(in_place, (x,), reps=20); assert x[1] == 2": None,
}


def test_what_calls_compute_and_leave_is_checked_as_asked(check_rows: CheckRows) -> None:
    head = f"""{FUNCTIONS}
leaf = x.clone().requires_grad_()
@scripted([1.0])
def in_place(x): return x.mul_(2)
@scripted([1.0])
def batched(x): return x * (2 + 1e-6 * (len(x) > 1))
@scripted([1.0])
def half(x): return x + x.detach()
"""
    check_rows(head, {f"def test_it(gpu_bench): gpu_bench.{call}": error for call, error in CHECKED.items()})


def test_switched_off_it_still_checks_and_measures_nothing(bench_run: BenchRun) -> None:
    source = f"""{FUNCTIONS}
calls = []
def spy(x):
    calls.append(1)
    return x * 2

@pytest.mark.perf(min_speedup=3)
def test_right(gpu_bench):
    comparison = gpu_bench.compare(spy, double, (x,))
    assert comparison.differences == ("out PASS max_diff=0",)
    assert not comparison.timing.measured and not comparison.reference.measured
    assert calls == [1]
def test_wrong(gpu_bench): gpu_bench.compare(wrong, double, (x,))
def test_reads_a_number(gpu_bench): assert gpu_bench.compare(add, double, (x,)).speedup > 1
"""
    result = bench_run(source, "--gpu-bench-disable", "-rs")
    result.assert_outcomes(passed=1, failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "gpu_bench: *, switched off",
            "E *WrongResult: wrong is wrong: *",
            "gpu_bench: not measured: 4 calls, switched off by --gpu-bench-disable",
            "SKIPPED *there is no speedup: switched off by --gpu-bench-disable",
        ]
    )


# trouble


RAISING = {
    "measure(moody, reps=20)": "raised in rep 7 of 'moody'*",
    "compare(good, bad)": "raised by the reference 'bad', whose outputs were to be compared",
    "compare({'poor': bad}, good)": "raised by 'poor', whose outputs were to be compared",
    "compare(moody, good, reps=20)": "raised in rep * of 'moody'",
    "compare(good, good)": None,
}


def test_an_error_of_a_function_keeps_its_traceback_with_a_note(check_rows: CheckRows) -> None:
    head = """
calls = []

@scripted([1.0])
def good(): return 1
@scripted([1.0])
def bad(): raise ValueError("enough")
@scripted([1.0])
def moody():
    calls.append(1)
    return 1 if len(calls) % 7 else bad()
"""
    for report in check_rows(
        head, {f"def test_it(gpu_bench): gpu_bench.{call}": note for call, note in RAISING.items()}
    ):
        assert ("ValueError: enough" in report.longreprtext) == report.failed
        assert not re.search(
            r"(fixture|agreement|correctness|sampling|measurement|rounds|comparison)\.py", report.longreprtext
        )
