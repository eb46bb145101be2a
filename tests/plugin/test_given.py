"""`gpu_bench` under @given: no health checks to suppress, the slow shape is shrunk and named, nothing is flaky."""

import itertools
import re
from types import SimpleNamespace

import pytest

from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.table import render
from pytest_gpubench.settings import Settings
from tests.plugin.conftest import BenchRun, RecordRun, RunRows

GIVEN = """
import collections
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

settings.register_profile("short", max_examples=4, derandomize=True, database=None)
UNEXPLAINED = [phase for phase in Phase if phase is not Phase.explain]  # which takes half of the time
settings.register_profile("usual", max_examples=25, derandomize=True, database=None, phases=UNEXPLAINED)
settings.load_profile("usual")
sizes = st.integers(1, 99)
seen = collections.Counter()  # how often a size was tried
called = []

@scripted([20.0], kernels=("added",))
def double(x): return x * 2

def add(us, kernels=("added",)):
    "Return a candidate that takes so long."
    @scripted(us if isinstance(us, list) else [us], kernels=kernels)
    def add(x):
        called.append(x.numel())
        return x + x
    return add

def slow_from(n, start): return add(40.0, ("added", "copied")) if n >= start else add(10.0)
"""


def limited(body: str, given: str = "n=sizes", marks: str = "min_speedup=0.8", above: str = "") -> str:
    return f"{GIVEN}\n@pytest.mark.perf({marks})\n{above}\n@given({given})\ndef test_it(gpu_bench, n):\n    {body}\n"


LOSES = limited("gpu_bench.compare(slow_from(n, 37), double, (torch.ones(n),))")
WINS = limited("gpu_bench.compare(add(10.0), double, (torch.ones(n),))")
TROUBLE = ("Flaky", "FailedHealthCheck", "DeadlineExceeded", "HypothesisWarning")


def test_the_losing_shape_is_shrunk_and_named_with_its_reason(bench_run: BenchRun) -> None:
    result = bench_run(LOSES)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(
        [
            "E *with it: one more kernel: copied (50 % of the time)",
            "E *LimitBroken: add is slower than double: 0.5000x*, wanted at least 0.8x*",
            "E *to keep this example, paste above the test: @example(n=37)",
            "E *gpu_bench: add by n, over * examples: up to *: 2.00x*: 0.500x",
            "E *n=37,",
        ]
    )
    assert not any(word in result.stdout.str() for word in TROUBLE)


def test_nothing_has_to_be_suppressed(bench_run: BenchRun) -> None:
    source = f"""{GIVEN}
class TestGroup:
    @pytest.mark.perf(min_speedup=1.9)
    @settings(deadline=None)
    @given(n=sizes)
    def test_method(self, gpu_bench, n): gpu_bench.compare(add(10.0), double, (torch.ones(n),))

    @pytest.mark.parametrize("extra", [1, 2])
    @given(n=sizes)
    def test_both(self, gpu_bench, extra, n): gpu_bench.compare(add(10.0), double, (torch.ones(n + extra),))
"""
    result = bench_run(source, "--gpu-bench-verbose")
    result.assert_outcomes(passed=3)
    assert "extra=" not in result.stdout.str().partition("\ngpu_bench: test_")[2]
    assert not any(word in result.stdout.str() for word in TROUBLE)


def test_a_limit_on_time_is_judged_where_it_is_broken_and_its_row_shows_it(bench_run: BenchRun) -> None:
    """The ratio gets better, the time worse."""
    body = "gpu_bench.compare(add(float(n)), scripted([float(n * (1 + n))])(lambda x: x * 2), (torch.ones(n),))"
    above = "@settings(phases=[Phase.explicit])\n@example(n=99)\n@example(n=1)"
    result = bench_run(limited(body, marks="max_time_us=50", above=above))
    result.assert_outcomes(failed=1)
    assert "FAIL" in result.stdout.str().partition("\ngpu_bench: test_")[2].partition("gpu_bench: ")[0]


def test_a_wrong_result_is_shrunk(record_run: RecordRun) -> None:
    body = "gpu_bench.compare(scripted([1.0])(lambda x: x * 2 + (n > 50)), double, (torch.ones(n),))"
    recorder = record_run(limited(body))
    (record,) = recorder.records
    invalid = [item for item in record.measurements if any(each.outcome == "invalid" for each in item.verdicts)]
    assert [item.example for item in invalid] == ["n=51"]
    report = recorder.call
    assert "WrongResult: <lambda> is wrong" in report.longreprtext
    assert report.longreprtext.count("to keep this example, paste above the test: @example(n=51)") == 1
    assert ("gpu_bench.<lambda>.verdict", "invalid") in report.user_properties
    assert not any(word in report.longreprtext for word in TROUBLE)
    (row,) = [line for line in render([record], Settings(), Screen(1000)).splitlines() if "at n=51" in line]
    assert "- double" in row, "the reference is that of its own example"


def test_a_seed_repeats_and_statistics_show_the_target(bench_run: BenchRun) -> None:
    source = WINS.replace("derandomize=True", "derandomize=False").replace(
        'load_profile("usual")', 'load_profile("short")'
    )
    arguments = ("--hypothesis-seed=5", "--hypothesis-show-statistics", "--gpu-bench-verbose")
    first, second = (bench_run(source, *arguments) for _ in range(2))
    first.assert_outcomes(passed=1)
    first.stdout.fnmatch_lines(["*Highest target score:*label='add against double, comparison 1'*"])
    examples = [re.findall(r"add at n=\d+", result.stdout.str()) for result in (first, second)]
    assert examples[0] == examples[1]
    assert 1 <= len(examples[0]) <= 4


def test_disabled_everything_is_checked(bench_run: BenchRun) -> None:
    bench_run(LOSES, "--gpu-bench-disable").assert_outcomes(passed=1)
    bench_run(LOSES.replace("double, (", "lambda x: x * 3, ("), "--gpu-bench-disable").assert_outcomes(failed=1)


def test_a_drawn_tensor_is_pasted_lazily(bench_run: BenchRun) -> None:
    source = f"""{GIVEN}
from pytest_gpubench.strategies import shapes, tensors

@pytest.mark.perf(min_speedup=0.8)
@settings(phases=[Phase.generate, Phase.shrink])
@given(x=tensors(shapes(dims=1, max_side=99)))
def test_it(gpu_bench, x): gpu_bench.compare(slow_from(x.shape[0], 37), double, (x,))
"""
    line = "lazy_tensor(shape=(37,), dtype=torch.float32, layout='contiguous', values='normal', seed=0)"
    paste = f"paste above the test (lazy_tensor is in pytest_gpubench.strategies): @example(x={line})"
    assert paste in bench_run(source).stdout.str()


UNVARIED = "returned the same when the values of its inputs were to change"


@pytest.mark.parametrize(("widths", "is_warned"), [((1, 5), False), ((5, 1), False), ((1, 1), True)])
def test_an_example_whose_output_is_the_same_for_all_values_is_no_warning_alone(
    record_run: RecordRun, widths: tuple[int, int], is_warned: bool
) -> None:
    """A softmax over one column is 1: another example shows that results are not remembered."""
    source = f"""{GIVEN}
def softmax(x): return torch.softmax(x, -1)
def mine(x): return torch.softmax(x, -1)

@settings(phases=[Phase.explicit])
@example(n={widths[0]})
@example(n={widths[1]})
@given(n=sizes)
def test_it(gpu_bench, n): gpu_bench.compare(mine, softmax, (torch.randn(3, n),))
"""
    (record,) = record_run(source, "--gpu-bench-timer=wall", "--gpu-bench-cache=hot", "--gpu-bench-reps=2").records
    assert any(UNVARIED in warning for warning in record.warnings) == is_warned


# what a failure shows of us: nothing


FAILURES = [
    ("gpu_bench.compare(scripted([1.0])(lambda x: x * 2 + (n > 50)), double, (torch.ones(n),))", ""),
    ("gpu_bench.compare(scripted([1.0])(lambda x: [x * 2] if n > 50 else x * 2), double, (torch.ones(n),))", ""),
    ("gpu_bench.compare(add(40.0 if n > 50 else 10.0), double, (torch.ones(n),))", "min_speedup=0.8"),
    ("gpu_bench.measure(add(40.0 if n > 50 else 10.0), (torch.ones(n),))", "max_time_us=20"),
    ("gpu_bench.phases({'a': add(40.0 if n > 50 else 10.0)}, args=(torch.ones(n),))", "max_time_us=20"),
]


def test_a_failure_shows_the_tests_own_lines(run_rows: RunRows) -> None:
    """The traceback names no line of ours, of torch or of hypothesis."""
    for report in run_rows("", [limited(body, marks=marks) for body, marks in FAILURES]):
        assert report.failed
        text = report.longreprtext
        assert not re.search(r"(pytest_gpubench|torch|hypothesis|lib/python[\d.]+)/\S*\.py", text), text
        assert text.count("n=51,") == 1
        assert text.count("to keep this example, paste above the test: @example(n=51)") == 1


@pytest.mark.parametrize(
    ("call", "roles"),
    [
        ("measure(late(n), (torch.ones(n),), reps=12)", [""]),
        ("compare(late(n), double, (torch.ones(n),), reps=12)", ["reference", "candidate"]),
    ],
)
def test_an_error_after_the_reps_leaves_one_row(record_run: RecordRun, call: str, roles: list[str]) -> None:
    """Hypothesis comes back to it with one size after the other; it raises when bits are looked at."""
    helper = """
def late(n):
    @scripted([10.0])
    def late(x):
        frame = sys._getframe()
        while frame := frame.f_back:
            if frame.f_code.co_name == "is_deterministic": raise ValueError("late")
        return x * 2
    return late
"""
    source = limited(
        f"gpu_bench.{call}", given="n=st.sampled_from([51, 60, 70])", marks="deterministic=True, max_time_us=1e9"
    )
    source = source.replace("def add(us", f"import sys\n{helper}\ndef add(us")
    by_clock = ("--gpu-bench-timer=wall", "--gpu-bench-device=cpu", "--gpu-bench-cache=hot", "--gpu-bench-warmup=1")
    recorder = record_run(source, *by_clock)
    report = recorder.call
    assert "ValueError: late" in report.longreprtext
    found = recorder.records[0].measurements
    assert [(item.role, item.example) for item in found] == [(role, "n=51") for role in roles]


def test_a_failure_before_the_tests_first_line_is_explained_by_nothing(bench_run: BenchRun) -> None:
    """Hypothesis needs lines of some file: where none is the test's, those of Python's own library."""
    source = f"""{GIVEN}
from pytest_gpubench.strategies import lazy_tensor
import sys
module = sys.modules["pytest_gpubench.strategies.tensors"]
def full(**options): raise torch.OutOfMemoryError("CUDA out of memory")

@pytest.mark.perf(given_oom="fail")
@given(x=st.integers(1, 9).map(lambda n: lazy_tensor((n,), device="cpu")))
def test_it(gpu_bench, x): gpu_bench(add(1.0), x)

@pytest.fixture(autouse=True)
def no_room(monkeypatch): monkeypatch.setattr(module.LazyTensor, "make", lambda self: full())
"""
    result = bench_run(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *OutOfMemoryError: CUDA out of memory"])
    assert "Expected start node" not in result.stdout.str()


def test_an_argument_that_holds_no_lazy_tensor_is_the_same_object(bench_run: BenchRun) -> None:
    source = f"""{GIVEN}
from pytest_gpubench.strategies import AttentionShape, lazy_tensor
HELD = [{{"a": (1, [2])}}, (AttentionShape(1, 1, 1, 1, 1, 1),), "text", range(3), (1, {{"b": [()]}})]

@given(value=st.sampled_from(HELD), lazy=st.just([(lazy_tensor(3, device="cpu"), 4)]))
def test_it(gpu_bench, value, lazy):
    assert any(value is each for each in HELD)
    ((made, four),) = lazy
    gpu_bench(add(1.0), made)
"""
    bench_run(source).assert_outcomes(passed=1)


# phases


PHASED = "gpu_bench.phases({'a': add(10.0), 'b': double}, args=(torch.ones(n),))"


def test_phases_spend_alpha_together(record_run: RecordRun) -> None:
    """The two phases of an example share its alpha."""
    recorder = record_run(limited(PHASED, marks="max_time_us=30", given="n=st.sampled_from([1, 2, 4])"))
    (record,) = recorder.records
    assert sorted(item.example for item in record.measurements) == [f"n={n}" for n in (1, 1, 2, 2, 4, 4)]
    said = [each.sentence.rpartition(", ")[2] for item in record.measurements for each in item.verdicts]
    assert said == [f"{percent} % interval)" for percent in (99.975, 99.975, 99.9917, 99.9917, 99.9958, 99.9958)]


# examples whose texts are equal: drawn within the test, or tensors whose values the text leaves out

DATA = "n=st.data()"
TENSORS = "n=st.integers(0, 9).map(lambda k: torch.full((4,), float(k)))"
RANDOMS = "n=st.randoms(use_true_random=False)"


def alike(body: str, given: str, marks: str = "max_time_us=20") -> str:
    return "from hypothesis import note\n" + limited(body, given, marks)


@pytest.mark.parametrize(
    ("given", "body", "smallest"),
    [
        (DATA, "k = n.draw(sizes); gpu_bench.compare(slow_from(k, 70), double, (torch.ones(3),))", "1: 70"),
        (DATA, "gpu_bench(add(1.0), torch.ones(1)); gpu_bench(slow_from(n.draw(sizes), 70), torch.ones(1))", "1: 70"),
        (TENSORS, "note(f'of {n[0]:g}'); gpu_bench.compare(slow_from(n[0], 5), double, (n,))", "of 5\n"),
        (RANDOMS, "gpu_bench.measure(slow_from(n.random(), 0.5), (torch.ones(3),))", "n=HypothesisRandom("),
    ],
)
def test_a_loss_is_found_and_shrunk(bench_run: BenchRun, given: str, body: str, smallest: str) -> None:
    marks = "min_speedup=0.8" if "compare" in body else "max_time_us=20"
    result = bench_run(alike(body, given, marks))
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "LimitBroken: " in text
    assert smallest in text
    assert given != DATA or "@example" not in text.partition("LimitBroken")[2], "hypothesis would not take it"
    assert not any(word in text for word in TROUBLE)


@pytest.mark.parametrize("call", ["measure({}, (torch.ones(3),))", "phases(dict(a={}), args=(torch.ones(3),))"])
def test_the_verdict_of_a_replay_is_the_same(bench_run: BenchRun, call: str) -> None:
    """Slow the first time alone: the same choices are the same example."""
    kernel = "add(50.0 if seen[k] == 1 and k > 20 else 5.0)"
    body = f"k = n.draw(sizes); seen[k] += 1; gpu_bench.{call.format(kernel)}"
    result = bench_run(alike(body, DATA))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *too slow: median 50.00 us*", "E *Draw 1: 21*"])
    assert not any(word in result.stdout.str() for word in TROUBLE)


# a search within a time, in which examples beyond it are called, not timed; and with so many reps for each example

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
