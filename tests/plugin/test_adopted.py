"""Benchmark scripts, and tests that call other timers, in whole runs; triton.testing is Triton's own."""

import re
import sys
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from pytest_gpubench.results.model import TestRecord
from tests.plugin.conftest import Recorder, plugins_for

HEAD = """
import torch, triton
from triton.testing import do_bench
from pytest_gpubench import scripted
x = torch.ones(4)
fast = scripted([10.0, 10.1, 9.9])(lambda: x + 1)
slow = scripted([20.0, 20.2, 19.8])(lambda: x + 1)
wrong = scripted([5.0])(lambda: x + 2)
empty = scripted([30.0])(lambda: None)
def large(): raise MemoryError("too large")
functions = {"fast": fast, "slow": slow, "wrong": wrong, "empty": empty, "torch": slow, "large": large}
told = {}

def timed(N, provider):
    if provider == "untimed":
        return 0
    try:
        return do_bench(functions[provider])
    except MemoryError:
        return float("inf")

def report(providers, *values):
    benchmark = triton.testing.Benchmark(x_names=["N"], x_vals=list(values), line_arg="provider",
        line_vals=providers, line_names=providers, plot_name="plot", args={})
    return triton.testing.perf_report(benchmark)(timed)
"""
SOFTMAX = "softmax = report(['fast', 'torch'], 8, 16)\n"
PASSED = {"__main__": "passed"}
RunScript = Callable[..., Recorder]


@pytest.fixture
def run_script(pytester: pytest.Pytester) -> RunScript:

    def run(source: str, *args: str, name: str = "bench_it.py") -> Recorder:
        (pytester.path / name).write_text(HEAD + source)
        recorder = Recorder()
        scripts = [] if name.startswith("test_") else [f"--gpu-bench-scripts={name}"]
        arguments = [*plugins_for("", args), "--gpu-bench-timer=scripted", "-p", "no:cacheprovider", *scripts, *args]
        pytester.inline_run(*arguments, plugins=[cast(Any, recorder)])
        return recorder

    return run


def calls(recorder: Recorder) -> dict[str, str]:
    return {each.nodeid.partition("::")[2]: each.outcome for each in recorder.reports if each.when == "call"}


def rows(record: TestRecord) -> dict[str, float | None]:
    """Return the speedup of each measured function; None where it has none."""
    return {each.timing.label: each.speedup.ratio if each.speedup else None for each in record.measurements}


def test_what_could_not_be_compared_or_measured_is_told(run_script: RunScript) -> None:
    run = run_script("softmax = report(['fast', 'torch', 'wrong', 'empty', 'untimed', 'large'], 8)")
    (record,) = run.records
    found = rows(record)
    assert calls(run) == {"softmax[8]": "passed"}
    assert {name for name, ratio in found.items() if ratio is None} >= {"wrong", "empty"}
    assert found["fast"] == pytest.approx(2, rel=0.02)
    assert record.warnings == (
        "provider 'untimed' is not measured: it calls no timer that is known",
        "provider 'large' is not measured: MemoryError: too large",
        "'wrong' is measured without a ratio to 'torch': their outputs differ, out: 4 of 4 elements; rtol= and "
        "atol= in a line of gpu_bench_limits allow more",
        "'empty' is measured without a ratio to 'torch': no tensor to compare is returned by 'empty'",
    )


CASES = """
functions[True] = fast
def bench(names, values, plot="plot", providers=["torch", True], **args):
    names_of = ["Torch", "Mine"] if True in providers else providers
    return triton.testing.Benchmark(names, values, "p", providers, names_of, plot, args)
def case(*benches, expected={"N"}, function=lambda p: functions.get(p, fast)):
    def run(p, **keywords):
        assert set(keywords) == expected
        do_bench(function(p))
    is_list = len(benches) > 1 or benches[0].plot_name == "fwd"
    return triton.testing.perf_report(list(benches) if is_list else benches[0])(run)
"""


def test_a_case_is_an_x_value(run_script: RunScript) -> None:
    """Under the last of its object's names."""
    run = run_script(f"""{CASES}
first = a = case(bench(["N"], [8, 16], M=4), expected={{"N", "M"}})
b = case(bench(["M", "N"], [8]), expected={{"M", "N"}})
c = case(bench(["B", "T"], [(2, 8), [4, 8]]), expected={{"B", "T"}})
d = case(bench(["N"], [8], "fwd"))
e = case(bench(["N"], [8]), bench(["N"], [8]))
""")
    assert {each.nodeid.partition("::")[2]: each.params for each in run.records} == {
        "a[8]": {"N": "8", "M": "4"},
        "a[16]": {"N": "16", "M": "4"},
        "b[8]": {"M=N": "8"},
        "c[2-8]": {"B": "2", "T": "8"},
        "c[4-8]": {"B": "4", "T": "8"},
        "d[fwd-8]": {"N": "8", "plot": "fwd"},
        "e[plot-8]": {"N": "8", "plot": "plot"},
        "e[plot-8-2]": {"N": "8", "plot": "plot"},
    }
    assert [each.timing.label for each in run.records[0].measurements] == ["torch", "Mine"]


REFERENCES = {
    "torch": ["triton", "torch"],
    "torch-compile": ["triton", "torch-compile", "torch"],
    "PyTorch": ["liger", "PyTorch"],
    "naive_softmax": ["fused", "naive_softmax"],
    "mine": ["mine", "prefix", "torchlike"],
    "cublas": ["cublas", "triton"],
}


def test_the_reference_is_the_first_that_is_called_so_or_the_first(run_script: RunScript) -> None:
    """Providers draw the same inputs."""
    draws = "lambda p: (lambda x: scripted([1.0])(lambda: x))(torch.randn(3))"
    lines = [
        f"r{n} = case(bench(['N'], [8], providers={each}), function={draws})"
        for n, each in enumerate(REFERENCES.values())
    ]
    run = run_script("\n".join([CASES, *lines]))
    found = [[each.timing.label for each in record.measurements if each.role == "reference"] for record in run.records]
    assert found == [[each] for each in REFERENCES]
    assert [record.warnings for record in run.records] == [()] * len(REFERENCES)


def test_nobody_is_asked_to_give_arguments_that_scripts_cannot_give(run_script: RunScript) -> None:
    run = run_script(SOFTMAX, "--gpu-bench-timer=wall", "--gpu-bench-cache=hot", "--gpu-bench-reps=2")
    assert [record.warnings for record in run.records] == [(), ()]


LIMITED = [
    (["fast", "torch"], "min_speedup=1.9", "passed", ""),
    (["fast", "torch"], "min_speedup=2.1", "failed", "fast is not fast enough against torch"),
    (["torch", "fast"], "min_speedup={'fast': 1.9}", "passed", ""),
    (["fast", "slow"], "reference='fast', min_speedup=0.6", "failed", "slow is slower than fast: 0.5"),
    (["fast", "torch", "wrong"], "min_speedup={'fast': 1.9}", "passed", ""),
    (["fast", "torch", "wrong"], "min_speedup=1.9", "failed", "wrong"),
    (["fast", "wrong"], "reference='fast'", "failed", "wrong"),
    (["fast", "wrong"], "reference='fast', rtol=0, atol=1", "passed", ""),
    (["fast", "torch"], "reference=None", "passed", ""),
    *(
        (["fast", "torch"], f"reference={each!r}", "failed", f"reference={each!r} is no provider: they are fast, torch")
        for each in ("apex", "", False, 0)
    ),
    (["fast"], "min_speedup=1.9", "failed", "compared nothing"),
    (["untimed"], "max_time_us=9", "skipped", "could not be taken over: it calls no timer that is known"),
    (["large"], "max_time_us=9", "skipped", "could not be taken over: MemoryError: too large"),
    (["slow"], "max_time_us=15", "failed", "slow is too slow"),
]


def test_limits_of_lines_hold(pytester: pytest.Pytester, run_script: RunScript) -> None:
    lines = [f"bench_*.py::s{at}[8]: {limits}" for at, (_, limits, _, _) in enumerate(LIMITED)]
    pytester.makeini("\n    ".join(["[pytest]\ngpu_bench_limits =", *lines]))
    run = run_script("\n".join(f"s{at} = report({providers}, 8)" for at, (providers, *_) in enumerate(LIMITED)))
    reports = [each for each in run.reports if each.when == "call"]
    for report, (*row, outcome, sentence) in zip(reports, LIMITED, strict=True):
        assert report.outcome == outcome, row
        assert sentence in str(report.longrepr)
    (alone,) = (each for each in run.records if each.nodeid.endswith("::s8[8]"))  # reference=None
    assert [each.role for each in alone.measurements] == ["", ""]


SCRIPTS = [
    ("do_bench(fast)", PASSED, ["<lambda>"], ""),
    ("if __name__ == '__main__': do_bench(fast, quantiles=[0.5])", PASSED, ["<lambda>"], ""),
    (
        "def time_it(n): return do_bench(fast)\nfor n in (1, 2): assert 0.009 < time_it(n) < 0.011",
        PASSED,
        ["time_it(n=1)", "time_it(n=2)"],
        "",
    ),
    ("for fn in (fast, slow, fast): do_bench(fn)", PASSED, ["<lambda>", "<lambda> #2", "<lambda> #3"], ""),
    ("import argparse; argparse.ArgumentParser().parse_args()\ndo_bench(fast)", PASSED, ["<lambda>"], ""),
    ("import matplotlib.pyplot as plt\nplt.plot([1]); plt.show()\ndo_bench(fast)", PASSED, ["<lambda>"], ""),
    ("do_bench(fast)\nimport sys; sys.exit(0)", PASSED, ["<lambda>"], ""),
    ("if __name__ == '__main__': report(['fast', 'slow'], 8).run()", PASSED, ["timed[8] fast", "timed[8] slow"], ""),
    ("x = 1", {"__main__": "skipped"}, [], "could not be taken over: it calls no timer that is known"),
    ("raise OSError('no data')", {"load": "failed"}, [], "could not be taken over as a whole: OSError: no data"),
    ("import sys; sys.exit(3)", {"load": "failed"}, [], "it ended by itself, with status 3"),
    ("if __name__ == '__main__': import sys; sys.exit(3)", {"__main__": "skipped"}, [], "it ended with status 3"),
    ("if __name__ == '__main__': raise OSError('late')", {"__main__": "failed"}, [], "OSError: late"),
    (
        f"{SOFTMAX}softmax.run(return_df=True).head()",
        {"softmax[8]": "passed", "softmax[16]": "passed", "load": "failed"},
        ["fast", "torch"] * 2,
        "could not be taken over as a whole",
    ),
]
"""Scripts, the outcomes of their tests, what those measured, and what they say."""

SKIPPED_ELSEWHERE = """
import pytest
def pytest_collection_modifyitems(items):
    for each in items:
        each.add_marker(pytest.mark.skipif("sys.platform == 'win32'", reason="not there"))
"""
"""A condition that is evaluated with the globals of the test's `obj`, if it has one."""


def test_any_other_script_is_one_test_or_says_why_not(pytester: pytest.Pytester, run_script: RunScript) -> None:
    pytester.makeconftest(SKIPPED_ELSEWHERE)
    for number, (source, *_) in enumerate(SCRIPTS, 10):
        (pytester.path / f"bench_{number}.py").write_text(HEAD + source)
    run = run_script("", "--gpu-bench-scripts=bench_*.py", name="test_none.py")
    assert not isinstance(getattr(sys.modules.get("matplotlib"), "pyplot", None), MagicMock)  # what stood in for it
    for number, (source, outcomes, labels, sentence) in enumerate(SCRIPTS, 10):
        reports = [each for each in run.reports if each.when == "call" and f"bench_{number}.py" in each.nodeid]
        records = [record for record in run.records if f"bench_{number}.py" in record.nodeid]
        assert {each.nodeid.partition("::")[2]: each.outcome for each in reports} == outcomes, source
        assert sorted(item.timing.label for record in records for item in record.measurements) == sorted(labels), source
        assert sentence in "".join(str(each.longrepr) for each in reports), source


def test_a_limit_that_a_script_breaks_shows_the_scripts_line(run_script: RunScript) -> None:
    run = run_script("def time_it():\n    do_bench(slow)\ntime_it()", "--gpu-bench-limits=*: max_time_us=15")
    text = str(run.call.longrepr)
    assert calls(run) == {"__main__": "failed"}
    assert "do_bench(slow)" in text
    assert "timers.py" not in text.split("LimitBroken")[0]
    assert "pluggy" not in text


def test_scripts_alone_are_run_where_no_path_is_given(pytester: pytest.Pytester, run_script: RunScript) -> None:
    pytester.makepyfile(test_other="def test_other(): pass")
    source = "do_bench(fast)"
    assert list(calls(run_script(source))) == ["__main__"]
    assert list(calls(run_script(source, "test_other.py"))) == ["test_other", "__main__"]
    assert list(calls(run_script(source, "."))) == ["__main__", "test_other"]


@pytest.mark.parametrize(("arguments", "lost"), [([], False), (["."], True)])
def test_a_script_that_pytest_does_not_collect_is_told(
    arguments: list[str], lost: bool, pytester: pytest.Pytester
) -> None:
    script = pytester.mkdir("build") / "bench_it.py"
    script.touch()
    result = pytester.runpytest_inprocess("--collect-only", "--gpu-bench-scripts=build/*.py", *arguments)
    told = f"gpu_bench: warning: --gpu-bench-scripts: {script} is not run, as pytest does not enter its folder"
    assert (told in result.stdout.str(), "__main__" in result.stdout.str()) == (lost, not lost)


def test_scripts_outside_of_the_root_folder_have_names_of_their_own(
    pytester: pytest.Pytester, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = pytester.mkdir("inner")
    for name in ("bench_one.py", "bench_two.py"):
        (pytester.path / name).write_text(HEAD + "do_bench(fast)")
    monkeypatch.chdir(inner)
    limits = "--gpu-bench-limits=bench_two.py: max_time_us=9"
    run = run_script("", "--rootdir=.", "--gpu-bench-scripts=../bench_*.py", limits, name="test_none.py")
    outcomes = {each.nodeid: each.outcome for each in run.reports if each.when == "call"}
    assert outcomes == {"../bench_one.py::__main__": "passed", "../bench_two.py::__main__": "failed"}


def test_a_script_is_compared_with_a_saved_run(run_script: RunScript) -> None:
    source = SOFTMAX + "softmax.run(print_data=True, show_plots=True)"
    saved = run_script(source, "--gpu-bench-save=main", "--gpu-bench-sessions=1")
    assert calls(saved) == {"softmax[8]": "passed", "softmax[16]": "passed"}
    assert [record.params for record in saved.records] == [{"N": "8"}, {"N": "16"}]
    assert [rows(record)["fast"] for record in saved.records] == [pytest.approx(2, rel=0.02)] * 2
    compare = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:50%")
    assert set(calls(run_script(source, *compare)).values()) == {"passed"}
    slower = run_script(f"functions['fast'] = slow\n{source}", *compare)
    assert set(calls(slower).values()) == {"failed"}


# tests that call other timers


def test_timers_in_tests_are_adopted(run_script: RunScript) -> None:
    source = """
def latency(op): return do_bench(op, return_mode="median")
def test_do_bench(): assert latency(fast) == 0.01 and latency(slow) == 0.02
def test_nothing(): pass
"""
    run = run_script(source, "--gpu-bench-adopt", "test_bench.py", name="test_bench.py")
    assert calls(run) == {"test_do_bench": "passed", "test_nothing": "passed"}
    assert [each.timing.label for record in run.records for each in record.measurements] == ["latency", "latency #2"]


def test_the_fixture_of_pytest_benchmark_is_adopted(run_script: RunScript, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytest_benchmark")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of these tests' own run: it warns of that
    source = """
import pytest
seen = []
@scripted([5.0])
def add(a, b=1): seen.append((a, b)); return a + b
def test_call(benchmark): assert benchmark(add, 2, b=3) == 5
def test_pedantic(benchmark): assert benchmark.pedantic(add, args=(4,), rounds=3) == 5
def test_setup(benchmark): assert benchmark.pedantic(add, setup=lambda: ((6,), {"b": 7})) == 13
def test_seen(): assert set(seen) == {(2, 3), (4, 1), (6, 7)}
def test_teardown(benchmark):
    with pytest.warns(UserWarning, match="measures nothing here: benchmark.pedantic.teardown"):
        assert benchmark.pedantic(lambda: 3, teardown=lambda: None) == 3
"""
    arguments = ("-p", "pytest_benchmark.plugin", "--gpu-bench-adopt", "test_bench.py")
    run = run_script(source, *arguments, "--gpu-bench-limits=*::test_setup: max_time_us=4", name="test_bench.py")
    outcomes = calls(run)
    assert outcomes.pop("test_setup") == "failed"
    assert set(outcomes.values()) == {"passed"}
    assert [each.timing.label for record in run.records for each in record.measurements] == ["add"] * 3


# lines of limits


MEANT = {
    "bench_it.py": ["bench_it.py::softmax[8]", "bench_it.py::softmax[16]", "a/bench_it.py::__main__"],
    "a/*": ["a/bench_it.py::__main__"],
    "bench_it.py::softmax": ["bench_it.py::softmax[8]", "bench_it.py::softmax[16]"],
    "bench_it.py::soft": [],
    "bench_it.py::softmax[8]": ["bench_it.py::softmax[8]"],
    "*[1*": ["bench_it.py::softmax[16]"],
    "other_bench_it.py::*": ["other_bench_it.py::__main__"],
}


def test_a_pattern_is_of_whole_names(pytester: pytest.Pytester) -> None:
    pytester.mkdir("a")
    for name, source in (("", SOFTMAX), ("other_", "do_bench(fast)"), ("a/", "do_bench(fast)")):
        (pytester.path / f"{name}bench_it.py").write_text(HEAD + source)
    scripts = "--gpu-bench-scripts=bench_it.py, other_bench_it.py, a/bench_it.py"
    limits = "\n".join(f"{pattern}: max_time_us={number}" for number, pattern in enumerate(MEANT))
    options = [*plugins_for("", []), "--gpu-bench-timer=scripted", scripts, f"--gpu-bench-limits={limits}"]
    items, _ = pytester.inline_genitems(*options)
    marked = {item.nodeid: [mark.kwargs.get("max_time_us") for mark in item.iter_markers("perf")] for item in items}
    assert len(marked) == 4
    for number, (pattern, meant) in enumerate(MEANT.items()):
        assert sorted(name for name, numbers in marked.items() if number in numbers) == sorted(meant), pattern


LINES = ["bench.py", "bench.py:", "bench.py: ", "bench.py: 4", "a: x=f()", "a: x=", "a: **{}"]
FORM = "*must be a pattern of node ids, a colon, a space and keywords*"


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        *((f"--gpu-bench-limits={line}", FORM) for line in LINES),
        ("--gpu-bench-scripts=bench_*.py", "--gpu-bench-scripts=bench_*.py matches no file in *"),
    ],
)
def test_an_option_that_means_nothing_is_refused(option: str, sentence: str, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {sentence}"])


@pytest.mark.usefixtures("stubbed_torch")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--gpu-bench-limits=nothing.py: max_time_us=4",), ["nothing.py"]),
        (("--gpu-bench-limits=test_a.py: max_time_us=40",), []),
        (("--gpu-bench-limits=nothing.py: max_time_us=4", "test_a.py"), ["nothing.py"]),
        ((), ["absent.py"]),
        (("test_a.py",), []),
        (("-n1",), ["absent.py"]),
    ],
)
def test_a_line_of_no_test_is_named(pytester: pytest.Pytester, arguments: tuple[str, ...], named: list[str]) -> None:
    """One of the ini file is not, where only some tests are asked for."""
    pytester.makeini("[pytest]\ngpu_bench_limits =\n    test_a.py: max_time_us=40\n    absent.py: max_time_us=4\n")
    source = "from pytest_gpubench import scripted\ndef test_a(gpu_bench): gpu_bench(scripted([10.0])(lambda: 0))\n"
    (pytester.path / "test_a.py").write_text(source)
    plugins = plugins_for("", arguments)
    text = pytester.runpytest_inprocess(*plugins, "--gpu-bench-timer=scripted", *arguments).stdout.str()
    assert "1 passed" in text
    found = re.findall(r"--gpu-bench-limits: no perf test of this run is meant by '([^:]*)", " ".join(text.split()))
    assert found == named
