"""The storage: numbered runs, found by name, number or file, and saved by several processes at once."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_gpubench import BadFile
from pytest_gpubench.results.model import CommitInfo
from pytest_gpubench.results.store import Storage, read_run
from tests.results.saved import make_run
from tests.results.store.files import RUN, replace, save
from tests.results.test_files import failing

LOCK = ".lock"


def names(storage: Storage) -> list[str]:
    return [str(one.path.relative_to(storage.root)) for one in storage.runs()]


def test_runs_are_numbered_in_a_folder_of_their_gpu(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "deep" / "runs")
    first, second = save(storage, RUN, "main"), save(storage, RUN, "")
    other = save(storage, make_run(1, device="NVIDIA A100-SXM4-80GB"), "main")
    folder = storage.root / "NVIDIA-H200"
    assert first == folder / "0001_main.json"
    assert second == folder / "0002_01234567_20260301_123045.json"
    assert other == storage.root / "NVIDIA-A100-SXM4-80GB" / "0001_main.json"
    assert read_run(first) == replace(RUN, name="main")
    assert (storage.root / ".gitignore").read_text() == "*\n"
    assert sorted(one.name for one in folder.iterdir()) == [LOCK, first.name, second.name]
    found = storage.runs("NVIDIA H200")[0]
    assert (found.path, found.device, found.number, found.name) == (first, "NVIDIA-H200", 1, "main")
    (storage.root / ".gitignore").unlink()  # who takes it away wants the runs in the repository
    storage.save_each(RUN)
    assert not (storage.root / ".gitignore").exists()
    assert first.with_name(LOCK).stat().st_mode & 0o666 == 0o666  # who may write into the folder may lock it


def test_several_gpu_models_are_saved_apart(tmp_path: Path) -> None:
    other = make_run(2, device="NVIDIA A100").records
    run = replace(RUN, records=(RUN.records[0], *other, *RUN.records[1:]), commit_info=CommitInfo())
    storage = Storage(tmp_path)
    first, second = storage.save_each(run, "mixed")
    assert read_run(first).records == RUN.records
    assert read_run(second).records == other
    assert set(storage.find("mixed")) == {first, second}
    assert save(storage, run, "mixed").name == "0002_mixed.json"
    assert [path.name for path in storage.find("latest")] == ["0002_mixed.json"] * 2


def test_numbers_go_on_after_gaps_and_beyond_four_digits(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    folder = save(storage, RUN, "a").parent
    (folder / "0001_a.json").rename(folder / "9999_a.json")
    assert save(storage, RUN, "b").name == "10000_b.json"
    assert save(storage, RUN, "c").name == "10001_c.json"
    assert [one.number for one in storage.runs()] == [9999, 10000, 10001]


CLEAN = replace(RUN, commit_info=CommitInfo(id="c0ffee", dirty=False))


def test_a_run_of_the_same_name_commit_and_machine_is_a_session_of_the_newest(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    path = save(storage, CLEAN, "main")
    again = replace(make_run(tests=8, reps=12, seed=1), commit_info=CLEAN.commit_info)
    assert storage.save_each(again, "main") == {path: 2}
    assert read_run(path) == replace(again, name="main", earlier=CLEAN.records)
    assert save(storage, CLEAN, "other").name == "0002_other.json"
    assert save(storage, CLEAN, "").name.startswith("0003_c0ffee_")
    assert storage.find("main") == [path]
    path.write_bytes(path.read_bytes()[:-100])
    assert save(storage, CLEAN, "main").name == "0004_main.json", "what cannot be read is left alone"
    assert len(path.read_bytes()) > 100


SAVE = """
import os, signal, sys
from pathlib import Path
from pytest_gpubench.results.store import Storage
from tests.results.saved import make_run
run = make_run(tests=2, reps=3)
if sys.argv[2] == "killed":
    os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)
else:
    print("ready", flush=True)
    sys.stdin.readline()
for number in range(40):
    Storage(Path(sys.argv[1])).save_each(run, f"{sys.argv[2]}-{number}")
"""


def test_processes_that_save_at_once_share_no_number(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    workers = []
    for name in "abc":
        command = [sys.executable, "-c", SAVE, str(tmp_path / "runs"), name]
        workers.append(subprocess.Popen(command, cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.communicate("go\n")
        assert worker.returncode == 0
    stored = Storage(tmp_path / "runs").runs()
    assert len(stored) == len({one.number for one in stored}) == 120
    assert {one.name for one in stored} == {f"{name}-{number}" for name in "abc" for number in range(40)}
    assert [one.name for one in (tmp_path / "runs" / "NVIDIA-H200").glob(".*")] == [LOCK]
    for one in stored[::30]:
        assert read_run(one.path).name == one.name


def test_a_process_that_is_killed_while_it_saves_takes_no_number_and_blocks_nobody(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAVE, str(tmp_path), "killed"]
    assert subprocess.run(command, cwd=Path(__file__).parents[3], check=False).returncode == -signal.SIGKILL
    storage = Storage(tmp_path)
    first = save(storage, RUN, "soon")
    assert first.name == "0001_soon.json"
    assert save(storage, RUN, "later").name == "0002_later.json"


def test_a_lock_that_is_never_released_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(Storage(tmp_path), RUN, "main").parent
    monkeypatch.setattr("pytest_gpubench.results.store.storage.LOCK_TIMEOUT_S", 0.05)
    with FileLock(folder / LOCK), pytest.raises(BadFile, match=r"cannot be written: The file lock .* could not be acq"):
        save(Storage(tmp_path), RUN, "next")


@pytest.mark.parametrize(("where", "function"), [(Path, "mkdir"), (os, "fsync"), (os, "replace")])
def test_a_storage_that_cannot_be_written(
    where: object, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, function, failing(errno.EROFS))
    with pytest.raises(BadFile, match="cannot be written: Read-only file system; name a place that may be written"):
        Storage(tmp_path / "runs").save_each(RUN)


def test_a_storage_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(BadFile, match="cannot be written: File exists"):
        Storage(tmp_path / "runs").save_each(RUN)
    with pytest.raises(BadFile, match="cannot be read: Not a directory"):
        Storage(tmp_path / "runs").runs()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Runs of two GPU models, the second one's between the first one's."""
    found = Storage(tmp_path / "runs")
    began = time.time() - 1000
    saves = [("NVIDIA H200", "main"), ("NVIDIA A100", "main"), ("NVIDIA H200", "feature/x"), ("NVIDIA H200", "main")]
    for index, (device, name) in enumerate(saves):
        path = save(found, replace(make_run(1, 2, device=device), commit_info=CommitInfo(id=f"{index}" * 8)), name)
        os.utime(path, (began + index, began + index))
    return found


FIRST, OTHER, FEATURE, LAST = (
    "NVIDIA-H200/0001_main.json",
    "NVIDIA-A100/0001_main.json",
    "NVIDIA-H200/0002_feature%2Fx.json",
    "NVIDIA-H200/0003_main.json",
)


@pytest.mark.parametrize(
    ("which", "found"),
    [
        ("latest", {LAST, OTHER}),
        ("main", {LAST, OTHER}),
        (" main ", {LAST, OTHER}),
        ("feature/x", {FEATURE}),
        ("1", {FIRST, OTHER}),
        ("0001", {FIRST, OTHER}),
        ("3", {LAST}),
    ],
)
def test_runs_are_found(which: str, found: set[str], storage: Storage) -> None:
    assert {str(path.relative_to(storage.root)) for path in storage.find(which)} == found


def test_a_name_comes_before_a_number_and_a_file(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage.find("1") != [save(storage, RUN, "1")]
    assert storage.find("1") == [storage.root / "NVIDIA-H200" / "0004_1.json"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main").write_text("")
    assert storage.root / LAST in storage.find("main")


@pytest.mark.parametrize("which", ["mai", "main_", "9", "no/such/file.json", "", "\x1b[31m", "x" * 300, "²"])
def test_what_is_not_there_is_told_with_what_is(which: str, storage: Storage) -> None:
    told = r"there is no saved run and no file .* has 4 runs: 0003 \(main\), 0002"
    with pytest.raises(BadFile, match=told) as caught:
        storage.find(which)
    assert str(caught.value).isprintable()
    assert ("did you mean 'main'?" in str(caught.value)) is which.startswith("mai")


def test_of_many_runs_the_newest_are_named(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    for number in range(20):
        storage.save_each(make_run(1, 1), f"run{number}")
    with pytest.raises(BadFile, match=r"0020 \(run19\), .*0013 \(run12\) and 12 more$"):
        storage.find("main")


def test_where_nothing_is_saved(tmp_path: Path) -> None:
    """A run of nothing is not."""
    storage = Storage(tmp_path / "no")
    assert storage.runs() == []
    with pytest.raises(BadFile, match="nothing is saved yet: save one with --gpu-bench-save=NAME"):
        storage.find("latest")
    with pytest.raises(BadFile, match="no test measured anything"):
        storage.save_each(make_run(0))
    assert not list(tmp_path.iterdir())


def test_runs_are_in_the_order_of_their_numbers_and_other_files_are_passed_over(storage: Storage) -> None:
    os.utime(storage.root / FIRST, (2e9, 2e9))  # as of one that was copied
    for name in ("notes.txt", "NVIDIA-H200/readme_1.json", "NVIDIA-H200/0009_main.json.bak", "0007_main.json"):
        (storage.root / name).write_text("")
    assert names(storage) == [OTHER, FIRST, FEATURE, LAST]


LONGEST_PART = 180


@pytest.mark.parametrize(
    ("commit", "ended", "name"),
    [
        (CommitInfo(id="0123456789", dirty=True), "2026-03-01T12:30:45+02:00", "01234567_20260301_103045_dirty"),
        (CommitInfo(id="0123456789", dirty=None), "2026-03-01T12:30:45Z", "01234567_20260301_123045"),
        (CommitInfo(error="git is not installed"), "2026-03-01T12:30:45+00:00", "unversioned_20260301_123045"),
        (CommitInfo(id="../x"), "2026-03-01T12:30:45+00:00", "x_20260301_123045"),
    ],
)
def test_what_has_no_name_is_named_by_commit_and_time(
    commit: CommitInfo, ended: str, name: str, tmp_path: Path
) -> None:
    path = save(Storage(tmp_path), replace(RUN, commit_info=commit, datetime=ended), "")
    assert path.name == f"0001_{name}.json"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("main", "main"),
        ("v1.2+cu12 (fast)", "v1.2+cu12 %28fast%29"),
        ("feature/x", "feature%2Fx"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd"),
        ("größe", "größe"),
        ("gro\u0308ße", "größe"),
        ("50%", "50%25"),
        ("a\nb\0", "a%0Ab%00"),
        ("n" * LONGEST_PART, "n" * LONGEST_PART),
        ("n" * (LONGEST_PART + 1), "n" * 163 + "-0000000000000000"),
        ("x" * 999, "x" * 163 + "-0000000000000000"),
        ("x" * 162 + "//" + "x" * 99, "x" * 162 + "-0000000000000000"),
        ("x" * 160 + "//" + "x" * 99, "x" * 160 + "%2F-0000000000000000"),
    ],
)
def test_a_name_in_the_name_of_a_file(name: str, part: str, tmp_path: Path) -> None:
    """A long one is cut between characters, never within what stands for one."""
    found = save(Storage(tmp_path), RUN, name).name
    assert re.sub(r"-[0-9a-f]{16}\.json$", "-0000000000000000.json", found) == f"0001_{part}.json"


NAMES = st.text(st.characters(codec="ascii"), max_size=60).filter(str.strip)


@given(NAMES, NAMES)
@example("n" * 5000, "n" * 5000 + "m")
def test_no_two_names_share_a_file(tmp_path_factory: pytest.TempPathFactory, one: str, other: str) -> None:
    parts = {save(Storage(tmp_path_factory.mktemp("names")), RUN, name).name for name in (one, other)}
    assert (len(parts) == 1) == (one.strip() == other.strip())


@given(st.text(min_size=1, max_size=300).filter(str.strip))
def test_whatever_the_name_it_is_found(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.mktemp("names")
    path = save(Storage(root), make_run(1, 1), name)
    assert path.parent.parent == root
    assert len(path.name.encode()) <= len("0001_.json") + LONGEST_PART
    assert Storage(root).find(name) == [path]
    (stored,) = Storage(root).runs()
    assert Storage(root).find(stored.name) == [path]


@pytest.mark.parametrize(
    ("device", "folder"),
    [
        ("NVIDIA H200", "NVIDIA-H200"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
        ("Intel(R) Xeon(R) @ 2.0GHz", "Intel-R-Xeon-R-2.0GHz"),
        ("../..", "unknown"),
        ("", "unknown"),
        ("A" * 300, "A" * 80),
    ],
)
def test_the_folder_of_a_device(device: str, folder: str, tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    assert save(storage, make_run(1, 1, device=device), "main").parent.name == folder
    assert len(storage.runs(device)) == len(storage.runs(folder)) == 1
