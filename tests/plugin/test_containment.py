"""Errors of our hooks: each costs its own test at most, and the rest of the suite runs."""

import functools
import inspect
import re
from typing import Any, NoReturn, cast

import pytest

from pytest_gpubench.plugin import terminal
from tests.plugin.conftest import BenchRun

HOSTILE = """
def no(*args, **kwargs): raise RuntimeError("hostile")

class NoText(Exception): __str__ = no
class NoRepr: __repr__ = no
class NoAttribute: __getattr__ = no
class NoName: __name__ = property(no)
class NumberAsName: __name__ = 5
class NoOrder(float): __lt__ = __gt__ = __le__ = __repr__ = no
class NoDict(dict): __iter__ = items = __bool__ = __repr__ = no

PARAMETERS = [NoRepr(), NoAttribute(), NoName(), NumberAsName(), 10**5000, NoOrder(1), NoDict(a=1), "\\ud800"]
MARKS = [
    {"max_time_us": NoRepr()}, {"max_time_us": NoOrder(20)}, {"max_time_us": NoDict(H200=3)}, {"forbid": NoRepr()},
    {"max_time_us": 10**5000}, {"max_time_us": -10**5000}, {"reps": NoRepr()}, {"reps": 10**5000}, {"gpus": NoRepr()},
    {"a b": NoRepr()},
]

def test_plain_without_text(): raise NoText
def test_without_text(gpu_bench):
    gpu_bench(fast)
    raise NoText

@pytest.mark.parametrize("value", PARAMETERS, ids=range(len(PARAMETERS)))
def test_parameter(gpu_bench, value): gpu_bench(fast)
@pytest.mark.parametrize("value", PARAMETERS, ids=range(len(PARAMETERS)))
def test_plain_parameter(value): pass

@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.perf(**mark)) for n, mark in enumerate(MARKS)])
def test_mark(gpu_bench, n): gpu_bench(fast)
@pytest.mark.perf(NoRepr())
def test_positional_mark(gpu_bench): gpu_bench(fast)
@pytest.mark.gpu_turn(gpus=NoRepr())
def test_turn(): pass

def test_property(record_property): record_property(5, NoRepr)
def test_deep(gpu_bench):
    gpu_bench(fast)
    SUM

def test_plain_at_the_end(): pass
"""


def test_hostile_values_cost_their_own_tests(bench_run: BenchRun) -> None:
    result = bench_run(HOSTILE.replace("SUM", " + ".join(["1.0"] * 600)))
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    assert "an error of its own" not in result.stdout.str()
    result.assert_outcomes(failed=2, errors=11, passed=8 + 8 + 4)
    for sentence in (
        "perf(max_time_us=<NoRepr>): it must be a number, or one for each of several GPUs, as in *",
        "perf(max_time_us=<int>): it must be above 0 and finite",
        "perf(forbid=<NoRepr>): it must be a text or several*",
        "perf(reps=...): <int> is not valid*",
        "perf() takes keywords only, found 1 positional argument: <NoRepr>: name the limit, as in *",
    ):
        result.stdout.fnmatch_lines([f"*{sentence}"])


def broken(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("broken")


ELSEWHERE = {"pytest_configure_node", "pytest_handlecrashitem", "pytest_testnodedown", "pytest_enter_pdb"}
"""Hooks that are called under xdist, or in a debugger."""


def our_hooks(pytester: pytest.Pytester) -> list[tuple[type, str]]:
    """Return the hooks of all registered objects of ours that pytest calls outside of a test's phases, but wrappers."""
    found: list[type] = []

    class Registered:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            found.extend(map(type, session.config.pluginmanager.get_plugins()))

    pytester.makepyfile("def test_it(gpu_bench): pass")
    pytester.inline_run("--collect-only", plugins=[cast(Any, Registered())])
    return [
        (each, name)
        for each in found
        if each.__module__.startswith("pytest_gpubench.")
        for name in dir(each)
        if name.startswith("pytest_")
        and name not in ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")
        and not inspect.isgeneratorfunction(getattr(each, name))
    ]


def test_every_hook_may_break_without_ending_the_run(
    bench_run: BenchRun, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hook of ours raises, all in one run: pytest still runs its tests, and the exit status is a failure's."""
    hooks = our_hooks(pytester)
    for owner, name in hooks:
        monkeypatch.setattr(owner, name, functools.wraps(getattr(owner, name))(lambda *args: broken()))
    source = "def test_plain(): pass\ndef test_it(gpu_bench): gpu_bench(fast)\ndef test_other(): pass"
    result = bench_run(source, "-k", "not other")
    result.assert_outcomes(passed=2, deselected=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = re.findall(r"gpu_bench: an error of its own in (pytest_\w+)", result.stdout.str())
    assert set(told) == {name for _, name in hooks if "xdist" not in name} - ELSEWHERE
    assert len(set(told)) > 10


@pytest.mark.parametrize(
    "name",
    [
        "gpu_turn.GpuTurns._take",
        *(f"lifecycle.Lifecycle.{name}" for name in ("_attach", "current_test")),
    ],
)
def test_an_error_around_a_test_fails_that_test(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(f"pytest_gpubench.plugin.{name}", broken)
    result = bench_run("def test_it(gpu_bench): gpu_bench(fast)\ndef test_plain(): pass")
    assert result.parseoutcomes().get("passed") == 1
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*RuntimeError: broken*"])


class Foreign:
    """A stdout as an IDE has it: it says that it is a terminal, and has no more."""

    def __init__(self, told: list[str]) -> None:
        self.write = told.append
        self.flush = lambda: None
        self.isatty = lambda: True


def test_a_foreign_stdout_shows_no_progress(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("sys.stdout", Foreign(told))
    terminal.progress(pytester.parseconfig("--capture=fd"))("measuring")
