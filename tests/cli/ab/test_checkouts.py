"""Checkouts of the two commits: their content, and that nothing else is left behind."""

import signal
from pathlib import Path

import pytest

from pytest_gpubench import BadRequest
from tests.cli.ab.faked import FakePytest, Git, call, commit, left


def test_a_folder_that_one_commit_lacks(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(git, {"us": "10"})
    Path("new").mkdir()
    monkeypatch.chdir("new")
    with pytest.raises(BadRequest, match="BASE has no folder new: run this in one that both commits have"):
        call("main")
    assert left(tmp_path) == []


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
    commit(git, {"us": "10", ".gitmodules": ""})
    assert call("main", "--rounds", "1", "--keep") == 0
    (folder,) = left(tmp_path)
    said = capsys.readouterr().err
    assert (f"kept: {folder}" in said, "submodules are not checked out" in said) == (True, True)
    names = {path.name for path in folder.iterdir()}
    assert {"base", "01-BASE.json", "01-BASE.notes", "01-BASE.log", "04-BASE.json"} <= names
    git("worktree", "remove", "--force", str(folder / "base"))


def test_a_worktree_of_the_users_that_is_not_mounted_stays(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    commit(git, {"us": "10"})
    mine = tmp_path / "mine"
    git("worktree", "add", str(mine), "-b", "topic")
    mine.rename(tmp_path / "elsewhere")
    assert call("main", "HEAD", "--rounds", "1") == 0
    (tmp_path / "elsewhere").rename(mine)
    assert git("-C", str(mine), "branch", "--show-current") == "topic"


# the tests of HEAD for both


@pytest.mark.parametrize("folder", [".", "{}"])
def test_heads_tests_run_on_both(folder: str, git: Git, fake: FakePytest, tmp_path: Path) -> None:
    """Nothing is removed from the working tree, where tests may not be committed yet."""
    commit(git, {"us": "10", "tests/test_a.py": "old", "tests/gone.py": ""})
    git("rm", "--quiet", "tests/gone.py")
    Path("tests/test_a.py").write_text("new")
    path = f"{folder.format(Path.cwd())}/tests"
    assert call("main", "--rounds", "1", "--tests", path, "--keep") == 0
    (tests,) = tmp_path.glob("tmp/*/base/tests")
    for place in (tests, Path("tests")):
        assert {path.name: path.read_text() for path in place.iterdir()} == {"test_a.py": "new"}


@pytest.mark.parametrize("path", ["nowhere", "..", "../repository", ".", "/etc/hosts"])
def test_tests_that_are_not_there(git: Git, path: str) -> None:
    commit(git, {"us": "10"})
    with pytest.raises(BadRequest, match=f"--tests {path}: it names no file or folder within HEAD, the working tree"):
        call("main", "--tests", path)
    assert Path("us").exists()


def test_tests_behind_a_link_that_leads_out(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    precious = tmp_path / "outside" / "unit" / "precious"
    precious.parent.mkdir(parents=True)
    precious.touch()
    Path("tests").symlink_to(tmp_path / "outside")
    commit(git, {"us": "10"})
    Path("tests").unlink()
    commit(git, {"tests/unit/a.py": ""})
    with pytest.raises(BadRequest, match="--tests tests/unit: in BASE a link on the way leads out of it; name the li"):
        call("HEAD~1", "HEAD", "--tests", "tests/unit")
    assert precious.exists()
    assert call("HEAD~1", "HEAD", "--rounds", "1", "--tests", "tests") == 0
    assert precious.exists()


# the repository: what is not there is said, and what to do


def test_without_a_repository_or_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadRequest, match=r"is not in the working tree of a git repository \(fatal: .*\): run this whe"):
        call("main")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadRequest, match="git is not installed, or not on PATH"):
        call("main")


@pytest.mark.parametrize("revision", ["topic", "0123456789", "", "main:us", "main..main", "main...main"])
def test_an_unknown_commit(git: Git, tmp_path: Path, revision: str) -> None:
    commit(git, {"us": "10"})
    remedy = "give two commits with a space between them" if ".." in revision else "fetch it first"
    with pytest.raises(BadRequest, match=rf"'{revision}' names no commit of .*repository: {remedy}"):
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


def test_three_dots_name_the_commit_where_head_left_a_branch(
    git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]
) -> None:
    """What main gained since then is not HEAD's to answer for."""
    left_at = commit(git, {"us": "10"})
    git("switch", "--quiet", "--create", "topic")
    commit(git, {"us": "10", "new": ""})
    git("switch", "--quiet", "main")
    commit(git, {"us": "5"})
    assert call("main...", "topic", "--rounds", "1") == 0
    assert f"BASE is main... ({left_at[:8]})" in capsys.readouterr().err
    git("switch", "--quiet", "--orphan", "other")
    commit(git, {"us": "11"})  # of the same second, with the same files, it would be the same commit
    with pytest.raises(BadRequest, match="main and HEAD have no commit in common: fetch the whole history"):
        call("main...")


def test_a_package_on_the_path_of_the_working_tree_does_not_win(
    git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(git, {"us": "10", "src/package/__init__.py": ""})
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd() / "src"))
    monkeypatch.setenv("GIT_DIR", str(Path.cwd() / "elsewhere"))  # as inside of a hook of git
    monkeypatch.setenv("GIT_INDEX_FILE", str(Path.cwd() / "index"))
    call("main", "HEAD", "--rounds", "1")
    assert not any("GIT_DIR" in environment for environment in fake.environments)
    assert [each["PYTHONPATH"] for each in fake.environments] == [f"{each}:{each / 'src'}" for each in fake.folders]
