"""One GPU for both."""

from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.cli.ab.gpu import one_gpu


class Gpu:
    def __init__(self, uuid: str) -> None:
        self.uuid, self.name, self.index, self.mig = uuid, "a GPU", 0, False


@pytest.mark.parametrize("uuids", [[], ["GPU-1"]])
def test_without_a_choice_of_gpus_nothing_is_pinned(uuids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.gpu.visible.find_visible", lambda: [Gpu(uuid) for uuid in uuids])
    assert one_gpu() == {}


def test_of_several_gpus_one_is_held(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("pytest_gpubench.gpu.visible.find_visible", lambda: [Gpu("GPU-1"), Gpu("GPU-2")])
    held: list[Any] = []
    monkeypatch.setattr("pytest_gpubench.cli.ab.gpu.HELD", held)
    assert one_gpu() == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    assert one_gpu() == {"CUDA_VISIBLE_DEVICES": "GPU-2"}, "the other one is less taken"
    assert "both are measured on a GPU GPU-1, one of 2 GPUs" in capsys.readouterr().err
    for claim in held:
        claim.release()
