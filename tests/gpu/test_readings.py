"""Readings of NVML at one instant, and missing ones."""

from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.readings import Reading, Watcher
from tests.gpu.recording_nvml import Recording
from tests.timing.fakes import Clock

READING_SHARE = 0.01
REFRESH_S = 5e-3

WHOLE = Reading(memory_clock_mhz=3199, temperature_c=31, power_w=77.1, throttle_mask=0x4)


def test_a_whole_reading_is_four_queries_and_no_change(tmp_path: Path) -> None:
    """A zero is a reading; a watcher of nothing reads nothing."""
    library = Recording(tmp_path)
    assert Watcher(Nvml(library, "GPU-fake-1"))() == WHOLE
    assert len(library.asked) == 4
    assert all(query.startswith("Get") for query in library.asked)
    library.answers = {"Temperature": 0, "PowerUsage": 0}
    assert Watcher(Nvml(library, "GPU-fake-1"))() == msgspec.structs.replace(WHOLE, temperature_c=0, power_w=0.0)
    assert Watcher(None)() == Reading()


@pytest.mark.parametrize(
    ("query", "lost"),
    [
        ("GetClockInfo", {"memory_clock_mhz": None}),
        ("GetTemperature", {"temperature_c": None}),
        ("GetPowerUsage", {"power_w": None}),
        ("GetCurrentClocksThrottleReasons", {"throttle_mask": 0}),
    ],
)
def test_what_cannot_be_read_is_none_and_the_rest_is_read(
    tmp_path: Path, query: str, lost: dict[str, int | None]
) -> None:
    """But for throttling, of which there is none then."""
    nvml = Nvml(Recording(tmp_path, broken={query: "NotSupported"}), "GPU-fake-1")
    assert Watcher(nvml)() == msgspec.structs.replace(WHOLE, **lost)


# after each rep


def slow_queries(library: Recording) -> int:
    return library.asked.count("GetTemperature")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().read_by_all(monkeypatch)


def test_throttling_is_read_every_time_and_the_rest_when_it_is_old(tmp_path: Path, clock: Clock) -> None:
    library = Recording(tmp_path)
    watch = Watcher(Nvml(library, "GPU-fake-1"))
    first = watch()
    assert watch() is first, "what stays the same is one object"
    library.answers |= {"Temperature": 60, "CurrentClocksThrottleReasons": 0x20}
    clock.now_s += 0.99 * REFRESH_S
    assert watch() == msgspec.structs.replace(first, throttle_mask=0x20)
    assert slow_queries(library) == 1
    clock.now_s += 0.02 * REFRESH_S
    assert watch().temperature_c == 60
    assert slow_queries(library) == 2
    assert library.asked.count("GetCurrentClocksThrottleReasons") == 4


@pytest.mark.parametrize(
    ("took_s", "again"),
    [(1e-5, True), (0.9 * REFRESH_S * READING_SHARE, True), (1.1 * REFRESH_S * READING_SHARE, False)],
)
def test_queries_that_take_long_are_made_less_often(tmp_path: Path, clock: Clock, took_s: float, again: bool) -> None:
    class Slow(Recording):
        def fail(self, query: str) -> None:
            clock.now_s += took_s if query == "GetTemperature" else 0.0

    library = Slow(tmp_path)
    watch = Watcher(Nvml(library, "GPU-fake-1"))
    watch()
    clock.now_s += 1.01 * REFRESH_S
    watch()
    assert (slow_queries(library) == 2) is again
    clock.now_s += 1.01 * took_s / READING_SHARE
    watch()
    assert slow_queries(library) >= 2
