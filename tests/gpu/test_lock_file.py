"""Lock files of several users, and strange files in their place."""

import fcntl
import itertools
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.gpu.lock_file import LockFile, lock_folder
from tests.gpu.holding import Start, refusal

LOCK_HEADER = b"pytest-gpubench lock\n"
NAME = "GPU-1.turn"

OTHER_USER = """
os.umask(0o077)
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
assert LockFile(folder, "GPU-1.turn").try_acquire()
print("held")
"""


def is_free(folder: Path) -> bool:
    file = LockFile(folder, NAME)
    taken = file.try_acquire()
    file.release()
    return taken


def test_all_users_can_lock_whatever_the_umask(folder: Path) -> None:
    umask = os.umask(0o077)
    try:
        assert is_free(folder)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o666}
    folder.chmod(0o700)
    assert is_free(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "that of a folder that was there is left"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become two other users")
def test_two_users_take_turns(start: Start) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        os.chmod(parent, 0o1777)
        for user in (65534, 12345, 0):
            process = start(OTHER_USER, Path(parent, "locks"), user)
            assert process.communicate(timeout=100) == ("held\n", "")


def test_a_file_that_is_there_is_opened_without_creating(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With O_CREAT, Linux refuses files of other users in such a folder (fs.protected_regular)."""
    assert is_free(folder)
    flags: list[int] = []
    open_plainly = os.open

    def record(path: str, flag: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        flags.append(flag)
        return open_plainly(path, flag, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", record)
    assert is_free(folder)
    assert flags
    assert not any(flag & os.O_CREAT for flag in flags)


def test_a_planted_folder_link_is_refused(tmp_path: Path, folder: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    folder.symlink_to(target)
    with pytest.raises(BadRequest, match=r"the lock folder \S+ is a symbolic link, which is not followed: remove it, "):
        LockFile(folder, NAME).try_acquire()
    assert list(target.iterdir()) == []


def plant(link: Callable[[Path, Path], object], path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(LOCK_HEADER)
    link(path, other)


def seen(folder: Path) -> dict[str, tuple[int, ...]]:
    found = {path.name: path.lstat() for path in folder.iterdir()}
    return {name: (status.st_size, status.st_mode, status.st_ino) for name, status in found.items()}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_text("precious"), "is a file of somebody else: remove it, or give another folder"),
        (partial(plant, Path.hardlink_to), "is a hard link to a file that has another name, too: remove it"),
        (partial(plant, Path.symlink_to), r"GPU-1\.turn is a symbolic link, which is not followed: remove it, or give"),
        (lambda path: path.symlink_to("missing"), r"GPU-1\.turn is a symbolic link"),
        (os.mkfifo, "is not a regular file: remove it"),
        (os.mkdir, "cannot be used .Is a directory."),
    ],
)
def test_a_foreign_file_is_refused_and_left_as_it_is(
    folder: Path, make: Callable[[Path], object], sentence: str
) -> None:
    folder.mkdir()
    make(folder / NAME)
    before = seen(folder)
    with pytest.raises(BadRequest, match=sentence):
        LockFile(folder, NAME).try_acquire()
    assert seen(folder) == before


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BadRequest, match=r"the lock folder \S+file is not a folder: remove it"):
        LockFile(file, NAME).try_acquire()
    with pytest.raises(BadRequest, match=r"cannot be used \(No such file or directory\): give another with --gpu-benc"):
        LockFile(tmp_path / "missing" / "locks", NAME).try_acquire()

    fail_to_open(monkeypatch, itertools.repeat(PermissionError(13, "Permission denied")))
    with pytest.raises(BadRequest, match=r"cannot be used \(Permission denied\): give another"):
        LockFile(tmp_path, NAME).try_acquire()


def test_a_folder_without_locks_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(BadRequest, match=r"is on a file system without locks .*Function not implemented"):
        LockFile(folder, NAME).try_acquire()


@pytest.mark.parametrize(
    ("error", "is_refused"), [(FileNotFoundError(2, "gone"), False), (OSError(116, "Stale"), True)]
)
def test_a_file_that_cannot_be_seen_any_more_is_not_taken_for_a_lack_of_locks(
    error: OSError, is_refused: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, follow_symlinks: bool = True) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("os.stat", refuse)
        with (
            pytest.raises(BadRequest, match=r"^the lock folder \S+ cannot be used \(Stale\)")
            if is_refused
            else nullcontext()
        ):
            assert not LockFile(folder, NAME).try_acquire()
    assert is_free(folder)


def fail_to_open(monkeypatch: pytest.MonkeyPatch, errors: Iterable[OSError]) -> None:
    """Have files in an open folder not be opened, or created, as long as there are errors."""
    plainly, failures = os.open, iter(errors)

    def racing(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and (error := next(failures, None)):
            raise error
        return plainly(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", racing)


@pytest.mark.parametrize("error", [PermissionError, FileExistsError, FileNotFoundError])
def test_a_file_that_another_is_just_making_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    attempts = 2 if error is not FileNotFoundError else 4  # one where it is opened, one where it is created
    fail_to_open(monkeypatch, [error() for _ in range(attempts)])
    assert is_free(folder)


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_lock_on_a_file_that_was_removed_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    """Two processes could hold one lock each if one of them had opened a file that was then cleaned away."""
    file, plainly = LockFile(folder, NAME), fcntl.flock

    def lose_and_lock(descriptor: int, operation: int) -> None:
        file.path.rename(file.path.with_name("cleaned away"))
        if made_anew:
            file.path.write_bytes(b"")
        plainly(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lose_and_lock)
    assert not file.try_acquire()
    monkeypatch.undo()
    assert file.try_acquire()
    file.release()


def test_names_stay_in_the_folder(folder: Path) -> None:
    assert LockFile(folder, "MIG-GPU-1/2/0.turn").path == folder / "MIG-GPU-1_2_0.turn"
    assert LockFile(folder, "../x").path.parent == folder


def test_the_folder_is_in_the_temp_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert lock_folder() == tmp_path / "pytest-gpubench-locks"
    assert lock_folder("x") == Path.cwd() / "x", "one file has one path: a process does not wait for itself"
    assert lock_folder("x", tmp_path) == tmp_path / "x"
    assert lock_folder("/x", tmp_path) == Path("/x")
    assert lock_folder("~/x", tmp_path) == Path.home() / "x"
    with pytest.raises(BadRequest, match=r"the lock folder ~nosuchuser/x is that of a user who is not known here: gi"):
        lock_folder("~nosuchuser/x")


NO_NOTES = [b"", LOCK_HEADER, LOCK_HEADER + b"{", LOCK_HEADER + b'{"pid": "x"}', LOCK_HEADER + b"[" * 4000]


@pytest.mark.parametrize("text", [*NO_NOTES, b"\xff"])
def test_a_holder_without_a_note_is_told_so(folder: Path, text: bytes) -> None:
    folder.mkdir()
    file = LockFile(folder, NAME)
    assert file.holder() is None
    file.path.write_bytes(text)
    assert file.holder() is None
    if text in NO_NOTES:
        assert "GPU-1, held by a process that does not say who it is" in refusal(file, text)
