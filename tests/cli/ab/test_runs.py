"""Runs of `ab` in both trees, and their errors."""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import BadFile, BadRequest
from pytest_gpubench.cli import main
from pytest_gpubench.cli.ab.runs import WaitingProcess, read_notes
from tests.cli.ab.faked import NODEID, FakePytest, Git, call, commit, left, write_results
from tests.results.measured import timing_of


def test_each_run_imports_its_own_tree(git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(git, {"sub/us": "10", "src/package/__init__.py": ""})
    root = Path.cwd()
    monkeypatch.setenv("PYTHONPATH", f"{root / 'lib'}:/elsewhere:")
    editable = [f"{root}/python", f"{root}/.venv/lib/python3.12/site-packages"]
    monkeypatch.setattr(sys, "path", [*sys.path, *editable])
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.chdir("sub")
    words = f"{root}/sub/test_a.py::test_it", f"--ignore={root}/old", "-k=/a"
    assert call("main", "HEAD", "--rounds", "1", "--", *words) == 0
    for arm, folder, environment, command in zip("bhhb", fake.folders, fake.environments, fake.commands, strict=True):
        tree = folder.parent
        assert tree.name[0] == arm
        paths = [str(folder), str(tree), str(tree / "src"), str(tree / "lib"), "/elsewhere", f"{tree}/python"]
        assert environment["PYTHONPATH"].split(":") == paths
        assert not {"GITHUB_STEP_SUMMARY", "PYTEST_XDIST_WORKER"} & set(environment)
        given = [f"{tree}/sub/test_a.py::test_it", f"--ignore={tree}/old", "-k=/a"]
        assert list(command[1:7]) == ["-m", "pytest", *given, "--hypothesis-seed=0"]
    for name in ("TORCH_EXTENSIONS_DIR", "HYPOTHESIS_STORAGE_DIRECTORY"):
        first, second, third, fourth = (environment[name] for environment in fake.environments)
        assert first == fourth != second == third


@pytest.mark.parametrize(
    ("words", "seed", "has_cache"), [(("--hypothesis-seed=7",), 7, True), (("-p", "no:cacheprovider"), 0, False)]
)
def test_a_seed_stays_and_a_cache_that_is_off_has_no_place(
    words: tuple[str, ...], seed: int, has_cache: bool, git: Git, fake: FakePytest
) -> None:
    commit(git, {"us": "10"})
    call("main", "--rounds", "1", "--", *words)
    given = [word.partition("=") for word in fake.commands[0] if "=" in word]
    assert [value for name, _, value in given if name == "--hypothesis-seed"] == [str(seed)]
    assert ("cache_dir" in [name for name, *_ in given]) is has_cache


def test_setup_runs_once_in_each_worktree(git: Git, fake: FakePytest) -> None:
    commit(git, {"us": "10"})
    assert call("main", "HEAD", "--rounds", "1", "--setup", "echo 12 > us") == 0
    assert [command[0] == "sh" for command in fake.commands] == [True, True, *[False] * 4]
    assert call("main", "--rounds", "1", "--setup", "echo 5 > us") == 1
    assert Path("us").read_text() == "10", "the working tree is left as it is"


@pytest.mark.parametrize("status", [2, 3, 4])
def test_a_setup_that_fails_and_tests_that_cannot_run(git: Git, fake: FakePytest, tmp_path: Path, status: int) -> None:
    commit(git, {"us": "10"})
    fake.status = status
    for words, what in (((), "pytest could not run the tests"), (("--setup", f"exit {status}"), "--setup failed")):
        with pytest.raises(BadRequest) as raised:
            call("main", "HEAD", *words)
        first, *rest = str(raised.value).splitlines()
        assert first == f"{what} in BASE (exit status {status}); it ended with:"
        assert rest == ["    line"] * 14 + ["    the last line"]
        assert left(tmp_path) == []


WAITS = f"""#!{sys.executable}
import json, os, sys, time
from pathlib import Path
if "pytest" not in sys.argv:
    print(json.dumps([{{}}, True, []]))
elif sys.argv[0].endswith("base"):
    sys.exit(3)
else:
    Path(os.environ["PIDS"], str(os.getpid())).touch()
    os.write(int(os.environ["PYTEST_GPUBENCH_TURN_SOCKET"]), b"{{}}\\n")
    time.sleep(60)
"""
"""Stands for an interpreter: pytest ends in BASE before its turn, and waits for its turn in HEAD."""


def test_a_run_that_ends_before_its_turn_ends_those_that_wait(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(git, {"us": "10"})
    pids = tmp_path / "pids"
    pids.mkdir()
    monkeypatch.setenv("PIDS", str(pids))
    words = []
    for arm in ("base", "head"):
        (tmp_path / arm).write_text(WAITS)
        (tmp_path / arm).chmod(0o755)
        words += [f"--{arm}-python", str(tmp_path / arm)]
    with pytest.raises(BadRequest, match=r"pytest could not run the tests in BASE \(exit status 3\)"):
        call("HEAD", "HEAD", "--rounds", "1", *words)
    one, other = (int(path.name) for path in pids.iterdir())
    for pid in (one, other):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_run_that_is_late_is_not_kept_from_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sources may be more than a socket holds, and nobody reads them any more."""
    monkeypatch.setattr("pytest_gpubench.cli.ab.runs.READY_S", 0.01)
    own, other = socket.socketpair()
    process: Any = None
    with own, other:
        assert WaitingProcess(process, own).wait_until_ready() == {}
        other.settimeout(5)
        with pytest.raises(BrokenPipeError):
            other.sendall(bytes(10**7))


def test_a_run_of_an_older_version_of_the_plugin_is_refused(
    git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says neither how its tests ended nor what they loaded."""
    commit(git, {"us": "10"})
    write = fake.write
    monkeypatch.setattr(fake, "write", lambda *places: (write(*places), places[1].unlink()))
    with pytest.raises(
        BadRequest, match="the tests in BASE say nothing of how they ended: an older pytest-gpubench ran"
    ):
        call("main", "HEAD")


@pytest.mark.parametrize("text", ["ready", "1\\n"])
def test_a_run_that_answers_otherwise_is_refused_before_its_turn(
    text: str, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the rest of a text that an older plugin ends otherwise."""
    commit(git, {"us": "10"})
    monkeypatch.setenv("PIDS", str(tmp_path))
    monkeypatch.setattr("pytest_gpubench.cli.ab.runs.READY_S", None)
    python = tmp_path / "python"
    python.write_text(WAITS.replace("{}\\n", text))
    python.chmod(0o755)
    with pytest.raises(BadRequest, match="an older pytest-gpubench runs the tests in BASE: update it there"):
        call("HEAD", "HEAD", "--rounds", "1", "--base-python", str(python), "--head-python", str(python))


@pytest.mark.parametrize("is_written", [True, False])
def test_nothing_measured_at_all(
    git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str], tmp_path: Path, is_written: bool
) -> None:
    """A run that measured nothing writes no results."""
    commit(git, {"us": "nothing"})
    write = fake.write

    def write_as_asked(folder: Path, notes: Path, results: Path) -> None:
        write(folder, notes, results)
        if not is_written:
            results.unlink()

    fake.write = write_as_asked  # type: ignore[method-assign] # for this test
    assert call("main") == 2
    assert capsys.readouterr().out == "gpu_bench: nothing was compared: no measurement is in both versions\n"
    assert fake.arms == "BW", "further runs would measure nothing either"
    assert left(tmp_path) == []


@pytest.mark.parametrize("is_there", [False, True])
def test_no_results_at_all_and_those_of_a_test_that_failed_in_one_version(
    is_there: bool, git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test has one name where it measured and where it failed before."""
    commit(git, {"us": "10"})

    def write(folder: Path, notes: Path, results: Path) -> None:
        measured = {NODEID: [timing_of([10.0], timer="wall")]} if folder.name == "base" else {}
        if is_there:
            write_results(measured, notes, results, [] if measured else [NODEID])

    monkeypatch.setattr(fake, "write", write)
    if is_there:
        assert call("main", "HEAD", "--rounds", "1") == 1
        told = f"FAIL          {NODEID}: fails in 2 of 2 runs of HEAD and in 0 of 2 of BASE"
        assert told in capsys.readouterr().out
    else:
        with pytest.raises(BadRequest, match=r"the tests in BASE left no results \(exit status 0\); it ended with:\n"):
            call("main", "HEAD")


STEADY = "tests/test_a.py::test_steady[é [c]]"


@pytest.fixture
def ran(git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The tests of each run: a steady one, decided after two rounds, and one that differs from run to run."""
    commit(git, {"us": "10"})
    names = {NODEID: 0.2, STEADY: 0.001}
    ran: list[list[str]] = []

    def write(folder: Path, notes: Path, results: Path) -> None:
        listed = fake.environments[-1].get("PYTEST_GPUBENCH_TESTS")
        ran.append([name for name in names if listed is None or name in json.loads(Path(listed).read_text())])
        step = (-1) ** len(ran) + len(ran) % 3
        samples = {name: (10.0 + names[name] * step,) for name in ran[-1]}
        write_results({name: [timing_of(each, timer="wall")] for name, each in samples.items()}, notes, results)

    monkeypatch.setattr(fake, "write", write)
    return ran


def test_only_what_is_open_is_run_again(ran: list[list[str]]) -> None:
    assert call("main", "HEAD", "--rounds", "4", "--html", "page.html", "--fail-slower", "1%") == 0
    assert ran == [[NODEID, STEADY]] * 8 + [[NODEID]] * 8
    page = Path("page.html").read_text()
    assert all(json.dumps(name)[1:-1] in page for name in (NODEID, STEADY))


def test_a_version_that_was_beside_others_at_first_is_run_again(git: Git, fake: FakePytest) -> None:
    commit(git, {"us": "10!,10!,10!,10!,10,10,10,10"})
    Path("us").write_text("10")
    assert call("main", "--rounds", "4", "--fail-slower", "1%") == 0
    assert len(fake.arms) == 12


WRITTEN = ("--markdown", "found.md", "--json", "found.json")


def test_an_interrupt_reports_what_is_decided(
    ran: list[list[str]], fake: FakePytest, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.interrupt_at = 10
    assert main(["ab", "main", "HEAD", "--fail-slower", "1%", *WRITTEN]) == 130
    out, err = capsys.readouterr()
    words = "interrupted after 9 of at most 16 runs: the verdicts are those so far"
    assert err.splitlines()[-1] == f"gpu_bench: {words}"
    assert [line.split()[0] for line in out.splitlines()] == ["INCONCLUSIVE", "PASS", "gpu_bench:"]
    told = Path("found.md").read_text()
    assert told.startswith("## Performance of HEAD against BASE: ❌ 2 measurements compared: 1 inconclusive, 1 pass\n")
    assert f"\n- {words}\n" in told
    found = json.loads(Path("found.json").read_text())
    assert (found["exit_status"], found["interrupted"], found["runs"]) == (130, True, 9)


@pytest.mark.parametrize(
    ("options", "at", "words"),
    [
        ((), 8, "interrupted after 7 of at most 16 runs: nothing is decided yet"),
        (("--setup", "true"), 1, "interrupted before the first run"),
    ],
)
def test_an_interrupt_before_anything_is_decided(
    options: tuple[str, ...], at: int, words: str, ran: list[list[str]], fake: FakePytest
) -> None:
    """The comment has no older verdict."""
    Path("found.md").write_text("fine")
    fake.interrupt_at = at
    assert main(["ab", "main", "HEAD", *WRITTEN, *options]) == 130
    told = Path("found.md").read_text()
    assert (words in told, "fine" in told, Path("found.json").exists()) == (True, False, False)


# what pytest says of its tests


def test_a_test_that_failed_in_one_process_has_failed_and_notes_that_are_cut_are_refused(tmp_path: Path) -> None:
    """An xdist worker and its controller both tell; the controller alone, where the worker died."""
    told: list[dict[str, str]] = [{"a": "failed", "b": "skipped"}, {"a": "passed", "c": "passed"}]
    lines = [json.dumps({"ended": each, "modules": {f"module{number}": ""}}) for number, each in enumerate(told)]
    notes = tmp_path / "01-BASE.notes"
    notes.write_text("\n".join(lines))
    found = read_notes(notes)
    assert found.ended == {"a": "failed", "b": "skipped", "c": "passed"}
    assert list(found.modules) == ["module0", "module1"]
    notes.write_text("\n".join(lines)[:-1])
    with pytest.raises(BadFile, match=r"01-BASE\.notes, what pytest says of its tests, cannot be read: "):
        read_notes(notes)
