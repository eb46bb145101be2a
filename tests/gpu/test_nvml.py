"""NVML through a recording fake: what is asked, and what is made of the answers and of the errors."""

import sys
from typing import Any

import pytest

from pytest_gpubench.gpu.nvml import THROTTLED, Nvml, reason_names


class FakeError(Exception):
    pass


class FakeNvml:
    """Answers as an H200 does; `broken` names the queries that fail."""

    NVMLError = FakeError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, broken: tuple[str, ...] = (), reasons: int = 0) -> None:
        self.broken = broken
        self.reasons = reasons
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def query(*arguments: Any) -> Any:
            self.asked.append(name)
            if any(word in name for word in self.broken):
                raise FakeError(f"{name}: Not Supported")
            return self.answer(name.removeprefix("nvml"), arguments)

        return query

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        return {
            "Init": None,
            "DeviceGetHandleByUUID": "handle",
            "DeviceGetHandleByIndex": "handle",
            "DeviceGetCurrentClocksThrottleReasons": self.reasons,
            "DeviceGetName": b"NVIDIA H200",
            "DeviceGetUUID": "GPU-45b3",
            "SystemGetDriverVersion": "580.159.04",
            "DeviceGetMaxClockInfo": 1980 if arguments[1:] == (1,) else 3201,
            "DeviceGetEnforcedPowerLimit": 700_000,
            "DeviceGetMigMode": [0, 0],
        }[name]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    library = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_what_is_known_of_a_gpu(fake: FakeNvml) -> None:
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
def test_only_throttling_counts_as_throttling(fake: FakeNvml, mask: int, names: tuple[str, ...]) -> None:
    fake.reasons = mask
    found = Nvml.open("GPU-45b3").throttle_mask()
    assert found == mask & THROTTLED
    assert reason_names(found) == names


def test_what_a_gpu_cannot_say_is_none(fake: FakeNvml) -> None:
    nvml = Nvml.open("GPU-45b3")
    fake.broken = ("Clock", "Power", "Mig", "Driver", "Reasons")
    assert nvml.max_clock_mhz("SM") is None
    assert nvml.power_limit_w() is None
    assert nvml.mig() is None
    assert nvml.driver() is None
    assert nvml.throttle_mask() == 0


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [("Init", "NVML does not start .*Not Supported"), ("HandleByUUID", "NVML does not know GPU GPU-45b3 .*")],
)
def test_an_unusable_nvml_says_why(fake: FakeNvml, broken: str, sentence: str) -> None:
    fake.broken = (broken,)
    with pytest.raises(RuntimeError, match=sentence):
        Nvml.open("GPU-45b3")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(RuntimeError, match="the package nvidia-ml-py is not installed"):
        Nvml.open("GPU-45b3")
