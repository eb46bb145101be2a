"""The repository: what is not there is said, and what to do."""

from pathlib import Path

import pytest

from pytest_gpubench.errors import BadRequest
from tests.cli.ab.faked import FakePytest, Git, call, commit, left


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
