"""Real lock files, real processes that contend for them, die with them, and find strange files in their place."""

import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_gpubench.errors import BadRequest, DeviceUnavailable
from pytest_gpubench.gpu import lock as module
from pytest_gpubench.gpu.lock import (
    HEADER,
    GpuLock,
    Holder,
    LockFile,
    Patience,
    command_line,
    default_folder,
    pid_namespace,
    shorten,
    start_of,
)
from tests.gpu.holding import held

HOLDER = """
import sys
from pathlib import Path
from pytest_gpubench.gpu.lock import GpuLock, Holder
folder, *uuids = sys.argv[1:]
lock = GpuLock(uuids, Path(folder), Holder.of_this_process("test_x", "pytest -n 2 tests"))
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""

CONTENDER = """
import os, sys
from pathlib import Path
from pytest_gpubench.gpu.lock import GpuLock
folder, times, *sets = sys.argv[1:]
for number in range(int(times)):
    uuids = sets[number % len(sets)].split("+")
    lock = GpuLock(uuids, Path(folder))
    lock.acquire(60)
    marks = [Path(folder, f"in-use-{uuid}") for uuid in uuids]
    for mark in marks:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    for mark in marks:
        mark.unlink()
    lock.release()
"""

FORKING = """
import os, sys
from pathlib import Path
from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.lock import GpuLock, LockFile
folder = Path(sys.argv[1])
def is_held():
    turn = LockFile(folder, "GPU-1.turn")
    held = not turn.try_acquire()
    turn.release()
    return held
lock = GpuLock("GPU-1", folder)
lock.acquire(0)
child = os.fork()
if child == 0:
    try:
        GpuLock("GPU-1", folder).acquire(0)
    except DeviceUnavailable:
        print("child: held by parent", flush=True)
    lock.release()
    os._exit(0)
os.waitpid(child, 0)
print("parent:", "held" if is_held() else "free")
lock.release()
print("parent:", "held" if is_held() else "free")
"""

OUTLIVED = """
import os, sys
from pathlib import Path
from pytest_gpubench.gpu.lock import GpuLock
lock = GpuLock("GPU-1", Path(sys.argv[1]))
lock.acquire(0)
if os.fork() == 0:
    sys.stdin.readline()
    os._exit(0)
lock.release()
print("released", flush=True)
os.wait()
"""

OTHER_USER = """
import os, sys
from pathlib import Path
from pytest_gpubench.gpu.lock import GpuLock
os.umask(0o077)
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
GpuLock("GPU-1", Path(sys.argv[1])).acquire(0)
print("held")
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python with a script; what is still running at the end is killed and waited for."""
    processes: list[subprocess.Popen[str]] = []

    def run(script: str, *arguments: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", script, *map(str, arguments)]
        processes.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def hold_elsewhere(start: Start, folder: Path, *uuids: str) -> "subprocess.Popen[str]":
    process = start(HOLDER, folder, *uuids)
    assert hear(process) == "held\n"
    return process


def hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def is_free(folder: Path, *uuids: str) -> bool:
    try:
        with held(GpuLock(uuids, folder), 0):
            return True
    except DeviceUnavailable:
        return False


# taking turns


def test_a_gpu_is_held_by_one_process(folder: Path, start: Start) -> None:
    other = hold_elsewhere(start, folder, "GPU-1")
    assert not is_free(folder, "GPU-1")
    assert is_free(folder, "GPU-2")
    tell(other)
    assert hear(other) == "released\n"
    assert is_free(folder, "GPU-1")


def test_who_is_waited_for_is_said_once(folder: Path, start: Start) -> None:
    other = hold_elsewhere(start, folder, "GPU-1")
    said: list[str] = []
    now_s = iter(range(100))
    patience = Patience(5, said.append, say_after_s=2, clock=lambda: next(now_s), pause=lambda _: None)
    holder = rf"GPU-1, held by pid {other.pid} of \S+ \(pytest -n 2 tests, test_x, since \d\d:\d\d:\d\d\)"
    with pytest.raises(DeviceUnavailable, match=rf"waited \d+ s for {holder}: wait longer with --gpu-bench-lock-tim"):
        GpuLock("GPU-1", folder).acquire(patience=patience)
    assert len(said) == 1
    assert re.fullmatch(f"waiting for {holder}", said[0])


def test_waiting_ends_when_the_holder_is_done(folder: Path, start: Start) -> None:
    other = hold_elsewhere(start, folder, "GPU-1")
    patience = Patience(60, lambda _: tell(other), say_after_s=0)
    lock = GpuLock("GPU-1", folder)
    assert 0 < lock.acquire(patience=patience) < 60
    assert hear(other) == "released\n"
    lock.release()


@pytest.mark.parametrize(("timeout_s", "naps"), [(0, 0), (1, 1), (3, 3)])
def test_waiting_ends_with_the_time(timeout_s: float, naps: int) -> None:
    now_s = 0.0

    def pause(_: float) -> None:
        nonlocal now_s
        now_s += 1

    with pytest.raises(DeviceUnavailable, match=f"waited {timeout_s} s for a nap"):
        Patience(timeout_s, print, clock=lambda: now_s, pause=pause).wait_until(lambda: "a nap")
    assert now_s == naps


def test_without_a_timeout_waiting_goes_on() -> None:
    attempts = iter([*["GPU-1, held"] * 2000, None])
    Patience(None, print, clock=lambda: 0.0, pause=lambda _: None).wait_until(lambda: next(attempts))
    assert next(attempts, "none") == "none"


def test_every_obstacle_is_said_when_it_changes() -> None:
    said: list[str] = []
    attempts = iter(["a", "a", "b", "a", None])
    patience = Patience(None, said.append, say_after_s=0, clock=lambda: 0.0, pause=lambda _: None)
    patience.wait_until(lambda: next(attempts))
    assert said == ["waiting for a", "waiting for b", "waiting for a"]


def test_a_newcomer_stands_behind_who_is_next(folder: Path) -> None:
    """Without this, a worker that gives its GPU back and takes it again starves those that wait for it."""
    place = LockFile(folder, "GPU-1.next")
    assert place.try_acquire(Holder.of_this_process("test_y"))
    with pytest.raises(DeviceUnavailable, match=rf"GPU-1, next taken by pid {os.getpid()} .*test_y"):
        GpuLock("GPU-1", folder).acquire(0)
    place.release()
    assert is_free(folder, "GPU-1")


def test_a_process_that_has_its_gpu_takes_it_again(folder: Path) -> None:
    first, second = GpuLock("GPU-1", folder), GpuLock("GPU-1", folder)
    first.acquire(0)
    second.acquire(0)
    second.acquire(0)
    first.release()
    second.release()
    assert not LockFile(folder, "GPU-1.turn").try_acquire()
    second.release()
    assert is_free(folder, "GPU-1")
    with pytest.raises(RuntimeError, match="GPU-1 was given back without being held"):
        second.release()


def test_a_forked_child_does_not_hold_what_its_parent_holds(folder: Path, start: Start) -> None:
    """The child asks anew, and its release leaves the parent's lock alone."""
    process = start(FORKING, folder)
    assert process.communicate(timeout=100) == ("child: held by parent\nparent: held\nparent: free\n", "")


def test_a_child_that_lives_on_does_not_keep_what_was_given_back(folder: Path, start: Start) -> None:
    process = start(OUTLIVED, folder)
    assert hear(process) == "released\n"
    assert is_free(folder, "GPU-1")
    tell(process)


# several GPUs


def test_several_gpus_are_all_or_nothing(folder: Path, start: Start) -> None:
    other = hold_elsewhere(start, folder, "GPU-2")
    with pytest.raises(DeviceUnavailable, match="for GPU-2, held by pid"):
        GpuLock(["GPU-1", "GPU-2", "GPU-3"], folder).acquire(0)
    assert is_free(folder, "GPU-1")
    assert is_free(folder, "GPU-3")
    tell(other)
    assert hear(other) == "released\n"
    with held(GpuLock(["GPU-3", "GPU-1", "GPU-2", "GPU-1"], folder), 0):
        assert not any(LockFile(folder, f"GPU-{number}.turn").try_acquire() for number in (1, 2, 3))
    assert is_free(folder, "GPU-1", "GPU-2", "GPU-3")


def test_nothing_is_held_while_others_are_waited_for(folder: Path, start: Start) -> None:
    other = hold_elsewhere(start, folder, "GPU-2")
    seen: list[bool] = []

    def look(_: str) -> None:
        turn = LockFile(folder, "GPU-1.turn")
        seen.append(turn.try_acquire())
        turn.release()
        tell(other)

    lock = GpuLock(["GPU-1", "GPU-2"], folder)
    lock.acquire(patience=Patience(60, look, say_after_s=0))
    lock.release()
    assert seen == [True]


def test_more_gpus_than_are_held_are_refused(folder: Path) -> None:
    """Waiting for one GPU while holding another is how two tests would wait for each other."""
    with held(GpuLock(["GPU-1", "GPU-2"], folder), 0):
        with held(GpuLock("GPU-2", folder), 0):
            pass
        with pytest.raises(BadRequest, match="holds GPU-1, GPU-2 and asks for GPU-2, GPU-3: GPUs are taken all at on"):
            GpuLock(["GPU-2", "GPU-3"], folder).acquire(0)
        with pytest.raises(BadRequest):
            GpuLock(["GPU-3"], folder).acquire(0)
        assert not LockFile(folder, "GPU-2.turn").try_acquire()
    assert is_free(folder, "GPU-1", "GPU-2", "GPU-3")


def test_overlapping_sets_in_any_order_come_to_an_end(folder: Path, start: Start) -> None:
    """No deadlock, and never two on one GPU: each makes a file for each GPU that must not be there."""
    folder.mkdir()
    orders = [("a+b", "b+c"), ("b+a", "c"), ("c+a", "b"), ("c+b+a", "a")]
    processes = [start(CONTENDER, folder, 60, *sets) for sets in orders]
    outcomes = [(*process.communicate(timeout=100), process.returncode) for process in processes]
    assert outcomes == [("", "", 0)] * 4
    assert is_free(folder, "a", "b", "c")


# crashes and notes


def test_a_crash_frees_the_gpus_and_its_note_does_not_lie(folder: Path, start: Start) -> None:
    other = hold_elsewhere(start, folder, "GPU-1", "GPU-2")
    other.send_signal(signal.SIGKILL)
    other.wait()
    turn = LockFile(folder, "GPU-1.turn")
    holder = turn.holder()
    assert holder is not None
    assert (holder.pid, holder.has_ended) == (other.pid, True)
    assert "held by an unnamed process, perhaps a child of pid" in module.describe(turn)
    assert is_free(folder, "GPU-1", "GPU-2")
    assert turn.holder() is None


def test_a_lock_that_is_given_back_names_nobody(folder: Path) -> None:
    turn = LockFile(folder, "GPU-1.turn")
    with held(GpuLock("GPU-1", folder), 0):
        holder = turn.holder()
        assert holder is not None
        assert (holder.pid, holder.has_ended, holder.is_local) == (os.getpid(), False, True)
    assert turn.holder() is None
    assert turn.path.read_bytes() == HEADER


def note(**changes: object) -> Holder:
    values: dict[str, object] = dict.fromkeys(("user", "command", "test"), "x")
    values |= {"pid": os.getpid(), "started": start_of(os.getpid()), "namespace": pid_namespace(), "since_s": 0.0}
    return Holder(**(values | {"host": os.uname().nodename} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "local", "ended"),
    [
        ({}, True, False),
        ({"pid": 2**30}, True, True),
        ({"started": 1}, True, True),  # the number was used again
        ({"started": None}, True, False),
        ({"host": "elsewhere", "pid": 2**30}, False, False),
        ({"namespace": "pid:[1]", "pid": 2**30}, False, False),
        ({"namespace": None}, False, False),
    ],
)
def test_what_is_known_of_a_holder(changes: dict[str, object], local: bool, ended: bool) -> None:
    holder = note(**changes)
    assert (holder.is_local, holder.has_ended) == (local, ended)
    assert ("in a container there" in str(holder)) == (not local)


def test_a_note_cannot_write_on_the_terminal() -> None:
    text = str(note(command="\x1b[2J" + "x" * 500, user="a\nb", since_s=1e300))
    assert text.isprintable()
    assert len(text) < 300
    assert "since an unknown time" in text


@pytest.mark.parametrize("text", [b"", HEADER, HEADER + b"{", HEADER + b'{"pid": "x"}', HEADER + b"[" * 4000, b"\xff"])
def test_a_note_that_is_none(folder: Path, text: bytes) -> None:
    folder.mkdir()
    file = LockFile(folder, "GPU-1.turn")
    assert file.holder() is None
    file.path.write_bytes(text)
    assert file.holder() is None
    assert "held by a process that does not say who it is" in module.describe(file)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["/usr/bin/pytest", "-n", "2"], "pytest -n 2"),
        (["/lib/pytest/__main__.py", "tests"], "pytest tests"),
        (["-c"], "-c"),
        ([], "python"),
    ],
)
def test_a_command_is_written_as_it_was_typed(arguments: list[str], text: str) -> None:
    assert command_line(arguments) == text


@pytest.mark.parametrize(("length", "cut"), [(80, False), (81, True)])
def test_long_texts_are_cut(length: int, cut: bool) -> None:
    assert shorten("x" * length).endswith("…") == cut
    assert len(shorten("x" * length)) == 80


# files and folders


def test_all_users_can_lock_whatever_the_umask(folder: Path) -> None:
    umask = os.umask(0o077)
    try:
        assert is_free(folder, "GPU-1")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o666}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become two other users")
def test_two_users_take_turns(start: Start) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o1777)
        for user in (65534, 12345, 0):
            process = start(OTHER_USER, Path(parent, "locks"), user)
            assert process.communicate(timeout=100) == ("held\n", "")


def test_the_mode_of_a_folder_that_was_there_is_left(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    assert is_free(folder, "GPU-1")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_file_that_is_there_is_opened_without_creating(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With O_CREAT, Linux refuses files of other users in such a folder (fs.protected_regular)."""
    assert is_free(folder, "GPU-1")
    flags: list[int] = []
    open_plainly = os.open

    def record(path: str, flag: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        flags.append(flag)
        return open_plainly(path, flag, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", record)
    assert is_free(folder, "GPU-1")
    assert flags
    assert not any(flag & os.O_CREAT for flag in flags)


def test_a_planted_folder_link_is_refused(tmp_path: Path, folder: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    folder.symlink_to(target)
    with pytest.raises(BadRequest, match=r"the lock folder \S+ is a symbolic link, which is not followed: remove it, "):
        GpuLock("GPU-1", folder).acquire(0)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("exists", [True, False])
def test_a_planted_file_link_is_refused(tmp_path: Path, folder: Path, exists: bool) -> None:
    folder.mkdir()
    target = tmp_path / "precious"
    if exists:
        target.write_text("precious")
    (folder / "GPU-1.turn").symlink_to(target)
    with pytest.raises(BadRequest, match=r"GPU-1\.turn is a symbolic link, which is not followed: remove it, or give"):
        GpuLock("GPU-1", folder).acquire(0)
    assert target.exists() == exists
    assert not exists or target.read_text() == "precious"


def plant_file(path: Path) -> None:
    path.write_text("precious")


def plant_hard_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(HEADER)
    path.hardlink_to(other)


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (plant_file, "is a file of somebody else: remove it, or give another folder"),
        (plant_hard_link, "is a hard link to a file that has another name, too: remove it"),
        (os.mkfifo, "is not a regular file: remove it"),
        (os.mkdir, "cannot be used .Is a directory."),
    ],
)
def test_a_foreign_file_is_refused_and_left_as_it_is(
    folder: Path, plant: Callable[[Path], None], sentence: str
) -> None:
    folder.mkdir()
    path = folder / "GPU-1.turn"
    plant(path)
    before = path.stat()
    with pytest.raises(BadRequest, match=sentence):
        GpuLock("GPU-1", folder).acquire(0)
    after = path.stat()
    assert (after.st_size, after.st_mode, after.st_ino) == (before.st_size, before.st_mode, before.st_ino)


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BadRequest, match=r"the lock folder \S+file is not a folder: remove it"):
        GpuLock("GPU-1", file).acquire(0)
    with pytest.raises(BadRequest, match=r"cannot be used \(No such file or directory\): give another with --gpu-benc"):
        GpuLock("GPU-1", tmp_path / "missing" / "locks").acquire(0)

    def refuse(name: str, folder: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "open_or_create", refuse)
    with pytest.raises(BadRequest, match=r"cannot be used \(Permission denied\): give another"):
        GpuLock("GPU-1", tmp_path).acquire(0)


def test_a_folder_without_locks_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(BadRequest, match=r"is on a file system without locks .*Function not implemented"):
        LockFile(folder, "GPU-1.turn").try_acquire()


@pytest.mark.parametrize("error", [PermissionError, FileExistsError, FileNotFoundError])
def test_a_file_that_another_is_just_making_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    plainly, failures = module.open_or_create, [error(), error()]

    def racing(name: str, folder: int) -> int:
        if failures:
            raise failures.pop()
        return plainly(name, folder)

    monkeypatch.setattr(module, "open_or_create", racing)
    assert is_free(folder, "GPU-1")


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_lock_on_a_file_that_was_removed_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    """Two processes could hold one lock each if one of them had opened a file that was then cleaned away."""
    file, plainly = LockFile(folder, "GPU-1.turn"), module.open_lock_file

    def open_and_lose(path: Path) -> int:
        descriptor = plainly(path)
        path.rename(path.with_name("cleaned away"))
        if made_anew:
            path.write_bytes(b"")
        return descriptor

    monkeypatch.setattr(module, "open_lock_file", open_and_lose)
    assert not file.try_acquire()
    monkeypatch.undo()
    assert file.try_acquire()
    file.release()


def test_names_stay_in_the_folder(folder: Path) -> None:
    assert LockFile(folder, "MIG-GPU-1/2/0.turn").path == folder / "MIG-GPU-1_2_0.turn"
    assert LockFile(folder, "../x").path.parent == folder


def test_the_folder_is_in_the_temp_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert default_folder() == tmp_path / "pytest-gpubench-locks"
