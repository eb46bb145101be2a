"""Commits, the command `ab`, and fakes of the processes that it starts."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from pytest_gpubench import DeviceFacts, Measurement, Timing, cli
from pytest_gpubench.results.model import Counts, Outcome, SavedRun, TestRecord
from pytest_gpubench.results.store import write_run
from tests.results.measured import timing_of, verdict

CPU = DeviceFacts(type="cpu", name="a CPU", host="here")
NODEID = "tests/test_a.py::test_it[4-a::b]"
Git = Callable[..., str]


def commit(git: Git, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "--message", "a change")
    return git("rev-parse", "HEAD")


def call(*words: str) -> int:
    arguments = cli.parse(["ab", *words])
    return int(arguments.run(arguments))


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "tmp").iterdir())


def write_results(
    timings: Mapping[str, Sequence[Timing]], notes: Path, results: Path, failed: Sequence[str] = ()
) -> None:
    """Write the results of tests that measure, and of others that fail; with neither, of one that passes."""
    kept = (verdict("max_time_us=1e6", Outcome.PASS),)
    records = tuple(
        TestRecord(nodeid=nodeid, device=CPU, measurements=tuple(Measurement(timing=t, verdicts=kept) for t in found))
        for nodeid, found in timings.items()
    )
    write_run(SavedRun(records=records, datetime="2026-01-01T00:00:00+00:00"), results)
    ended = {nodeid: "failed" if nodeid in failed else "passed" for nodeid in [*timings, *failed] or [NODEID]}
    notes.write_text(json.dumps({"ended": ended, "modules": {}}))


class ReadyProcess:
    """Stand for a process that waits for its turn, and is run by this function then."""

    def __init__(self, run: Callable[[], int], folder: Path) -> None:
        self.run = run
        self.folder = folder

    def wait_until_ready(self) -> dict[str, str]:
        """Return what a tree's `sources` file says of its tests, at once."""
        path = self.folder / "sources"
        return json.loads(path.read_text()) if path.exists() else {}


def replace_processes(monkeypatch: pytest.MonkeyPatch, run: Callable[..., int]) -> None:
    """Let `ab` call a function in place of each process that it starts."""
    monkeypatch.setattr("pytest_gpubench.cli.ab.runs.run_logged", run)
    monkeypatch.setattr(
        "pytest_gpubench.cli.ab.runs.waiting_process",
        lambda *started: nullcontext(ReadyProcess(lambda: run(*started), started[1])),
    )


class FakePytest:
    """Stand for pytest: write the results and the notes that a tree's `us` file asks for.

    It holds a time, or a word for each function: `f1=10 f2=10 g=10,11 h=10! i=failed` are two times of one test, one
    for each run in turn, one beside other processes, and a test that fails.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[Sequence[str]] = []
        self.folders: list[Path] = []
        self.environments: list[Mapping[str, str]] = []
        self.status = 0
        self.output = "line\n" * 30 + "the last line\n"
        self.interrupt_at: int | None = None
        replace_processes(monkeypatch, self.run)
        monkeypatch.setattr("pytest_gpubench.gpu.visible.find_visible", list)

    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> int:
        self.commands.append(command)
        self.folders.append(folder)
        self.environments.append(environment)
        log.write_text(self.output)
        if len(self.commands) == self.interrupt_at:
            raise KeyboardInterrupt
        if command[0] == "sh":
            return subprocess.run(command, cwd=folder).returncode
        self.write(folder, Path(environment["PYTEST_GPUBENCH_NOTES"]), Path(command[-1].partition("=")[2]))
        return self.status

    def write(self, folder: Path, notes: Path, results: Path) -> None:
        runs = self.folders.count(folder)
        timings, failed = dict[str, list[Timing]](), list[str]()
        for word in (folder / "us").read_text().split():
            label, _, texts = word.rpartition("=")
            nodeid = f"tests/test_a.py::test_{label.rstrip('12')}" if label else NODEID
            values = texts.split(",")
            text = values[(runs - 1) % len(values)]
            if text == "failed":
                failed.append(nodeid)
            elif text != "nothing":
                timings.setdefault(nodeid, []).append(_timing(label or "f", float(text.rstrip("!")), "!" in text))
        write_results(timings, notes, results, failed)

    @property
    def arms(self) -> str:
        """Whose turn it was: B in the worktree of BASE, H in that of HEAD, W in the working tree."""
        return "".join({"base": "B", "head": "H"}.get(folder.name, "W") for folder in self.folders)


def _timing(label: str, us: float, beside_others: bool) -> Timing:
    counts = Counts(captures={"instructions": (1000 * us,) * 3, "l2_bytes": (max(us - 10, 0),) * 3})
    others = "pid 7 computed" if beside_others else ""
    return timing_of((us,), label, timer="wall", device="", counts=counts, neighbours=others)
