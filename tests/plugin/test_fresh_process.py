"""Fresh processes: a file that lists their tests, a FAIL that they confirm, and the test that broke the GPU, named."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_gpubench.plugin import fresh_process
from pytest_gpubench.plugin.fresh_process import FurtherProcesses
from tests.plugin.conftest import BenchRun

# a file that lists the tests to run, as `ab` gives it too

SOURCE = """
@pytest.mark.parametrize("case", ["a", "a::b", "[c]", "é", "d/e.py"])
def test_it(case):
    import os
    assert "PYTEST_GPUBENCH_TESTS" not in os.environ
"""


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("arguments", [(), ("there/test_other.py", "."), ("-n1",)], ids=["", "paths", "xdist"])
def test_only_listed_tests_are_run(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """A file with none of them is not even imported."""
    Path("there").mkdir()
    Path("there/test_other.py").write_text("raise ValueError")
    own = "test_only_listed_tests_are_run.py::test_it"
    ids = [f"{own}[a::b]", f"{own}[[c]]", f"{own}[\\xe9]", f"{own}[d/e.py]", f"{own}[gone]"]
    Path("listed.json").write_text(json.dumps(ids))
    monkeypatch.setenv("PYTEST_GPUBENCH_TESTS", "listed.json")
    outcomes = {"passed": 4} if "-n1" in arguments else {"passed": 4, "deselected": 1}
    bench_run(SOURCE, *arguments).assert_outcomes(**outcomes)


def test_a_listed_file_that_is_gone_leaves_the_others(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "test_a_listed_file_that_is_gone_leaves_the_others.py::test_it"
    Path("listed.json").write_text(json.dumps(["gone.py::test_it", f"{own}[a]"]))
    monkeypatch.setenv("PYTEST_GPUBENCH_TESTS", "listed.json")
    bench_run(SOURCE).assert_outcomes(passed=1, deselected=4)


# a FAIL against a saved run, confirmed or not

SPEEDS = """
import os
from pathlib import Path

@scripted([float(Path(os.environ.get("FRESH", "here")).read_text())] * 20)
def candidate(): return 0

@pytest.mark.parametrize("case", ["a::b", "[c]"])
def test_it(gpu_bench, case):
    with open("ran", "a") as ran:
        print(case, file=ran)
    gpu_bench(candidate)
"""
CONFTEST = """
import os
if "PYTEST_GPUBENCH_SESSION" in os.environ:
    os.environ["FRESH"] = "fresh"
"""
COMPARED = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%", "--gpu-bench-missing-baseline=ignore")

FRESH = [
    (11.1, "failed", "in each of 5 and 5 sessions, 99.9 % interval)", 4, ()),
    (10, "passed", "PASS in a fresh process, after another", 2, ("-p", "no:cacheprovider", "--strict-config", "-x")),
]
"""What the slower test takes in a fresh process, what comes of it, and the number of processes."""


@pytest.mark.usefixtures("stubbed_torch")
def test_a_fail_is_one_of_five_processes(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process runs the slower test alone. Here scripted samples stand for times, and differ.

    Where none measures, that is said in a line.
    """
    monkeypatch.setattr("pytest_gpubench.plugin.lifecycle.SAME_IN_EVERY_PROCESS", ())
    Path("conftest.py").write_text(CONFTEST)
    for name in ("here", "fresh"):
        Path(name).write_text("10")
    saved = ("--gpu-bench-save=main", "--gpu-bench-sessions=5", "-k", "[c]")
    bench_run(SPEEDS, *saved).assert_outcomes(passed=1, deselected=1)
    Path("here").write_text("11")
    for fresh_us, outcome, told, processes, options in FRESH:
        Path("fresh").write_text(str(fresh_us))
        Path("ran").unlink()
        result = bench_run(SPEEDS, *COMPARED, *options)
        result.assert_outcomes(**{outcome: 1, "passed": 1 + (outcome == "passed")})
        result.stdout.fnmatch_lines([f"*{told}*"])
        assert Path("ran").read_text().splitlines() == ["a::b", "[c]", *["[c]"] * processes]
    Path("fresh").write_text("no number")
    why = "nothing was measured (exit status 2); it ended with: *1 error in *"
    bench_run(SPEEDS, *COMPARED).stdout.fnmatch_lines([f"*not measured again in a fresh process: {why}"])


# notes of a process that calls with margins, on a test that broke the GPU

VARIABLE = "PYTEST_GPUBENCH_NAMING"
PAST = "mine reads past args[1],\nor so"


def test_a_process_notes_one_sentence_a_line(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is not passed on to processes that it starts."""
    monkeypatch.setenv(VARIABLE, "notes")
    bench_run(f"""
def test_it(gpu_bench, monkeypatch):
    import os
    from pytest_gpubench import public_call
    monkeypatch.setattr(public_call, "name_what_breaks", lambda note, request: list(map(note, ["", {PAST!r}])))
    gpu_bench.compare(fast, slow)
    assert {VARIABLE!r} not in os.environ
""").assert_outcomes(passed=1)
    assert list(map(json.loads, Path("notes").read_text().splitlines())) == ["", PAST]


@pytest.mark.parametrize(
    ("sentences", "status", "found"),
    [
        (("", PAST), 1, PAST),
        ((PAST,), -6, PAST),
        ((PAST, ""), 1, ""),
        ((), 1, ""),
        (("", PAST), None, ""),
        ((), OSError("no more processes"), ""),
    ],
)
@pytest.mark.parametrize(("taken_s", "runs"), [(0.5, 2), (1.0, 1)])
def test_the_last_note_counts_where_the_process_has_ended(
    monkeypatch: pytest.MonkeyPatch,
    sentences: Sequence[str],
    status: int | OSError | None,
    found: str,
    taken_s: float,
    runs: int,
) -> None:
    """As long as the time for such processes lasts."""
    started: list[Sequence[str]] = []

    def start(config: object, folder: Path, tests: Sequence[str], *rest: object, others: Mapping[str, str]) -> Any:
        started.append(tests)
        if sentences:
            Path(others[VARIABLE]).write_text("".join(json.dumps(each) + "\n" for each in sentences))
        if isinstance(status, OSError):
            raise status
        return status

    clock = iter((0.0, taken_s, 200.0, 201.0))
    monkeypatch.setattr(fresh_process, "start_fresh", start)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    processes = FurtherProcesses(cast(pytest.Config, None), 1.0)
    assert [processes.what_broke("test_it") for _ in range(2)] == [found, found if runs == 2 else ""]
    assert started == [["test_it"]] * runs
