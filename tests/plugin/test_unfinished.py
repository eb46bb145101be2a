"""A run that ended in the middle of a test: the next run names that test."""

from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.plugin.unfinished import FOLDER
from tests.plugin.conftest import BenchRun

SAYS = "*gpu_bench: warning: an earlier run ended in the midst of {} without a report: whatever its exit status*"


@pytest.fixture
def notes(pytester: pytest.Pytester) -> Path:
    return pytester.path / ".pytest_cache" / "d" / FOLDER


@pytest.mark.usefixtures("forked")
def test_a_process_that_ends_well_in_the_midst_of_a_test(pytester: pytest.Pytester, notes: Path) -> None:
    """Called from C, nothing can refuse it."""
    path = pytester.makepyfile("""
        import ctypes
        def test_it(gpu_bench): gpu_bench(lambda: ctypes.CDLL(None)._exit(0))
    """)
    options = ("--gpu-bench-device=cpu", "--gpu-bench-timer=scripted")
    assert pytester.runpytest_subprocess(path, *options).ret == 0  # which is why
    assert len(list(notes.iterdir())) == 1
    path.write_text("def test_it(gpu_bench): gpu_bench(lambda: 0)")
    again = pytester.runpytest_subprocess(path, *options, "--gpu-bench-disable")
    again.stdout.fnmatch_lines([SAYS.format(f"{path.name}::test_it")])
    assert list(notes.iterdir()) == []


@pytest.mark.parametrize("body", ["gpu_bench(fast)", "assert 0", "raise KeyboardInterrupt", "pytest.exit('now')"])
def test_a_run_that_ends_leaves_no_note(bench_run: BenchRun, notes: Path, body: str) -> None:
    bench_run(f"def test_it(gpu_bench):\n    {body}", interrupted="Keyboard" in body)
    assert list(notes.iterdir()) == []


def note(number: str, **changes: object) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(Holder.of_this_process(f"a.py::test_{number}"), **changes))


NOTES = {
    "1 goes on": (note("1"), False),
    "2 another process": (note("2", started=1), True),
    "3 gone": (note("3", pid=999999999), True),
    "4 another host": (note("4", pid=999999999, host="elsewhere"), False),
    "5 another container": (note("5", pid=999999999, namespace="pid:[1]"), False),
    "6 empty": (b"", True),
    "7 odd": (b"[]", True),
    "8 no text": (b"\xff{}", True),
}


def test_what_notes_say(bench_run: BenchRun, notes: Path) -> None:
    """Each is told once; those of runs that may go on stay, and are told by nobody."""
    notes.mkdir(parents=True)
    for name, (text, _) in NOTES.items():
        (notes / name).write_bytes(text)
    result = bench_run("def test_it(gpu_bench): gpu_bench(fast)")
    said = [line for line in result.stdout.lines if "in the midst of" in line]
    tests = ["a.py::test_2", "a.py::test_3", "a perf test", "a perf test", "a perf test"]
    assert [line.partition("in the midst of ")[2].partition(" without")[0] for line in said] == tests
    assert sorted(path.name for path in notes.iterdir()) == [name for name, (_, told) in NOTES.items() if not told]
    bench_run("def test_it(gpu_bench): gpu_bench(fast)").stdout.no_fnmatch_line(SAYS.format("*"))


def test_a_folder_that_nobody_may_write_to(bench_run: BenchRun, pytester: pytest.Pytester) -> None:
    (pytester.path / "file").touch()
    options = ("-o", "cache_dir=file/cache", "-W", "ignore::pytest.PytestCacheWarning")
    result = bench_run("def test_it(gpu_bench): gpu_bench(fast)", *options)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*error of its own*")


def test_a_test_that_removes_the_folder(bench_run: BenchRun, notes: Path) -> None:
    body = "shutil.rmtree(request.config.cache.mkdir('x').parents[1])\n    gpu_bench(fast)"
    source = f"import shutil\ndef test_one(gpu_bench, request):\n    {body}\ndef test_two(gpu_bench): gpu_bench(fast)"
    result = bench_run(source)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*error of its own*")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("def test_it(gpu_bench): gpu_bench(fast)", ["--collect-only"]),
        ("def test_it(gpu_bench): gpu_bench(fast)", ["-p", "no:cacheprovider"]),
        ("def test_it(): pass", []),
    ],
)
def test_runs_that_measure_nothing_say_and_note_nothing(
    bench_run: BenchRun, notes: Path, source: str, options: list[str]
) -> None:
    notes.mkdir(parents=True)
    (notes / "999999999").write_text("{}")
    bench_run(source, *options).stdout.no_fnmatch_line(SAYS.format("*"))
    assert [path.name for path in notes.iterdir()] == ["999999999"]
