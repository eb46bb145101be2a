"""What NVML says in one instant, and what it does not."""

from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.readings import NO_READING, Reading, read_now
from tests.gpu.recording_nvml import Recording

WHOLE = Reading(sm_clock_mhz=345, memory_clock_mhz=3199, temperature_c=31, power_w=77.123, throttle_mask=0x4)


def test_a_whole_reading(tmp_path: Path) -> None:
    assert read_now(Nvml(Recording(tmp_path), "GPU-fake-1")) == WHOLE


@pytest.mark.parametrize(
    ("query", "lost"),
    [
        ("GetClockInfo", {"sm_clock_mhz": None, "memory_clock_mhz": None}),
        ("GetTemperature", {"temperature_c": None}),
        ("GetPowerUsage", {"power_w": None}),
        ("GetCurrentClocksThrottleReasons", {"throttle_mask": None}),
    ],
)
def test_what_cannot_be_read_is_none_and_the_rest_is_read(tmp_path: Path, query: str, lost: dict[str, None]) -> None:
    nvml = Nvml(Recording(tmp_path, broken={query: "NotSupported"}), "GPU-fake-1")
    assert read_now(nvml) == msgspec.structs.replace(WHOLE, **lost)


@pytest.mark.parametrize(("reasons", "mask"), [(0, 0), (0x1, 0), (0x2, 0), (0x4, 0x4), (0xFF, 0xEC)])
def test_idleness_and_clocks_that_were_set_are_no_throttling(tmp_path: Path, reasons: int, mask: int) -> None:
    library = Recording(tmp_path, answers={"CurrentClocksThrottleReasons": reasons})
    assert read_now(Nvml(library, "GPU-fake-1")).throttle_mask == mask


def test_a_zero_is_a_reading(tmp_path: Path) -> None:
    library = Recording(tmp_path, answers={"Temperature": 0, "PowerUsage": 0})
    reading = read_now(Nvml(library, "GPU-fake-1"))
    assert (reading.temperature_c, reading.power_w) == (0, 0.0)


def test_without_nvml_nothing_is_read() -> None:
    assert read_now(None) == NO_READING == Reading()


def test_five_queries_and_no_change(tmp_path: Path) -> None:
    library = Recording(tmp_path)
    read_now(Nvml(library, "GPU-fake-1"))
    assert len(library.asked) == 5
    assert all(query.startswith("Get") for query in library.asked)


def test_it_travels() -> None:
    assert msgspec.json.decode(msgspec.json.encode(WHOLE), type=Reading) == WHOLE
    assert msgspec.json.encode(NO_READING) == b"{}"
