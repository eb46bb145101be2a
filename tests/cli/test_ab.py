"""Two commits by alternating runs: what is checked out, run and removed, and what comes of it."""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.cli import ab
from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.results.model import DeviceFacts, Measurement, Outcome, SavedRun, TestRecord, Timing
from pytest_gpubench.results.rounds import Judgement
from pytest_gpubench.results.store import write_run
from pytest_gpubench.stats.regression import Change

CPU = DeviceFacts(type="cpu", name="a CPU", host="here")
NODEID = "tests/test_a.py::test_it[4-a::b]"

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Be in a new repository, and run git in it."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "PYTHONPATH"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    who = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")

    def run(*words: str) -> str:
        return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout.strip()

    run("init", "--quiet", "--initial-branch=main")
    return run


def commit(git: Git, files: Mapping[str, str]) -> str:
    """Commit these files and return the commit."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "--message", "a change")
    return git("rev-parse", "HEAD")


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ab.add(parser.add_subparsers())
    return parser.parse_args(["ab", *words])


def call(*words: str) -> int:
    arguments = parse(*words)
    return int(arguments.run(arguments))


def left(tmp_path: Path) -> list[Path]:
    """Return what is left in the temporary folder."""
    return list((tmp_path / "tmp").iterdir())


class FakePytest:
    """Stand for pytest: write the results and the JUnit file that a tree's `us` file, a time, asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[Sequence[str]] = []
        self.folders: list[Path] = []
        self.environments: list[Mapping[str, str]] = []
        self.status = 0
        self.output = "line\n" * 30 + "the last line\n"
        self.interrupt_at: int | None = None
        monkeypatch.setattr(ab, "run_logged", self.run)
        monkeypatch.setattr(ab, "one_gpu", dict)

    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> int:
        self.commands.append(command)
        self.folders.append(folder)
        self.environments.append(environment)
        log.write_text(self.output)
        if len(self.commands) == self.interrupt_at:
            raise KeyboardInterrupt
        if command[0] == "sh":
            return subprocess.run(command, cwd=folder).returncode
        self.write(folder, *(Path(word.partition("=")[2]) for word in command[-2:]))
        return self.status

    def write(self, folder: Path, junit: Path, results: Path) -> None:
        text = (folder / "us").read_text()
        measurements = []
        if text != "nothing":
            timing = Timing(label="f", timer="wall", cache="cold", device="", samples_us=(float(text),))
            measurements = [Measurement(timing=timing)]
        record = TestRecord(nodeid=NODEID, device=CPU, measurements=tuple(measurements))
        write_run(SavedRun(records=(record,) if measurements else (), datetime="2026-01-01T00:00:00+00:00"), results)
        names = ab.junit_names(NODEID)
        junit.write_text(
            f'<testsuites><testsuite><testcase classname="{names[0]}" name="{names[1]}"/></testsuite></testsuites>'
        )

    @property
    def arms(self) -> str:
        """Whose turn it was: B in the worktree of BASE, H in that of HEAD, W in the working tree."""
        return "".join({"base": "B", "head": "H"}.get(folder.name, "W") for folder in self.folders)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePytest:
    return FakePytest(monkeypatch)


# the command line


@pytest.mark.parametrize(
    ("words", "base", "head", "rest"),
    [
        (["main"], "main", None, []),
        (["main", "--"], "main", None, []),
        (["main", "--", "tests", "-q"], "main", None, ["tests", "-q"]),
        (["main", "topic", "--", "tests", "--", "x"], "main", "topic", ["tests", "--", "x"]),
        (["--rounds", "5", "main", "--", "--rounds", "7"], "main", None, ["--rounds", "7"]),
    ],
)
def test_what_follows_the_dashes_is_pytests(words: list[str], base: str, head: str | None, rest: list[str]) -> None:
    found = parse(*words)
    assert (found.base, found.head, found.pytest_arguments) == (base, head, rest)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required: BASE"),
        (["--", "tests"], "the following arguments are required: BASE"),
        (["a", "b", "c"], "unrecognized arguments: c"),
        (["a", "--rounds", "0"], "argument --rounds: '0' is not valid, it must be at least 1"),
        (["a", "--fail-slower", "-1"], "argument --fail-slower: '-1' is not valid, it must be above 0 and finite"),
        (["a", "--fail-slower", "nan"], "argument --fail-slower: 'nan' is not valid, it must be above 0 and finite"),
        (["a", "--fail-slower", "fast"], "argument --fail-slower: 'fast' is not valid, it must be a number, or *"),
        (["a", "--alpha", "2"], "argument --alpha: '2' is not valid, it must be below 1 (or 100%)"),
        (["a", "--alpha", "0.5"], "argument --alpha: '0.5' is not valid, it must be below 0.5"),
        (["a", "--metric", "min"], "argument --metric: invalid choice: 'min' *"),
    ],
)
def test_bad_usage_gets_a_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(*words)
    assert stopped.value.code == 2
    assert sentence.removesuffix("*") in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("3%", 0.03), ("0.5 %", 0.005), ("0.03", 0.03), ("0", 0), ("150%", 1.5)])
def test_how_much_slower(text: str, value: float) -> None:
    assert ab.slower(text) == pytest.approx(value)


# the repository


def test_outside_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        BadRequest, match=r"is not in the working tree of a git repository \(fatal: .*\): run this where"
    ):
        call("main")


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadRequest, match="git is not installed, or not on PATH"):
        call("main")


@pytest.mark.parametrize("revision", ["topic", "0123456789", "", "main:us", "main..main"])
def test_an_unknown_commit(git: Git, tmp_path: Path, revision: str) -> None:
    commit(git, {"us": "10"})
    with pytest.raises(BadRequest, match=rf"'{revision}' names no commit of .*repository: fetch it first"):
        call(revision)
    with pytest.raises(BadRequest, match="names no commit"):
        call("main", revision)
    assert left(tmp_path) == []


def test_an_unknown_commit_of_a_shallow_clone(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(git, {"us": "10"})
    commit(git, {"us": "11"})
    git("clone", "--quiet", "--depth=1", f"file://{Path.cwd()}", str(tmp_path / "clone"))
    monkeypatch.chdir(tmp_path / "clone")
    with pytest.raises(BadRequest, match="this clone is shallow, fetch its history first"):
        call(first)


def test_a_repository_without_a_commit(git: Git) -> None:
    with pytest.raises(BadRequest, match="'HEAD' names no commit"):
        call("HEAD")


def test_inside_a_hook_of_git(git: Git, fake: FakePytest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(git, {"us": "10"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert call("main") == 0
    assert not any("GIT_DIR" in environment for environment in fake.environments)


# what is run


def test_two_commits(git: Git, fake: FakePytest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10"})
    git("tag", "old")
    commit(git, {"us": "10.4"})
    Path("us").write_text("99")
    assert call("old", "main", "--", "tests", "-q") == 1
    assert fake.arms == "BHHBHBBHBHHB"
    shown = capsys.readouterr()
    assert f"FAIL          {NODEID} [f]: is slower: 1.040x [1.040, 1.040] by the median, wanted" in shown.out
    assert shown.out.splitlines()[-1] == "gpu_bench: 1 measurement compared: 1 fail"
    said = shown.err.splitlines()
    assert re.fullmatch(r"gpu_bench: BASE is old \(\w{8}\)", said[0])
    assert re.fullmatch(r"gpu_bench: HEAD is main \(\w{8}\); 1 changed file of the working tree left out", said[1])
    assert said[2] == "gpu_bench: run 1 of 12: BASE, 1 test, 1 measurement, 0 s"
    assert left(tmp_path) == []
    assert len(git("worktree", "list").splitlines()) == 1
    assert Path("us").read_text() == "99"


def test_the_working_tree_as_it_is(git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10"})
    assert call("main", "--rounds", "1") == 0
    assert fake.arms == "BWWB"
    said = capsys.readouterr().err
    assert "HEAD is the working tree as it is, which is clean, at " in said
    assert "BASE and HEAD are the same commit" not in said
    Path("us").write_text("10.5")
    Path("new").touch()
    assert call("main", "--rounds", "1") == 1
    assert "HEAD is the working tree as it is, with 2 changed files, at " in capsys.readouterr().err


def test_one_commit_twice(git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10"})
    assert call("main", "HEAD", "--rounds", "1") == 0
    assert "BASE and HEAD are the same commit: every difference is noise" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "status"), [(["--fail-slower", "3.9%"], 1), (["--fail-slower", "4.1%"], 0)])
def test_the_margin_is_the_options(git: Git, fake: FakePytest, words: list[str], status: int) -> None:
    commit(git, {"us": "10"})
    Path("us").write_text("10.4")
    assert call("main", "--rounds", "1", *words) == status


def test_each_run_imports_its_own_tree(git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(git, {"sub/us": "10", "src/package/__init__.py": ""})
    root = Path.cwd()
    monkeypatch.setenv("PYTHONPATH", f"{root / 'lib'}:/elsewhere:")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.chdir("sub")
    assert call("main", "HEAD", "--rounds", "1", "--", f"{root}/sub/test_a.py::test_it", "-q") == 0
    for arm, folder, environment, command in zip("bhhb", fake.folders, fake.environments, fake.commands, strict=True):
        tree = folder.parent
        assert tree.name[0] == arm
        paths = [str(folder), str(tree), str(tree / "src"), str(tree / "lib"), "/elsewhere"]
        assert environment["PYTHONPATH"].split(":") == paths
        assert not {"GITHUB_STEP_SUMMARY", "PYTEST_XDIST_WORKER"} & set(environment)
        assert list(command[:6]) == [
            sys.executable,
            "-m",
            "pytest",
            f"{tree}/sub/test_a.py::test_it",
            "-q",
            "--hypothesis-seed=0",
        ]
    for name in ("TORCH_EXTENSIONS_DIR", "HYPOTHESIS_STORAGE_DIRECTORY"):
        first, second, third, fourth = (environment[name] for environment in fake.environments)
        assert first == fourth != second == third


def test_a_seed_that_is_given_stays(git: Git, fake: FakePytest) -> None:
    commit(git, {"us": "10"})
    call("main", "--rounds", "1", "--", "--hypothesis-seed=7")
    assert [word for word in fake.commands[0] if word.startswith("--hypothesis-seed")] == ["--hypothesis-seed=7"]


def test_a_folder_that_one_commit_lacks(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(git, {"us": "10"})
    Path("new").mkdir()
    monkeypatch.chdir("new")
    with pytest.raises(BadRequest, match="BASE has no folder new: run ab in one that both commits have"):
        call("main")
    assert left(tmp_path) == []


def test_setup_runs_once_in_each_worktree(git: Git, fake: FakePytest) -> None:
    commit(git, {"us": "10"})
    assert call("main", "HEAD", "--rounds", "1", "--setup", "echo 12 > us") == 0
    assert [command[0] == "sh" for command in fake.commands] == [True, True, *[False] * 4]
    assert Path("us").read_text() == "10"
    assert call("main", "--rounds", "1", "--setup", "echo 5 > us") == 1
    assert Path("us").read_text() == "10", "the working tree is left as it is"


def test_a_setup_that_fails(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    commit(git, {"us": "10"})
    with pytest.raises(
        BadRequest, match=r"--setup failed in BASE \(exit status 3\); it ended with:\n(?s:.*)the last line"
    ):
        call("main", "HEAD", "--setup", "exit 3")
    assert left(tmp_path) == []


def test_submodules_are_not_there(git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10", ".gitmodules": ""})
    call("main", "--rounds", "1")
    assert "submodules are not checked out" in capsys.readouterr().err


# what goes wrong


@pytest.mark.parametrize("status", [2, 3, 4])
def test_tests_that_cannot_run(git: Git, fake: FakePytest, tmp_path: Path, status: int) -> None:
    commit(git, {"us": "10"})
    fake.status = status
    with pytest.raises(BadRequest) as raised:
        call("main")
    first, *rest = str(raised.value).splitlines()
    assert first == f"pytest could not run the tests in BASE (exit status {status}); it ended with:"
    assert rest == ["    line"] * 14 + ["    the last line"]
    assert left(tmp_path) == []


def test_nothing_measured_at_all(
    git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    commit(git, {"us": "nothing"})
    assert call("main") == 2
    assert capsys.readouterr().out == "gpu_bench: nothing was compared: no measurement is in both versions\n"
    assert fake.arms == "BW", "further runs would measure nothing either"
    assert left(tmp_path) == []


def test_no_results_at_all(git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(git, {"us": "10"})
    monkeypatch.setattr(fake, "write", lambda *places: None)
    with pytest.raises(BadRequest, match="the tests in BASE left no results; pytest ended with:\n"):
        call("main")


def test_an_interrupt_leaves_nothing(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    commit(git, {"us": "10"})
    fake.interrupt_at = 3
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        call("main", "HEAD")
    assert left(tmp_path) == []
    assert len(git("worktree", "list").splitlines()) == 1
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_what_is_kept(git: Git, fake: FakePytest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10"})
    assert call("main", "--rounds", "1", "--keep") == 0
    (folder,) = left(tmp_path)
    assert f"kept: {folder}" in capsys.readouterr().err
    names = {path.name for path in folder.iterdir()}
    assert {"base", "01-BASE.json", "01-BASE.xml", "01-BASE.log", "04-BASE.json"} <= names
    git("worktree", "remove", "--force", str(folder / "base"))


def test_a_run_that_is_interrupted_ends_with_all_it_started(tmp_path: Path) -> None:
    """SIGTERM, as CI sends it, reaches what the command started, too."""
    script = f"""
import os, signal, subprocess, threading
from pathlib import Path
from pytest_gpubench.cli import ab
command = ["sh", "-c", "sleep 60 & echo $! > {tmp_path}/pid; kill -TERM " + str(os.getpid()) + "; wait"]
try:
    with ab.ending_by_signal():
        ab.run_logged(command, Path("/"), dict(os.environ), Path("{tmp_path}/log"))
except KeyboardInterrupt:
    print("interrupted")
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert found.stdout == "interrupted\n", found.stderr
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    for _ in range(500):  # it is killed, which takes the system a moment
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("what the command started goes on")


# imports from elsewhere


def test_packages_that_come_from_elsewhere_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finder that is asked before the path, as some editable installations put one there, wins over PYTHONPATH."""
    origin, root, site = tmp_path / "origin", tmp_path / "tree", tmp_path / "site"
    for folder in (origin / "editable", root / "editable", root / "src" / "mine", site):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (root / "single.py").touch()
    (root / "not-a-name.py").touch()
    (site / "sitecustomize.py").write_text(f"""
import sys, importlib.util
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "editable":
            return importlib.util.spec_from_file_location(name, "{origin}/editable/__init__.py")
sys.meta_path.insert(0, Finder)
""")
    tree = ab.Tree("BASE", root, root, origin, tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    assert tree.foreign_modules() == {}
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert tree.foreign_modules() == {"editable": f"{origin}/editable/__init__.py"}


def test_a_package_on_the_path_of_the_working_tree_does_not_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, root = tmp_path / "origin", tmp_path / "tree"
    for folder in (origin / "package", root / "package"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(origin))
    tree = ab.Tree("BASE", root, root, origin, tmp_path)
    assert tree.environment()["PYTHONPATH"] == str(root)
    assert tree.foreign_modules() == {}


def test_a_warning_says_so(git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    commit(git, {"us": "10"})
    monkeypatch.setattr(ab.Tree, "foreign_modules", lambda self: {"package": "/there/package.py"})
    call("main", "--rounds", "1")
    warning = "warning: HEAD imports package from /there/package.py, not from its own tree: what is measured is not it"
    assert warning in capsys.readouterr().err


# one GPU


class Gpu:
    def __init__(self, uuid: str) -> None:
        self.uuid, self.name, self.index, self.mig = uuid, "a GPU", 0, False


@pytest.mark.parametrize("uuids", [[], ["GPU-1"]])
def test_without_a_choice_of_gpus_nothing_is_pinned(uuids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.gpu.visible.find_visible", lambda: [Gpu(uuid) for uuid in uuids])
    assert ab.one_gpu() == {}


def test_of_several_gpus_one_is_held(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("pytest_gpubench.gpu.visible.find_visible", lambda: [Gpu("GPU-1"), Gpu("GPU-2")])
    held: list[Any] = []
    monkeypatch.setattr(ab, "HELD", held)
    assert ab.one_gpu() == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    assert ab.one_gpu() == {"CUDA_VISIBLE_DEVICES": "GPU-2"}, "the other one is less taken"
    assert "both are measured on a GPU GPU-1, one of 2 GPUs" in capsys.readouterr().err
    for claim in held:
        claim.release()


# what pytest says


@pytest.mark.parametrize(
    ("nodeid", "names"),
    [
        ("test_a.py::test_it", ("test_a", "test_it")),
        ("tests/deep/test_a.py::TestIt::test_it", ("tests.deep.test_a.TestIt", "test_it")),
        ("tests/test_a.py::test_it[a/b.py::c[0]]", ("tests.test_a", "test_it[a/b.py::c[0]]")),
    ],
)
def test_names_in_junit(nodeid: str, names: tuple[str, str]) -> None:
    assert ab.junit_names(nodeid) == names


def test_names_are_those_of_pytest_itself(pytester: pytest.Pytester) -> None:
    from xml.etree import ElementTree

    pytester.mkdir("deep")
    Path("deep/test_a.py").write_text("""
import pytest
class TestIt:
    @pytest.mark.parametrize("x", ["a/b.py", "c::d", "[e]", "é"])
    def test_it(self, x): pass
""")
    result = pytester.runpytest("--junitxml=junit.xml", "-p", "no:gpu_bench", "-v")
    nodeids = re.findall(r"^(\S+::\S+) PASSED", result.stdout.str(), re.MULTILINE)
    cases = ElementTree.parse("junit.xml").iter("testcase")
    assert [ab.junit_names(nodeid) for nodeid in nodeids] == [(c.get("classname"), c.get("name")) for c in cases]
    assert len(nodeids) == 4


def test_how_tests_ended(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text("""<testsuites><testsuite>
<testcase classname="test_a" name="test_it"/>
<testcase classname="test_a" name="test_failing"><failure/></testcase>
<testcase classname="test_a" name="test_failing"/>
<testcase classname="test_a" name="test_ending"/>
<testcase classname="test_a" name="test_ending"><error/></testcase>
<testcase classname="test_a" name="test_skipped"><skipped/></testcase>
<testcase classname="" name="test_b"><error message="collection failure"/></testcase>
</testsuite></testsuites>""")
    record = TestRecord(nodeid="test_a.py::test_it", device=CPU)
    assert ab.read_ended(junit, SavedRun(records=(record,), datetime="")) == {
        "test_a.py::test_it": "passed",
        "test_a::test_failing": "failed",
        "test_a::test_ending": "failed",
        "test_a::test_skipped": "skipped",
        "test_b": "failed",
    }


@pytest.mark.parametrize("text", [None, "", "<testsuites>", "no XML"])
def test_a_report_that_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    junit = tmp_path / "01-BASE.xml"
    if text is not None:
        junit.write_text(text)
    with pytest.raises(BadFile, match=r"pytest's own report 01-BASE\.xml cannot be read \("):
        ab.read_ended(junit, SavedRun(records=(), datetime=""))


# what is printed


def judgement(outcome: Outcome, compared: bool = True) -> Judgement:
    change = Change(1.0, None, "median", 0.01) if compared else None
    return Judgement(f"test_{outcome.value}", "f\n", outcome, "so", change)


def test_the_worst_comes_first() -> None:
    found = ab.report_lines([judgement(outcome) for outcome in Outcome])
    assert found == [
        "FAIL          test_fail [f\\n]: so",
        "INVALID       test_invalid [f\\n]: so",
        "INCONCLUSIVE  test_inconclusive [f\\n]: so",
        "NOT JUDGED    test_not judged [f\\n]: so",
        "PASS          test_pass [f\\n]: so",
        "gpu_bench: 5 measurements compared: 1 fail, 1 invalid, 1 inconclusive, 1 not judged, 1 pass",
    ]


@pytest.mark.parametrize(
    ("judgements", "status"),
    [
        ([], 2),
        ([judgement(Outcome.NOT_JUDGED, compared=False), judgement(Outcome.INVALID, compared=False)], 2),
        ([judgement(Outcome.PASS), judgement(Outcome.NOT_JUDGED, compared=False)], 0),
        ([judgement(Outcome.INCONCLUSIVE)], 0),
        ([judgement(Outcome.PASS), judgement(Outcome.FAIL)], 1),
        ([judgement(Outcome.FAIL, compared=False)], 1),
    ],
)
def test_the_exit_status(judgements: list[Judgement], status: int) -> None:
    assert ab.exit_status(judgements) == status


# all of it, with pytest itself


TESTS = """
import pytest
from kernels.fast import SPEED
from pytest_gpubench import scripted

@scripted([10.0 * SPEED])
def kernel(x): return x

@scripted([5.0])
def steady(x): return x

@scripted([30.0])
def reference(x): return x

def test_slower(gpu_bench): gpu_bench(kernel, 1)
def test_as_before(gpu_bench): gpu_bench(steady, 1)
@pytest.mark.parametrize("size", ["4/8"])
def test_speedup(gpu_bench, size):
    import torch
    gpu_bench.compare(kernel, reference, (torch.ones(3),))
"""


def test_two_commits_with_pytest_itself(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The package is on the path of the working tree, too, and both commits import their own all the same."""
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    commit(git, {"kernels/__init__.py": "", "kernels/fast.py": "SPEED = 1.0", "tests/test_a.py": TESTS})
    git("tag", "old")
    commit(
        git,
        {
            "kernels/fast.py": "SPEED = 1.06",
            "tests/test_b.py": "def test_new(gpu_bench): pass\n",
            "tests/test_a.py": TESTS + "\n# a comment\n",
        },
    )
    Path("kernels/fast.py").write_text("SPEED = 100.0")
    options = ["--gpu-bench-timer=scripted", "-p", "no:benchmark", "-p", "no:randomly"]
    assert call("old", "main", "--rounds", "1", "--", "tests", *options) == 1
    out = capsys.readouterr().out
    print(out)
    assert re.search(r"^FAIL +tests/test_a.py::test_slower \[kernel\]: is slower: 1\.060x", out, re.MULTILINE)
    assert re.search(
        r"^FAIL +tests/test_a.py::test_speedup\[4/8\] \[kernel\]: is slower: 1\.060x \S+ \S+ by the speedup",
        out,
        re.MULTILINE,
    )
    assert re.search(r"^PASS +tests/test_a.py::test_as_before \[steady\]: is not slower: 1\.000x", out, re.MULTILINE)
    assert re.search(r"^NOT JUDGED +tests\S*test_new\S*: HEAD alone has it: a new test", out, re.MULTILINE)
    assert left(tmp_path) == []
    assert Path("kernels/fast.py").read_text() == "SPEED = 100.0"
