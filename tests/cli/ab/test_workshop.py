"""What is checked out, what is kept, and that nothing else is left."""

import signal
from pathlib import Path

import pytest

from pytest_gpubench.errors import BadRequest
from tests.cli.ab.faked import FakePytest, Git, call, commit, left


def test_a_folder_that_one_commit_lacks(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(git, {"us": "10"})
    Path("new").mkdir()
    monkeypatch.chdir("new")
    with pytest.raises(BadRequest, match="BASE has no folder new: run ab in one that both commits have"):
        call("main")
    assert left(tmp_path) == []


def test_submodules_are_not_there(git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10", ".gitmodules": ""})
    call("main", "--rounds", "1")
    assert "submodules are not checked out" in capsys.readouterr().err


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
