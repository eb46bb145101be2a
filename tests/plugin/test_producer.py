"""`cache=producer`: a call is timed as a function of the user's leaves the cache."""

from tests.plugin.conftest import BenchRun, CheckRows, RecordRun

PRODUCERS = """
import torch
CALLS = []
def fill(): CALLS.append("fill")
def other(): pass
def broken(): return 1 / 0
"""


def test_the_mark_and_the_call_take_a_function(record_run: RecordRun) -> None:
    source = """
@pytest.mark.perf(cache=fill)
def test_mark(gpu_bench):
    gpu_bench.measure(fast, reps=3)
    assert len(CALLS) == 3 + 3  # first calls, and one before each rep

@pytest.mark.perf(cache=fill)
def test_call(gpu_bench):
    gpu_bench.measure(fast, cache=other)
    gpu_bench.compare(fast, slow, cache="hot")
    gpu_bench.compare(fast, slow)
    gpu_bench.phases({"a": fast, "b": slow})
"""
    records = record_run(PRODUCERS + source).records
    assert [[item.timing.cache for item in record.measurements] for record in records] == [
        ["producer fill"],
        ["producer other", "hot", "hot", *["producer fill"] * 4],
    ]
    assert records[1].phases[0].cache == "producer fill"


REFUSED = {
    "x = torch.ones(9)\ndef test_it(gpu_bench): gpu_bench.measure(fast, (x,), cache=x.neg_)": "BadRequest: producer "
    "neg_ changes args[[]0], so no call would be given what the test gives it: let it write what they hold already, as "
    "after one call of it, or write elsewhere",
    "def test_it(gpu_bench): gpu_bench.measure(fast, cache=broken)": "gpu_bench: raised in producer broken, which "
    "cache= has called without arguments",
    "def test_it(gpu_bench): gpu_bench.measure(fast, cache=lambda: gpu_bench(slow))": "ProfilerBusy: 'slow' cannot be "
    "measured while 'fast' of *::test_* is: *",
}


def test_what_is_refused_says_what_to_do(check_rows: CheckRows) -> None:
    _, error, nested = check_rows(PRODUCERS, REFUSED)
    assert "ZeroDivisionError: division by zero" in error.longreprtext
    assert "raised in producer" not in nested.longreprtext, "it is an error of ours"


def test_a_switched_off_run_calls_none(bench_run: BenchRun) -> None:
    source = f"{PRODUCERS}def test_it(gpu_bench): gpu_bench.measure(fast, cache=broken)"
    bench_run(source, "--gpu-bench-disable").assert_outcomes(passed=1)


def test_it_is_named_in_the_run_and_compared_with_its_like(bench_run: BenchRun) -> None:
    source = f"{PRODUCERS}CACHE = fill\ndef test_it(gpu_bench): gpu_bench.measure(fast, cache=CACHE)"
    result = bench_run(source, "--gpu-bench-save=main", "--gpu-bench-sessions=1")
    result.stdout.fnmatch_lines(["gpu_bench: 1 measurement in 1 test on *: scripted timer, after producer fill; *"])
    same = bench_run(source, "--gpu-bench-compare=main")
    same.stdout.fnmatch_lines(["gpu_bench: compared with main: 1 of 1 test, *"])
    changed = bench_run(source.replace("CACHE = fill", "CACHE = other"), "--gpu-bench-compare=main")
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(
        ["E *cache producer fill in the baseline 'main' and is producer other now; measure both alike *"]
    )
