"""NVML through a recording fake: queries, answers and errors."""

import sys
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.gpu.nvml import Nvml, Reading, Watcher, reason_names
from tests.gpu.recording_nvml import Recording
from tests.timing.fakes import Clock

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
    ("broken", "sentence"),
    [("Init", "NVML does not start .*NotSupported"), ("GetHandleByUUID", "NVML does not know GPU GPU-45b3 .*")],
)
def test_an_unusable_nvml_says_why(fake: Recording, broken: str, sentence: str) -> None:
    fake.broken = {broken: "NotSupported"}
    with pytest.raises(RuntimeError, match=sentence):
        Nvml.open("GPU-45b3")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(RuntimeError, match="the package nvidia-ml-py is not installed"):
        Nvml.open("GPU-45b3")


READING_SHARE = 0.01
REFRESH_S = 5e-3

WHOLE = Reading(memory_clock_mhz=3199, temperature_c=31, power_w=77.1, throttle_mask=0x4)


def test_a_whole_reading(tmp_path: Path) -> None:
    assert Watcher(Nvml(Recording(tmp_path), "GPU-fake-1"))() == WHOLE


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


def test_a_zero_is_a_reading(tmp_path: Path) -> None:
    library = Recording(tmp_path, answers={"Temperature": 0, "PowerUsage": 0})
    reading = Watcher(Nvml(library, "GPU-fake-1"))()
    assert (reading.temperature_c, reading.power_w) == (0, 0.0)


def test_four_queries_and_no_change(tmp_path: Path) -> None:
    library = Recording(tmp_path)
    Watcher(Nvml(library, "GPU-fake-1"))()
    assert len(library.asked) == 4
    assert all(query.startswith("Get") for query in library.asked)


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
    library.answers |= {"Temperature": 60, "CurrentClocksThrottleReasons": 0x20}
    clock.now_s += 0.99 * REFRESH_S
    assert watch() == msgspec.structs.replace(first, throttle_mask=0x20)
    assert slow_queries(library) == 1
    clock.now_s += 0.02 * REFRESH_S
    assert watch().temperature_c == 60
    assert slow_queries(library) == 2
    assert library.asked.count("GetCurrentClocksThrottleReasons") == 3


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


def test_what_stays_the_same_is_one_object(tmp_path: Path, clock: Clock) -> None:
    watch = Watcher(Nvml(Recording(tmp_path), "GPU-fake-1"))
    assert watch() is watch()


def test_a_watcher_of_nothing_reads_nothing() -> None:
    assert Watcher(None)() == Reading()
