"""A run that ended in the middle of a test: the next run names that test."""

import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock_file import LockFile
from pytest_gpubench.plugin.unfinished import _interrupted_test
from tests.plugin.conftest import BenchRun

LOCK_HEADER = b"pytest-gpubench lock\n"
SAYS = "*gpu_bench: warning: an earlier run ended in the midst of {} without a report: whatever its exit status*"
MEASURES = "def test_it(gpu_bench): gpu_bench(fast)"


@pytest.fixture
def notes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = pytester.path / "locks"
    monkeypatch.setenv("GPU_BENCH_LOCK_FOLDER", str(folder))
    return folder


def name_of(project: Path, end: str) -> str:
    return f"run-{hashlib.sha256(str(project).encode()).hexdigest()[:16]}-{end}"


ENDS = {
    "an exit in C": "gpu_bench(lambda: ctypes.CDLL(None)._exit(0))",
    "an exit in C, in a thread": "gpu_bench(lambda: thread(ctypes.CDLL(None)._exit))",
    "another program, before it measures": "os.execv('/bin/true', ['true'])",
    "an exit, before it measures": "os._exit(0)",
    "a kill": "os.kill(os.getpid(), 9)",
}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_in_the_midst_of_a_test(pytester: pytest.Pytester, notes: Path, end: str) -> None:
    """Called from C, or outside of measured code, nothing can refuse it."""
    path = pytester.makepyfile(f"""
        import ctypes, os, threading
        def thread(function):
            threading.Thread(target=function, args=(0,)).start()
            threading.Event().wait()
        def test_it(gpu_bench): {ENDS[end]}
    """)
    options = ("--gpu-bench-device=cpu", "--gpu-bench-timer=wall", "-p", "no:cacheprovider")
    assert pytester.runpytest_subprocess(path, *options).ret == (-9 if end == "a kill" else 0)  # which is why
    assert len(list(notes.glob("run-*"))) == 1
    path.write_text("def test_it(gpu_bench): gpu_bench(lambda: 0)")
    again = pytester.runpytest_subprocess(path, *options, "--gpu-bench-disable")
    again.stdout.fnmatch_lines([SAYS.format(f"{path.name}::test_it")])
    assert list(notes.glob("run-*")) == []


@pytest.mark.parametrize("body", ["gpu_bench(fast)", "assert 0", "raise KeyboardInterrupt", "pytest.exit('now')"])
def test_a_run_that_ends_leaves_no_note(bench_run: BenchRun, notes: Path, body: str) -> None:
    source = f"import os\ndef test_it(gpu_bench):\n    assert len(os.listdir({str(notes)!r})) == 1\n    {body}"
    result = bench_run(source, interrupted="Keyboard" in body)
    assert result.parseoutcomes().get("failed", 0) == (body == "assert 0")
    assert list(notes.glob("run-*")) == []


def test_a_note_lies_where_the_run_began(bench_run: BenchRun, pytester: pytest.Pytester) -> None:
    pytester.mkdir("elsewhere")
    source = "import os\nos.chdir('elsewhere')\ndef test_it(gpu_bench): assert os.listdir('../locks')"
    bench_run(source, "--gpu-bench-lock-folder=locks").assert_outcomes(passed=1)


def note(test: str) -> bytes:
    return LOCK_HEADER + msgspec.json.encode(Holder.of_this_process(test))


NOTES: dict[str, tuple[bytes, str]] = {
    "1": (note("a.py::test_1"), "a.py::test_1"),
    "2-empty": (b"", "a perf test"),
    "3-odd": (LOCK_HEADER + b"[]", "a perf test"),
    "4-no-text": (LOCK_HEADER + b"\xff{}", "a perf test"),
    "5-before-a-test": (note(""), "a perf test"),
}


def test_what_notes_say(bench_run: BenchRun, pytester: pytest.Pytester, notes: Path) -> None:
    """Each is told once; those that a process holds, of other projects and other users stay, and nobody tells them."""
    notes.mkdir()
    for end, (text, _) in NOTES.items():
        (notes / name_of(pytester.path, end)).write_bytes(text)
    (notes / name_of(pytester.path / "other", "1")).write_bytes(note("b.py::test_it"))
    (notes / name_of(pytester.path, "link")).symlink_to("nowhere")
    held = LockFile(notes, name_of(pytester.path, "held"))
    assert held.try_acquire(Holder.of_this_process("c.py::test_it"))
    left = {held.path.name, name_of(pytester.path / "other", "1"), name_of(pytester.path, "link")}
    result = bench_run(MEASURES)
    said = [line for line in result.stdout.lines if "in the midst of" in line]
    assert [line.partition("in the midst of ")[2].partition(" without")[0] for line in said] == [
        test for _, test in NOTES.values()
    ]
    assert {path.name for path in notes.iterdir()} == left
    bench_run(MEASURES).stdout.no_fnmatch_line(SAYS.format("*"))
    held.forget()  # as when its process ends
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_gpubench.plugin.unfinished.os.getuid", lambda: 12345)  # it is another user's
        bench_run(MEASURES).stdout.no_fnmatch_line(SAYS.format("*"))
    bench_run(MEASURES).stdout.fnmatch_lines([SAYS.format("c.py::test_it")])


@pytest.mark.parametrize("step", ["os.getuid", "fcntl.flock"])
def test_a_run_that_ends_while_its_note_is_looked_at_was_not_interrupted(tmp_path: Path, step: str) -> None:
    """It removes its note and gives up the lock on it after another run has found it, before that has locked it."""
    running, seen = LockFile(tmp_path, "run"), LockFile(tmp_path, "run")
    assert running.try_acquire(Holder.of_this_process("a.py::test_it"))
    module, name = step.split(".")
    function = getattr(importlib.import_module(module), name)

    def end_first(*arguments: object) -> object:
        patch.undo()
        running.path.unlink()
        running.release()
        return function(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, end_first)
        assert _interrupted_test(seen) == ""
    assert running.descriptor is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "spoil", [lambda folder: folder.write_text(""), lambda folder: folder.symlink_to("nowhere"), None]
)
def test_a_folder_that_cannot_be_one_or_is_removed(
    bench_run: BenchRun, notes: Path, spoil: Callable[[Path], object] | None
) -> None:
    if spoil is not None:
        spoil(notes)
    removes = f"__import__('shutil').rmtree({str(notes)!r}, ignore_errors=True)"
    result = bench_run(f"def test_one(gpu_bench): {removes}; gpu_bench(fast)\n{MEASURES}")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*error of its own*")


@pytest.mark.parametrize(("source", "options"), [(MEASURES, ["--collect-only"]), ("def test_it(): pass", [])])
def test_runs_that_measure_nothing_say_and_note_nothing(
    bench_run: BenchRun, pytester: pytest.Pytester, notes: Path, source: str, options: list[str]
) -> None:
    notes.mkdir()
    path = notes / name_of(pytester.path, "1")
    path.write_bytes(note("a.py::test_it"))
    bench_run(source, *options).stdout.no_fnmatch_line(SAYS.format("*"))
    assert list(notes.iterdir()) == [path]
