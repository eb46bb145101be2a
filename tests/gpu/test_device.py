"""Devices, found without a GPU."""

import re
from pathlib import Path

import pytest
import torch

from pytest_gpubench import DeviceFacts, DeviceUnavailable
from pytest_gpubench.gpu import device
from pytest_gpubench.gpu.device import cpu_device, find_device
from pytest_gpubench.gpu.nvml import Nvml


def test_the_cpu() -> None:
    found = find_device("cpu")
    assert found is cpu_device()
    assert found.type == "cpu"
    assert found.facts.name
    assert found.facts.host
    assert found.cache_bytes >= 2**20
    assert found.stopwatch()() >= 0
    found.synchronize()


@pytest.mark.parametrize(
    ("sizes", "largest"), [((), None), (("32K", "1024K", "33M"), 33 * 2**20), (("512",), 512), (("", "1K"), 2**10)]
)
def test_the_largest_cache_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sizes: tuple[str, ...], largest: int | None
) -> None:
    for index, size in enumerate(sizes):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "size").write_text(f"{size}\n")
    monkeypatch.setattr(device, "CPU_CACHE_FOLDER", tmp_path)
    assert device.cpu_facts().cache_bytes == largest


@pytest.mark.parametrize(
    ("cuda", "visible", "sentence"),
    [
        (None, None, "is built without CUDA"),
        ("13.0", "", "CUDA_VISIBLE_DEVICES='' hides every GPU"),
        ("13.0", "-1", "CUDA_VISIBLE_DEVICES='-1' hides every GPU"),
        ("13.0", "0", "torch finds no GPU (is the driver there? see nvidia-smi)"),
    ],
)
def test_why_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, visible: str | None, sentence: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceUnavailable, match=re.escape(f"{sentence}: use a machine with one, or, for")):
        find_device("cuda")
    assert find_device("auto").type == "cpu"


def test_facts_without_nvml_say_so() -> None:
    from pytest_gpubench.report.facts import device_facts
    from pytest_gpubench.report.terminal import header_line
    from pytest_gpubench.settings import Settings

    facts = DeviceFacts(type="cuda", name="NVIDIA H200", host="h", nvml_error="NVML does not start (no driver)")
    assert "clocks and throttling not watched: NVML does not start" in header_line(facts, Settings())
    assert device_facts(facts)["NVML"] == "NVML does not start (no driver)"
    assert header_line(facts, Settings(), gpus=2).startswith("gpu_bench: 0.1.0, 2 x NVIDIA H200, ")


@pytest.mark.parametrize(
    ("bare", "known", "expected"),
    [
        ("1-2", {"GPU-1-2"}, ("GPU-1-2", True)),
        ("1-2", {"MIG-1-2"}, ("MIG-1-2", True)),
        ("1-2", set(), ("GPU-1-2", False)),
        (None, set(), (None, False)),
    ],
)
def test_a_uuid_gets_the_prefix_that_nvml_knows(
    monkeypatch: pytest.MonkeyPatch, bare: str | None, known: set[str], expected: tuple[str | None, bool]
) -> None:
    def open_one(uuid: str) -> object:
        if uuid not in known:
            raise RuntimeError(f"NVML does not know GPU {uuid}")
        return object()

    monkeypatch.setattr(Nvml, "open", open_one)
    uuid, nvml, error = device._open_by_uuid(bare)
    assert (uuid, nvml is not None) == expected
    assert (error is None) == expected[1]
