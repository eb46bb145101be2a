"""What is run in both trees, and what goes wrong in it."""

import sys
from pathlib import Path

import pytest

from pytest_gpubench.errors import BadRequest
from tests.cli.ab.faked import FakePytest, Git, call, commit, left


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
