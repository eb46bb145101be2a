"""Runs that are saved, and the files that are written at their end."""

import json
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.results.store import read_run
from tests.plugin.conftest import BenchRun
from tests.plugin.saving import COMPARES, MEASURES


def test_a_run_is_saved_and_read_again(bench_run: BenchRun) -> None:
    before = datetime.now(timezone.utc)
    result = bench_run(COMPARES, "--gpu-bench-save=main", "--gpu-bench-json=run.json", "--gpu-bench-reps=20")
    result.stdout.fnmatch_lines(
        ["gpu_bench: 1 test written to run.json", "gpu_bench: saved as .gpu_benchmarks/*/0001_*"]
    )
    (path,) = Path().glob(".gpu_benchmarks/*/0001_main.json")
    saved, written = read_run(path), read_run(Path("run.json"))
    assert saved.records == written.records
    assert saved.name == "main"
    assert before <= datetime.fromisoformat(saved.datetime) <= datetime.now(timezone.utc)
    assert saved.settings["reps"] == "20"
    assert "not a git repository" in str(saved.commit_info.error)
    assert [item.role for item in saved.records[0].measurements] == ["reference", "candidate"]
    assert json.loads(path.read_text())["benchmarks"][0]["stats"]["median"] == pytest.approx(20e-6, rel=0.01)
    assert Path(".gpu_benchmarks/.gitignore").read_text() == "*\n"


def test_nothing_measured_is_neither_written_nor_saved(bench_run: BenchRun) -> None:
    result = bench_run("def test_it(): pass", "--gpu-bench-json=run.json", "--gpu-bench-autosave")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["gpu_bench: run.json was not written, as nothing was measured"])
    assert not Path("run.json").exists()
    assert not Path(".gpu_benchmarks").exists()
    result = bench_run("def test_it(): pass", "--gpu-bench-save=main")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gpu_bench: --gpu-bench-save=main: nothing was measured, so nothing is saved"])


def test_what_measures_nothing_leaves_the_files_of_the_last_run(bench_run: BenchRun) -> None:
    """The files are named by the ini file, as for every run in the folder."""
    files = {"json": "run.json", "markdown": "run.md", "html": "page.html", "trace": "traces"}
    lines = [f"gpu_bench_{name} = {path}" for name, path in files.items()]
    Path("pytest.ini").write_text("\n".join(["[pytest]", *lines, "gpu_bench_autosave = true"]))
    Path("traces").mkdir()
    left = [Path("traces/summary.md") if path == "traces" else Path(path) for path in files.values()]
    for file in left:
        file.write_text("of the last run")
    Path("broken.py").write_text("def test_it(:")
    runs = {"--fixtures": 0, "--cache-show": 0, "tset": 4, "-knomatch": 5, "broken.py": 2, "--gpu-bench-disable": 0}
    assert {argument: int(bench_run(MEASURES, argument).ret) for argument in runs} == runs
    assert {file.read_text() for file in left} == {"of the last run"}
    assert not Path(".gpu_benchmarks").exists()


def test_an_interrupted_run_is_saved_and_says_that_it_is_not_whole(bench_run: BenchRun) -> None:
    source = COMPARES + "\ndef test_stop(gpu_bench): gpu_bench(fast); raise KeyboardInterrupt\n"
    result = bench_run(source, "--gpu-bench-json=run.json", "--gpu-bench-save=main", interrupted=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [record.nodeid.partition("::")[2] for record in read_run(Path("run.json")).records] == [
        "test_it",
        "test_stop",
    ]
    result.stdout.fnmatch_lines(["gpu_bench: saved as *0001_main.json: 2 tests, as the run was interrupted"])


def test_the_page_shows_the_run_compared_with_and_the_history_without_itself(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = import_module("pytest_gpubench.report.html.page")
    asked: list[Any] = []

    def note(*given: object) -> str:
        asked.append(given)
        return "page"

    monkeypatch.setattr(page, "html_page", note)
    options = ("--gpu-bench-save=main", "--gpu-bench-compare=main", "--gpu-bench-json=run.json")
    for _ in range(2):
        bench_run(MEASURES, *options)
    bench_run(MEASURES, *options, "--gpu-bench-html=page.html", "--gpu-bench-compare=run.json")
    ((run, baseline, past),) = asked
    first, second, third = (read_run(path) for path in sorted(Path(".gpu_benchmarks").glob("*/*_main.json")))
    assert [each.datetime for each in past] == [first.datetime, second.datetime]
    assert baseline.datetime == second.datetime  # run.json as it was before this run wrote it
    assert run.datetime == third.datetime == read_run(Path("run.json")).datetime
    assert Path("page.html").read_text() == "page"


def test_what_cannot_be_written_costs_neither_the_table_nor_the_rest(bench_run: BenchRun) -> None:
    options = [f"--gpu-bench-{option}=/dev/full" for option in ("json", "markdown", "html")]
    result = bench_run(COMPARES, *options, "--gpu-bench-save=main")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["gpu_bench: *.py", *["gpu_bench: /dev/full cannot be written: No space left on device*"] * 3]
    )
    assert list(Path(".gpu_benchmarks").glob("*/0001_main.json"))


def test_a_page_that_fails_costs_no_line(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    bench_run(MEASURES, "--gpu-bench-save=main")
    (path,) = Path(".gpu_benchmarks").glob("*/0001_main.json")
    path.write_text("{}")
    monkeypatch.setattr(import_module("pytest_gpubench.report.html.page"), "html_page", lambda *args: 1 / 0)
    result = bench_run(MEASURES, "--gpu-bench-html=page.html")
    result.stdout.fnmatch_lines(
        ["gpu_bench: left out of the page: *0001_main.json has no *", "gpu_bench: ZeroDivisionError: division by zero"]
    )


def test_an_error_of_our_own_costs_no_table(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    markdown = import_module("pytest_gpubench.report.markdown")
    monkeypatch.setattr(markdown, "markdown_summary", lambda *args, **others: 1 / 0)
    asked_by_none = bench_run(COMPARES, GITHUB_STEP_SUMMARY="summary.md")
    assert asked_by_none.ret == pytest.ExitCode.OK
    result = bench_run(COMPARES, "--gpu-bench-markdown=run.md", "--gpu-bench-json=run.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["gpu_bench: *.py", "*written to run.json", "gpu_bench: ZeroDivisionError: division by*"]
    )


def test_a_summary_tells_of_failures_where_nothing_was_measured(bench_run: BenchRun) -> None:
    bench_run("def test_it(gpu_bench): assert False", "--gpu-bench-markdown=run.md")
    assert "1 failed" in Path("run.md").read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.parametrize(
    ("timer", "options", "reason"),
    [
        ("scripted", [], "the scripted timer runs nothing"),
        ("events", ["--gpu-bench-disable"], "'fast' was not measured: switched off by --gpu-bench-disable"),
        ("events", [], "there is no trace of 'fast' (ProfilerBusy: a torch profiler is already on*"),
    ],
)
def test_that_no_trace_was_taken_is_told_with_the_reason(
    bench_run: BenchRun, timer: str, options: list[str], reason: str
) -> None:
    source = """
def test_it(gpu_bench):
    import torch
    with torch.profiler.profile(acc_events=True):  # torch 2.11 warns of every profile without it
        gpu_bench(fast)
"""
    result = bench_run(source, "--gpu-bench-trace=traces", "--gpu-bench-reps=2", *options, timer=timer)
    result.stdout.fnmatch_lines([f"gpu_bench: no trace was taken: {reason}*"])
    assert Path("traces").exists() != ("--gpu-bench-disable" in options)
