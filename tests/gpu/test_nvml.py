"""NVML through a recording fake: queries, answers and errors."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_gpubench.gpu.nvml import Nvml, reason_names
from tests.gpu.recording_nvml import NVMLError, Recording

ANSWERS = {
    "Name": b"NVIDIA H200",
    "UUID": "GPU-45b3",
    "SystemGetDriverVersion": "580.159.04",
    "EnforcedPowerLimit": 700_000,
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recording:
    library = Recording(tmp_path, answers=ANSWERS, gpus=("GPU-45b3",))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_what_is_known_of_a_gpu(fake: Recording) -> None:
    nvml = Nvml.open("GPU-45b3")
    assert (nvml.name(), nvml.uuid(), nvml.driver()) == ("NVIDIA H200", "GPU-45b3", "580.159.04")
    assert (nvml.max_clock_mhz("SM"), nvml.max_clock_mhz("MEM")) == (1980, 3201)
    assert (nvml.power_limit_w(), nvml.mig()) == (700.0, False)


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0x0, ()),
        (0x1, ()),  # idle
        (0x2, ()),  # clocks that somebody set
        (0x4, ("software power cap",)),
        (0x5, ("software power cap",)),
        (0x20 | 0x40, ("software thermal slowdown", "hardware thermal slowdown")),
        (0x8 | 0x80, ("hardware slowdown", "hardware power brake")),
    ],
)
def test_only_throttling_counts_as_throttling(fake: Recording, mask: int, names: tuple[str, ...]) -> None:
    fake.answers = ANSWERS | {"CurrentClocksThrottleReasons": mask}
    found = Nvml.open("GPU-45b3").throttle_mask()
    assert found == mask & 236
    assert reason_names(found) == names


def test_throttling_is_read_by_its_new_name_where_a_library_lacks_the_old_one() -> None:
    library = SimpleNamespace(NVMLError=NVMLError, nvmlDeviceGetCurrentClocksEventReasons=lambda gpu: 0x5)
    assert Nvml(library, "GPU-45b3").throttle_mask() == 0x4


def test_what_a_gpu_cannot_say_is_none(fake: Recording) -> None:
    nvml = Nvml.open("GPU-45b3")
    unknown = ("MaxClockInfo", "EnforcedPowerLimit", "MigMode", "CurrentClocksThrottleReasons")
    fake.broken = dict.fromkeys(("SystemGetDriverVersion", *(f"Get{name}" for name in unknown)), "NotSupported")
    assert nvml.max_clock_mhz("SM") is None
    assert nvml.power_limit_w() is None
    assert nvml.mig() is None
    assert nvml.driver() is None
    assert nvml.throttle_mask() == 0


@pytest.mark.parametrize(
    ("gpu", "broken", "sentence"),
    [
        ("GPU-45b3", "Init", "NVML does not start .*NotSupported"),
        ("GPU-45b3", "GetHandleByUUID", "NVML does not know GPU GPU-45b3 .*"),
        (7, "GetHandleByIndex", "NVML does not know a GPU number 7 .*"),
        (7, None, "the package nvidia-ml-py is not installed"),
    ],
)
def test_an_unusable_nvml_says_why(
    fake: Recording, monkeypatch: pytest.MonkeyPatch, gpu: str | int, broken: str | None, sentence: str
) -> None:
    if broken is None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    else:
        fake.broken = {broken: "NotSupported"}
    with pytest.raises(RuntimeError, match=sentence):
        Nvml.open(gpu)
