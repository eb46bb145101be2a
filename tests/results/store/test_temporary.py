"""What a process that is killed while it saves leaves behind, and that nothing else is taken for it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_gpubench.results.store import Storage, write_run
from pytest_gpubench.results.store.temporary import ABANDONED_S, abandoned
from tests.results.saved import make_run
from tests.results.store.files import save

RUN = make_run(tests=2, reps=3)
KILLED = """
import os, signal, sys
from pathlib import Path
from pytest_gpubench.results.store import Storage, write_run
from tests.results.saved import make_run
os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)
run, root = make_run(tests=2, reps=3), Path(sys.argv[1])
Storage(root).save_each(run, "main") if sys.argv[2] == "storage" else write_run(run, root / "run.json")
"""


def kill_while_saving(root: Path, how: str) -> None:
    command = [sys.executable, "-c", KILLED, str(root), how]
    assert subprocess.run(command, cwd=Path(__file__).parents[3], check=False).returncode == -signal.SIGKILL


def age(path: Path, seconds: float) -> Path:
    """Make a file as old as that."""
    at_s = time.time() - seconds
    os.utime(path, (at_s, at_s), follow_symlinks=False)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_next_run_that_saves_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    kill_while_saving(tmp_path / "runs", "storage")
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert names(folder) == [".0001.tmp"]
    assert save(Storage(tmp_path / "runs"), RUN, "soon").name == "0002_soon.json"
    assert names(folder) == [".0001.tmp", "0002_soon.json"]  # it may be of somebody who is writing
    age(folder / ".0001.tmp", ABANDONED_S + 60)
    assert save(Storage(tmp_path / "runs"), RUN, "later").name == "0003_later.json"
    assert names(folder) == ["0002_soon.json", "0003_later.json"]


def test_a_file_that_is_written_again_removes_what_a_killed_run_left(tmp_path: Path) -> None:
    kill_while_saving(tmp_path, "file")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".gpu-bench-")
    write_run(RUN, tmp_path / "run.json")
    assert left.exists()
    age(left, ABANDONED_S + 60)
    write_run(RUN, tmp_path / "run.json")
    assert names(tmp_path) == ["run.json"]


OURS = (".gpu-bench-0123456789abcdef.tmp", ".0001.tmp", ".12345.tmp")
OTHERS = (
    ".001.tmp",
    "0001.tmp",
    ".0001.tmp.bak",
    ".0001.tmp~",
    ".0001.TMP",
    ".0001a.tmp",
    ".0001_main.json",
    ".\u0660\u0660\u0660\u0661.tmp",  # digits, and not those that we write
    ".gpu-bench-0123456789abcde.tmp",
    ".gpu-bench-0123456789abcdef0.tmp",
    ".gpu-bench-0123456789ABCDEF.tmp",
    ".gpu-bench-.tmp",
    "x.gpu-bench-0123456789abcdef.tmp",
    "notes.tmp",
    "0000_old.json",
)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(("seconds", "is_left"), [(ABANDONED_S - 60, False), (ABANDONED_S + 60, True), (-9e9, False)])
def test_ours_are_told_by_name_and_age(name: str, seconds: float, is_left: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.touch()
    age(path, seconds)
    assert abandoned(tmp_path) == ([path] if is_left else [])


def test_nobody_elses_file_is_removed_however_old(tmp_path: Path) -> None:
    folder = save(Storage(tmp_path), RUN, "main").parent
    for name in OTHERS:
        (folder / name).write_text("mine")
        age(folder / name, 9e8)
    for place in (folder, tmp_path):
        (place / ".0000.tmp").mkdir()
        age(place / ".0000.tmp", 9e8)
        (place / ".0001.tmp").symlink_to(folder / "notes.tmp")
        age(place / ".0001.tmp", 9e8)
    before = names(folder)
    assert abandoned(folder) == []
    saved = save(Storage(tmp_path), RUN, "again")
    write_run(RUN, folder / "run.json")
    assert names(folder) == sorted([*before, saved.name, "run.json"])


def test_a_claim_that_somebody_may_make_anew_stays(tmp_path: Path) -> None:
    """Above the newest run a number can be claimed at any time: between a look at an old claim and its removal, too."""
    folder = save(Storage(tmp_path), RUN, "main").parent
    for number in (1, 2, 7):
        (folder / f".{number:04d}.tmp").touch()
        age(folder / f".{number:04d}.tmp", 9e8)
    assert save(Storage(tmp_path), RUN, "next").name == "0003_next.json"
    assert names(folder) == [".0007.tmp", "0001_main.json", "0003_next.json"]


def test_a_file_in_a_folder_of_anything_takes_no_claim_with_it(tmp_path: Path) -> None:
    (tmp_path / ".0001.tmp").touch()
    age(tmp_path / ".0001.tmp", 9e8)
    write_run(RUN, tmp_path / "0009_run.json")
    assert names(tmp_path) == [".0001.tmp", "0009_run.json"]


def test_age_is_told_by_the_clock_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose clock is a day ahead takes nobody's file away."""
    folder = save(Storage(tmp_path), RUN, "main").parent
    (folder / ".0002.tmp").touch()
    tomorrow_s = time.time() + 86400
    monkeypatch.setattr(time, "time", lambda: tomorrow_s)
    Storage(tmp_path).save_each(RUN, "next")
    assert (folder / ".0002.tmp").exists()


def test_what_cannot_be_removed_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(Storage(tmp_path), RUN, "main").parent
    (folder / ".0001.tmp").touch()
    age(folder / ".0001.tmp", 9e8)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert save(Storage(tmp_path), RUN, "next").exists()
    assert (folder / ".0001.tmp").exists()


def test_what_is_left_in_all_folders(tmp_path: Path) -> None:
    assert Storage(tmp_path / "none").abandoned() == []
    storage, found = Storage(tmp_path), []
    for device in ("NVIDIA H200", "NVIDIA A100"):
        folder = save(storage, make_run(tests=1, device=device), "main").parent
        (folder / ".0009.tmp").touch()
        found.append(age(folder / ".0009.tmp", 9e8))
    assert storage.abandoned() == sorted(found)
