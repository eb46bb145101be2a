"""Names of run files and of the folders of GPU models, for any run name."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.results.model import CommitInfo
from pytest_gpubench.results.store import Storage, read_run
from tests.results.saved import make_run
from tests.results.store.files import RUN, replace, save

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


def test_a_time_that_cannot_be_read_is_now(tmp_path: Path) -> None:
    path = save(Storage(tmp_path), replace(RUN, datetime="yesterday"), "")
    assert re.fullmatch(r"0001_01234567_\d{8}_\d{6}\.json", path.name)


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
def test_no_two_names_share_a_file(tmp_path_factory: pytest.TempPathFactory, one: str, other: str) -> None:
    parts = {save(Storage(tmp_path_factory.mktemp("names")), RUN, name).name for name in (one, other)}
    assert (len(parts) == 1) == (one.strip() == other.strip())


@pytest.mark.parametrize(("length", "hashed"), [(LONGEST_PART, False), (LONGEST_PART + 1, True), (5000, True)])
def test_a_long_name_is_cut_and_still_found(length: int, hashed: bool, tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    name = "n" * length
    path = save(storage, make_run(1, 1), name)
    assert (path.name == f"0001_{name}.json") is not hashed
    storage.save_each(make_run(1, 1), name + "m")
    assert storage.find(name) == [path]
    assert read_run(path).name == name


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
