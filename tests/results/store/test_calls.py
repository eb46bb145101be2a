"""Calls in a storage folder: kept once, read back, refused where they are damaged or somebody else's."""

import os
from pathlib import Path

import pytest

from pytest_gpubench import BadFile
from pytest_gpubench.results.store.calls import CallStore

DATA = b"a call " * 1000


@pytest.fixture
def store(tmp_path: Path) -> CallStore:
    return CallStore(tmp_path / "runs", tmp_path / "home" / "calls.key")


def test_what_is_added_can_be_read_and_is_kept_once(store: CallStore) -> None:
    assert (list(store.names()), store.size("0" * 64)) == ([], 0)
    with pytest.raises(BadFile, match="cannot be read: No such file"):
        store.read("0" * 64)
    name = store.add(DATA)
    file = store.path(name).stat().st_ino
    os.utime(store.path(name), (0, 0))
    assert (store.is_new(name), store.is_new("0" * 64)) == (False, False)
    assert store.add(DATA) == name
    assert (store.path(name).stat().st_ino, store.is_new(name)) == (file, True)
    assert store.read(name) == DATA
    assert list(store.names()) == [name]
    assert 0 < store.size(name) < len(DATA) / 10


@pytest.mark.parametrize("name", ["", "0" * 63, "g" * 64, "../../../etc/passwd", "0" * 65])
def test_a_name_that_is_none_is_refused(store: CallStore, name: str) -> None:
    with pytest.raises(BadFile, match="is no name of a saved call"):
        store.read(name)


@pytest.mark.parametrize(("place", "is_cut"), [(32, False), (42, False), (-1, False), (32, True), (37, True)])
def test_a_damaged_call_is_refused_and_mended_by_saving_again(store: CallStore, place: int, is_cut: bool) -> None:
    name = store.add(DATA)
    packed = bytearray(store.path(name).read_bytes())
    packed[place] ^= 1
    store.path(name).write_bytes(packed[:place] if is_cut else packed)
    with pytest.raises(BadFile, match="is damaged: save the run again"):
        store.read(name)
    store.add(DATA)
    assert store.read(name) == DATA


def test_bytes_of_another_name_are_refused(store: CallStore) -> None:
    """A file that was renamed, or swapped, has not the code of its new name; trusted, its bytes tell."""
    one, other = store.add(DATA), store.add(DATA + b"!")
    store.path(one).write_bytes(store.path(other).read_bytes())
    with pytest.raises(BadFile, match="was not saved by this user"):
        store.read(one)
    with pytest.raises(BadFile, match="is damaged"):
        store.read(one, trusted=True)


def test_a_call_of_another_user_is_refused_unless_it_is_trusted(store: CallStore, tmp_path: Path) -> None:
    name = CallStore(store.folder.parent, tmp_path / "other" / "calls.key").add(DATA)
    with pytest.raises(BadFile, match=r"was not saved by this user on this machine, .* --gpu-bench-trust-calls"):
        store.read(name)
    assert store.read(name, trusted=True) == DATA
    assert store.read(store.add(DATA)) == DATA  # saved again it is this user's


def test_only_the_user_can_read_the_key_which_is_made_once(store: CallStore) -> None:
    store.add(DATA)
    key = store.key.read_bytes()
    assert (store.key.stat().st_mode & 0o777, len(key)) == (0o600, 32)
    assert os.listdir(store.key.parent) == ["calls.key"]
    store.add(DATA + b"!")
    assert store.key.read_bytes() == key


def test_a_key_that_another_process_has_just_made_is_taken(store: CallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(temporary: Path, key: Path) -> None:
        key.write_bytes(b"k" * 32)
        raise FileExistsError

    monkeypatch.setattr(os, "link", made)
    assert store.read(store.add(DATA)) == DATA
    assert (os.listdir(store.key.parent), store.key.read_bytes()) == (["calls.key"], b"k" * 32)


@pytest.mark.parametrize("state", ["", "/state"])
def test_the_key_lies_in_the_users_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = Path(state or tmp_path / ".local" / "state")
    assert CallStore(tmp_path).key == folder / "pytest-gpubench" / "calls.key"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(BadFile, match=r"runs.* cannot be written"):
        CallStore(tmp_path / "runs", tmp_path / "calls.key").add(DATA)


def test_without_a_key_nothing_is_saved_and_nothing_is_ones_own(store: CallStore) -> None:
    name = store.add(DATA)
    store.key.unlink()
    store.key.mkdir()
    assert not store.is_own(name)
    homeless = CallStore(store.folder.parent, Path("~/.local/state/calls.key"))
    with pytest.raises(BadFile, match="no home for the key to them: set XDG_STATE_HOME"):
        homeless.add(DATA + b"!")
    assert not homeless.is_own(name)
    assert homeless.read(name, trusted=True) == DATA
