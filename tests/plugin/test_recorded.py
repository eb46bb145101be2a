"""`gpu_bench.compare_recorded`: one verdict on the total time of the calls that a model made."""

import pytest

from tests.plugin.conftest import BenchRun, RecordRun

HEAD = """
import pytest, torch
from pytest_gpubench import scripted
from pytest_gpubench.record import RecordedCall

def call(rows, calls, dtype="float32", op="aten.mul.Tensor"):
    return RecordedCall(op, ((rows, 2), (2,)), (dtype, dtype), calls)

@scripted([20.0, 20.2, 19.8])
def double(x, y): return x * 2

@scripted([10.0, 10.1, 9.9])
def add(x, y): return x + x

@scripted([10.0])
def wrong_for_three(x, y): return x + x + (len(x) == 3)

CALLS = [call(2, 30), call(3, 10)]

def make(call): return [torch.ones(shape) for shape in call.shapes]
"""


def source(limit: str, arguments: str = "add, double, CALLS, make") -> str:
    return f"""{HEAD}
@pytest.mark.perf({limit})
def test_it(gpu_bench):
    found = gpu_bench.compare_recorded({arguments})
    print("found", found.speedup, found.interval, len(found.comparisons))
"""


@pytest.mark.parametrize(("limit", "is_kept"), [(1.999, True), (2.001, False)])
def test_the_total_is_judged(bench_run: BenchRun, limit: float, is_kept: bool) -> None:
    result = bench_run(source(f"min_weighted_speedup={limit}"), "-s")
    result.assert_outcomes(passed=int(is_kept), failed=int(not is_kept))
    if is_kept:
        result.stdout.fnmatch_lines(["*found * Interval*) 2"])
        return
    result.stdout.fnmatch_lines(
        [
            ">  *gpu_bench.compare_recorded(add, double, CALLS, make)",
            "E *LimitBroken: the total of 40 recorded calls is not fast enough against the reference: 2.000x [[]*[]], "
            "wanted at least 2.001x (400.0 us against 800.0 us, 2 shapes, 99.9 % interval)",
        ]
    )


def test_other_limits_hold_for_each_shape(bench_run: BenchRun) -> None:
    result = bench_run(source("min_speedup=3"))
    result.stdout.fnmatch_lines(["E *LimitBroken: add 2x2 2 is *: 2.000x *, wanted at least 3x *"])


def test_a_shape_for_which_it_is_wrong(bench_run: BenchRun) -> None:
    result = bench_run(source("", "wrong_for_three, double, CALLS, make"))
    result.stdout.fnmatch_lines(["E *WrongResult: wrong_for_three 3x2 2 is wrong: out: 6 of 6 elements *"])


def test_the_verdict_is_with_the_shape_that_takes_most_time(record_run: RecordRun) -> None:
    record = record_run(source("min_weighted_speedup=1.5")).records[0]
    found = {item.timing.label: [each.kind for each in item.verdicts] for item in record.measurements}
    none: list[str] = []
    assert found == {
        "double 2x2 2": none,
        "add 2x2 2": ["min_weighted_speedup"],
        "double 3x2 2": none,
        "add 3x2 2": none,
    }
    assert record.measurements[1].verdicts[0].found.startswith("2.000x [")


@pytest.mark.parametrize(
    ("calls", "labels"),
    [
        ("[call(2, 1), call(2, 1, 'float64')]", ["add 2x2 2 float32", "add 2x2 2 float64"]),
        ("[call(2, 1), call(2, 1, op='aten.mul.out')]", ["add 2x2 2 aten.mul.Tensor", "add 2x2 2 aten.mul.out"]),
        ("[call(2, 1), call(2, 1)]", ["add 2x2 2 #1", "add 2x2 2 #2"]),
        ("[RecordedCall('a', ((),), ('int8',), 2)]", ["add scalar"]),
    ],
)
def test_labels_tell_calls_apart(record_run: RecordRun, calls: str, labels: list[str]) -> None:
    record = record_run(source("", f"add, double, {calls}, lambda call: [torch.ones(2), 0]")).records[0]
    assert [item.timing.label for item in record.measurements if item.role == "candidate"] == labels


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("add, double, 'shapes.json', make", "BadRequest: compare_recorded(calls='shapes.json') is not valid: give *"),
        ("add, double, [], make", "BadRequest: compare_recorded(calls=[[][]]) is not valid: give recorded calls, as*"),
        ("add, double, CALLS, make, setup=make", "BadRequest: compare_recorded() takes no setup=: make= returns *"),
        ("add, double, CALLS, make, rtoll=1", "TypeError: *rtoll*"),
        ("{'a': add}, double, CALLS, make", "BadRequest: compare_recorded() takes one candidate, found a mapping*"),
    ],
)
def test_bad_calls(bench_run: BenchRun, arguments: str, words: str) -> None:
    result = bench_run(source("", arguments))
    result.stdout.fnmatch_lines([f"E *{words}"])


def test_too_few_reps_are_inconclusive(bench_run: BenchRun) -> None:
    result = bench_run(source("min_weighted_speedup=1.5, reps=4"))
    result.stdout.fnmatch_lines(["*the total of 40 recorded calls is too close to tell *, 2 shapes with too few *"])


@pytest.mark.parametrize("limit", ["min_weighted_speedup=1.5", "min_weighted_speedup=1.5, min_speedup=1.5"])
def test_a_test_that_compares_no_recorded_calls_fails(bench_run: BenchRun, limit: str) -> None:
    result = bench_run(f"""{HEAD}
@pytest.mark.perf({limit})
def test_it(gpu_bench): gpu_bench.compare(add, double, (1, 2))
""")
    result.stdout.fnmatch_lines(
        [
            "*perf(min_weighted_speedup=1.5) was never judged: the test compared no recorded calls; call "
            "gpu_bench.compare_recorded(...) in it*"
        ]
    )
    result.assert_outcomes(passed=0, failed=1)
