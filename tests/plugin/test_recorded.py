"""`gpu_bench.compare_recorded`: one verdict on the total time of the calls that a model made."""

from fnmatch import fnmatchcase

from tests.plugin.conftest import BenchRun, CheckRows, RecordRun

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


def not_recorded(limit: str) -> str:
    return f"{HEAD}\n@pytest.mark.perf({limit})\ndef test_it(gpu_bench): gpu_bench.compare(add, double, (1, 2))\n"


NONE_COMPARED = (
    "perf(min_weighted_speedup=1.5) was never judged: the test compared no recorded calls; call "
    "gpu_bench.compare_recorded(...) in it*"
)
ENDS: dict[str, str | None] = {
    source("min_weighted_speedup=1.999"): None,
    source("min_weighted_speedup=2.001"): "LimitBroken: the total of 40 recorded calls is not fast enough against the "
    "reference: 2.000x [[]*[]], wanted at least 2.001x (400.0 us against 800.0 us, 2 shapes, 99.9 % interval)",
    source("min_speedup=3"): "LimitBroken: add 2x2 2 is *: 2.000x *, wanted at least 3x *",
    source("", "wrong_for_three, double, CALLS, make"): "WrongResult: wrong_for_three 3x2 2 is wrong: out: 6 of 6 *",
    source("", "add, double, 'shapes.json', make"): "BadRequest: *(calls='shapes.json') is not valid: give *",
    source("", "add, double, [], make"): "BadRequest: *(calls=[[][]]) is not valid: give recorded calls, as*",
    source("", "add, double, CALLS, make, setup=make"): "BadRequest: *() takes no setup=: make= returns *",
    source("", "add, double, CALLS, make, rtoll=1"): "TypeError: *rtoll*",
    source("", "{'a': add}, double, CALLS, make"): "BadRequest: *() takes one candidate, found a mapping*",
    not_recorded("min_weighted_speedup=1.5"): NONE_COMPARED,
    not_recorded("min_weighted_speedup=1.5, min_speedup=1.5"): NONE_COMPARED,
}


def test_what_breaks_a_limit_is_wrong_or_cannot_be_meant_fails(check_rows: CheckRows) -> None:
    kept, *_ = check_rows("", ENDS)
    assert fnmatchcase(kept.capstdout, "found * Interval*) 2\n")


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


LABELS = {
    "[call(2, 1), call(2, 1, 'float64')]": ["add 2x2 2 float32", "add 2x2 2 float64"],
    "[call(2, 1), call(2, 1, op='aten.mul.out')]": ["add 2x2 2 aten.mul.Tensor", "add 2x2 2 aten.mul.out"],
    "[call(2, 1), call(2, 1)]": ["add 2x2 2 #1", "add 2x2 2 #2"],
    "[RecordedCall('a', ((),), ('int8',), 2)]": ["add scalar"],
}


def test_labels_tell_calls_apart(record_run: RecordRun) -> None:
    tests = [source("", f"add, double, {calls}, lambda call: [torch.ones(2), 0]") for calls in LABELS]
    named = [test.replace("test_it", f"test_{at}") for at, test in enumerate(tests)]
    records = record_run("\n".join(named)).records
    found = [[each.timing.label for each in record.measurements if each.role == "candidate"] for record in records]
    assert found == list(LABELS.values())


def test_too_few_reps_are_inconclusive(bench_run: BenchRun) -> None:
    result = bench_run(source("min_weighted_speedup=1.5, reps=4"))
    result.stdout.fnmatch_lines(["*the total of 40 recorded calls cannot be judged *, 2 shapes with too few *"])
