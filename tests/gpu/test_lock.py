"""GPU locks between real processes: contention, waiting and crashes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench import BadRequest, DeviceUnavailable
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import GpuLock, Patience, turns_to_hand_over
from pytest_gpubench.gpu.lock_file import LockFile
from pytest_gpubench.gpu.turn import turn_at
from pytest_gpubench.settings import Settings
from tests.gpu.holding import IMPORTS, Start, hear, held, refusal, tell

LOCK_HEADER = b"pytest-gpubench lock\n"
HOLDER = """
lock = GpuLock(sys.argv[2:], folder, Holder.of_this_process("test_x", "pytest -n 2 tests"))
lock.acquire(Patience())
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""

CONTENDER = """
times, *sets = sys.argv[2:]
for number in range(int(times)):
    uuids = sets[number % len(sets)].split("+")
    lock = GpuLock(uuids, folder)
    lock.acquire(Patience(60))
    marks = [Path(folder, f"in-use-{uuid}") for uuid in uuids]
    for mark in marks:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    for mark in marks:
        mark.unlink()
    lock.release()
"""

FORKING = """
lock, (ready, is_ready) = GpuLock("GPU-1", folder), os.pipe()
lock.acquire(Patience(0))
if os.fork() == 0:
    try:
        GpuLock("GPU-1", folder).acquire(Patience(0))
    except DeviceUnavailable:
        print("child: held by parent", flush=True)
    lock.release()
    os.kill(os.getppid(), 9) if sys.argv[2:] else os.write(is_ready, b"!")
    sys.stdin.readline()
    os._exit(0)
os.read(ready, 1)
print("parent:", "free" if LockFile(folder, "GPU-1.turn").try_acquire() else "held", flush=True)
lock.release()
print("parent: released", flush=True)
os.wait()
"""


HEIR = f"""{IMPORTS}
take_over_turns(json.loads(sys.argv[2]))
lock = GpuLock("GPU-1", folder)
try:
    lock.acquire(Patience(0))
    lock.release()
    print("held")
except DeviceUnavailable:
    print("refused")
"""


def hold_elsewhere(start: Start, folder: Path, *uuids: str) -> "subprocess.Popen[str]":
    process = start(HOLDER, folder, *uuids)
    assert hear(process) == "held\n"
    return process


def is_free(folder: Path, *uuids: str) -> bool:
    try:
        with held(GpuLock(uuids, folder), 0):
            return True
    except DeviceUnavailable:
        return False


# taking turns


@pytest.mark.parametrize(("timeout_s", "naps"), [(0, 0), (1, 1), (3, 3)])
def test_waiting_ends_with_the_time(timeout_s: float, naps: int) -> None:
    seconds: list[float] = []
    patience = Patience(timeout_s, clock=lambda: len(seconds), pause=seconds.append)
    with pytest.raises(DeviceUnavailable, match=f"waited {timeout_s} s for a nap"):
        patience.wait_until(lambda: "a nap")
    assert len(seconds) == naps


def test_each_obstacle_has_a_time_of_its_own() -> None:
    """In a long queue of short tests no test fails, and nothing is said."""
    said: list[str] = []
    seconds: list[float] = []
    obstacles = iter(["a", "a", "b", "c", "c", "c", "b", None])
    Patience(3, said.append, 1, clock=lambda: len(seconds), pause=seconds.append).wait_until(lambda: next(obstacles))
    assert said == ["waiting for a", "waiting for c"]


def test_a_newcomer_stands_behind_who_is_next(folder: Path) -> None:
    """Without this, a worker that gives its GPU back and takes it again starves those that wait for it."""
    place = LockFile(folder, "GPU-1.next")
    assert place.try_acquire(Holder.of_this_process("test_y"))
    with pytest.raises(DeviceUnavailable, match=rf"GPU-1, next taken by pid {os.getpid()} .*test_y"):
        GpuLock("GPU-1", folder).acquire(Patience(0))
    place.release()
    assert is_free(folder, "GPU-1")


def test_a_process_that_has_its_gpu_takes_it_again(folder: Path) -> None:
    first, second = GpuLock("GPU-1", folder), GpuLock("GPU-1", folder)
    first.acquire(Patience(0))
    second.acquire(Patience(0))
    second.acquire(Patience(0))
    first.release()
    second.release()
    assert not LockFile(folder, "GPU-1.turn").try_acquire()
    second.release()
    assert is_free(folder, "GPU-1")


@pytest.mark.parametrize("how", [[], ["killed"]])
def test_a_forked_child_does_not_hold_what_its_parent_holds(folder: Path, start: Start, how: list[str]) -> None:
    """It asks anew, its release leaves the parent's lock alone, and where it lives on, it keeps nothing."""
    process = start(FORKING, folder, *how)
    for line in ("child: held by parent", *(() if how else ("parent: held", "parent: released"))):
        assert hear(process) == f"{line}\n"
    assert not how or process.wait() == -signal.SIGKILL
    assert is_free(folder, "GPU-1")
    tell(process)


# several GPUs


def test_several_gpus_are_all_or_nothing(folder: Path, start: Start) -> None:
    other = hold_elsewhere(start, folder, "GPU-2")
    with pytest.raises(DeviceUnavailable, match="for GPU-2, held by pid"):
        GpuLock(["GPU-1", "GPU-2", "GPU-3"], folder).acquire(Patience(0))
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
    assert 0 < lock.acquire(Patience(60, look, say_after_s=0)) < 60
    lock.release()
    assert seen == [True]


def test_more_gpus_than_are_held_are_refused(folder: Path) -> None:
    """Waiting for one GPU while holding another is how two tests would wait for each other."""
    turn = LockFile(folder, "GPU-2.turn")
    with held(GpuLock(["GPU-1", "GPU-2"], folder), 0):
        holder = turn.holder()
        assert holder is not None
        assert (holder.pid, holder.has_ended, holder.is_local) == (os.getpid(), False, True)
        with held(GpuLock("GPU-2", folder), 0):
            pass
        with pytest.raises(BadRequest, match="holds GPU-1, GPU-2 and asks for GPU-2, GPU-3: GPUs are taken all at on"):
            GpuLock(["GPU-2", "GPU-3"], folder).acquire(Patience(0))
        with pytest.raises(BadRequest):
            GpuLock(["GPU-3"], folder).acquire(Patience(0))
        with held(GpuLock("CPU-1", folder), 0), held(GpuLock("GPU-2", folder), 0), held(GpuLock("CPU-1", folder), 0):
            assert not LockFile(folder, "CPU-1.turn").try_acquire()
        assert not LockFile(folder, "GPU-2.turn").try_acquire()
    assert (turn.holder(), turn.path.read_bytes()) == (None, LOCK_HEADER), "it names nobody"
    assert is_free(folder, "GPU-1", "GPU-2", "GPU-3")
    with (
        held(GpuLock("CPU-1", folder), 0),
        pytest.raises(BadRequest, match=r"holds CPU-1 and asks for GPU-1: .* before"),
    ):
        GpuLock("GPU-1", folder).acquire(Patience(0))


def test_overlapping_sets_in_any_order_come_to_an_end(folder: Path, start: Start) -> None:
    """No deadlock, and never two on one GPU: each makes a file for each GPU that must not be there."""
    folder.mkdir()
    orders = [("a+b", "b+c"), ("b+a", "c"), ("c+a", "b"), ("c+b+a", "a")]
    processes = [start(CONTENDER, folder, 60, *sets) for sets in orders]
    outcomes = [(*process.communicate(timeout=100), process.returncode) for process in processes]
    assert outcomes == [("", "", 0)] * 4
    assert is_free(folder, "a", "b", "c")


@pytest.mark.parametrize(("rank", "held"), [("0", 1), ("1", 0)])
def test_of_the_ranks_of_a_job_the_first_holds_the_cpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rank: str, held: int
) -> None:
    """The others would wait for it while it waits for them in a collective."""
    monkeypatch.setenv("LOCAL_RANK", rank)
    with turn_at(cpu_device(), Settings(lock_folder=str(folder)), "a loop"):
        assert len(turns_to_hand_over()) == held


# crashes and notes


def test_a_crash_frees_the_gpus_and_its_note_does_not_lie(folder: Path, start: Start) -> None:
    other = hold_elsewhere(start, folder, "GPU-1", "GPU-2")
    other.send_signal(signal.SIGKILL)
    other.wait()
    turn = LockFile(folder, "GPU-1.turn")
    holder = turn.holder()
    assert holder is not None
    assert (holder.pid, holder.has_ended) == (other.pid, True)
    said = refusal(turn, turn.path.read_bytes())
    assert f"GPU-1, held by an unnamed process, perhaps a child of pid {other.pid}" in said
    turn.path.write_bytes(LOCK_HEADER + msgspec.json.encode(msgspec.structs.replace(holder, pid=os.getppid())))
    assert is_free(folder, "GPU-1", "GPU-2")
    assert turn.holder() is None


# handed over to a child


def heir(folder: Path, turns: dict[str, int]) -> str:
    """Return whether a child holds GPU-1 that is told of these lock files and inherits these descriptors."""
    command = [sys.executable, "-c", HEIR, str(folder), json.dumps(turns)]
    return subprocess.run(command, pass_fds=set(turns.values()), stdout=subprocess.PIPE, text=True).stdout.strip()


def test_a_child_holds_what_its_parent_hands_over(folder: Path) -> None:
    """The parent holds it still when the child has ended; the child takes and releases it as it likes."""
    with held(GpuLock("GPU-1", folder)):
        assert heir(folder, turns_to_hand_over()) == "held"
        assert not LockFile(folder, "GPU-1.turn").try_acquire()
        assert heir(folder, {}) == "refused"
    assert turns_to_hand_over() == {}
    assert is_free(folder, "GPU-1")


def test_a_forged_turn_lets_no_two_measure_at_once(folder: Path, tmp_path: Path, start: Start) -> None:
    """A descriptor of the lock's file that holds nothing, one of another file, and one that is not open."""
    hold_elsewhere(start, folder, "GPU-1")
    path = folder / "GPU-1.turn"
    for forged in (path, tmp_path / "other"):
        with forged.open("a") as file:
            assert heir(folder, {str(path): file.fileno()}) == "refused"
    assert not LockFile(folder, "GPU-1.turn").take_over(999)
