"""CUDA_VISIBLE_DEVICES as CUDA reads it (torch's own reading of it is the oracle), and NVML's list through a fake."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_gpubench.gpu import visible
from pytest_gpubench.gpu.visible import VisibleGpu, find_visible, has_gpu_driver
from pytest_gpubench.plugin.results import visible_facts
from tests.gpu.recording_nvml import nvml_of

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33", "GPU-c"]
HOST: dict[str, Sequence[str]] = dict.fromkeys(UUIDS, ())
SPLIT_HOST = HOST | {
    "GPU-aa11": ("MIG-x", "MIG-y"),
    "GPU-bb33": ("MIG-z",),
    "GPU-c": ("",),
}  # of the last no instance was made


def listed_of(host: dict[str, Sequence[str]], listed: str | None) -> list[VisibleGpu]:
    """Return the GPUs of a host that CUDA_VISIBLE_DEVICES lists; None where it is not set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", nvml_of(host))
        return find_visible({} if listed is None else {"CUDA_VISIBLE_DEVICES": listed})


@pytest.mark.parametrize(
    ("listed", "uuids"),
    [
        (None, ["MIG-x", "MIG-y", "GPU-aa22", "MIG-z"]),
        ("0", ["MIG-x", "MIG-y"]),
        ("2,1", ["MIG-z", "GPU-aa22"]),
        ("3", []),
        ("GPU-aa1", ["MIG-x", "MIG-y"]),
        ("MIG-z,MIG-x", ["MIG-z", "MIG-x"]),
        ("MIG-z,GPU-aa22", ["MIG-z"]),
        ("MIG-", []),
        ("MIG-z,MIG-z", []),
    ],
)
def test_instances_stand_for_a_gpu_that_is_split(listed: str | None, uuids: list[str]) -> None:
    assert [gpu.uuid for gpu in listed_of(SPLIT_HOST, listed)] == uuids


def test_an_index_is_not_the_beginning_of_a_uuid() -> None:
    """Where NVML gives one without a prefix."""
    host: dict[str, Sequence[str]] = dict.fromkeys(["1aa", "0bb", "7cc"], ())
    assert [[gpu.uuid for gpu in listed_of(host, number)] for number in "0127"] == [["1aa"], ["0bb"], ["7cc"], []]


NUMBERS = ["0", "1", "2", "3", "4", " 1", "1x", "+2", "-1", "", " ", "x", "none", "NoDevFiles"]
ENTRIES = st.sampled_from([*NUMBERS, *UUIDS, "GPU-", "GPU-aa", "GPU-aa1", "GPU-bb", "GPU-zz", "MIG-x"])


@example("0,-1,1")
@example("0,1,0")
@example("3,4,1")
@example("0,GPU-bb")
@example("GPU-bb,GPU-aa1")
@given(st.lists(ENTRIES, max_size=4).map(",".join))
def test_it_is_read_as_torch_reads_it(listed: str) -> None:
    import torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", listed)
        expected: Any = torch.cuda._parse_visible_devices()
    if expected and isinstance(expected[0], str):
        expected = torch.cuda._transform_uuid_to_ordinals(expected, UUIDS)
    in_range = next((place for place, number in enumerate(expected) if number >= 4), len(expected))
    assert [gpu.index for gpu in listed_of(HOST, listed)] == expected[:in_range]


def test_the_host_is_read_from_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml_of({"GPU-1": (), "GPU-2": ("MIG-l", "MIG-r")}))
    first = VisibleGpu("GPU-1", 0, "NVIDIA H200")
    left, right = (VisibleGpu(uuid, None, "NVIDIA H200", True) for uuid in ("MIG-l", "MIG-r"))
    assert find_visible({"CUDA_VISIBLE_DEVICES": "MIG-r,MIG-l"}) == [right, left]
    assert find_visible({}) == [first, left, right]
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "0")
    assert find_visible() == [first]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert find_visible({}) == []


@pytest.mark.parametrize(
    ("listed", "found"), [(None, True), ("0", True), ("", False), ("-1", False), ("none", False), ("1,1", False)]
)
def test_a_driver_counts_unless_every_gpu_is_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listed: str | None, found: bool
) -> None:
    monkeypatch.setattr(visible, "DRIVER_FILES", (str(tmp_path),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert has_gpu_driver() is found
    monkeypatch.setattr(visible, "DRIVER_FILES", (str(tmp_path / "missing"),))
    assert has_gpu_driver() is False


def test_facts_of_what_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml_of({"GPU-a": ()}))
    (facts,) = visible_facts()
    assert (facts.type, facts.name, facts.uuid, facts.driver) == ("cuda", "NVIDIA H200", "GPU-a", "580.1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_facts() == []
