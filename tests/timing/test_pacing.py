"""Idle time before reps that may reach the power cap; none before others."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_gpubench import DeviceFacts
from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.pacing import Pacing, rest
from tests.gpu.recording_nvml import Recording
from tests.timing.fakes import Clock

KEPT_CLOCK = 0.97
IDLE_PER_BUSY = 3.0
FREE_IDLE_S = 1e-4
LAST_REPS = 20
LONGEST_CPU_IDLE_S = 0.025
LONG_CALL_US = 300.0

MAX_MHZ = 1980.0
KEPT_MHZ = KEPT_CLOCK * MAX_MHZ


def rep(call_us: float, clock_mhz: float | None = None) -> Rep:
    return Rep(call_us, (), clock_mhz)


@pytest.mark.parametrize(
    ("call_us", "clock_mhz", "max_clock_mhz", "idle_s"),
    [
        # where the clock is not known the time decides
        (10.0, None, None, 0.0),
        (LONG_CALL_US, None, None, 0.0),
        (LONG_CALL_US + 1, None, None, 3 * (LONG_CALL_US + 1) / 1e6 - 1e-4),
        (1370.0, None, None, 4.01e-3),
        (1370.0, None, MAX_MHZ, 4.01e-3),
        (1370.0, MAX_MHZ, None, 4.01e-3),
        (LONG_CALL_US, 500.0, None, 0.0),
        # where it is known the clock decides
        (10.0, MAX_MHZ, MAX_MHZ, 0.0),
        (1370.0, MAX_MHZ, MAX_MHZ, 0.0),
        (1370.0, KEPT_MHZ, MAX_MHZ, 0.0),
        (1370.0, KEPT_MHZ - 1, MAX_MHZ, 4.01e-3),
        (1370.0, 500.0, MAX_MHZ, 4.01e-3),
        (100.0, KEPT_MHZ - 1, MAX_MHZ, 2e-4),
        # the host's own pause is enough for the shortest
        (1e6 * FREE_IDLE_S / IDLE_PER_BUSY - 1, KEPT_MHZ - 1, MAX_MHZ, 0.0),
        (1e6 * FREE_IDLE_S / IDLE_PER_BUSY + 1, KEPT_MHZ - 1, MAX_MHZ, 3e-6),
    ],
)
@pytest.mark.parametrize("count", [1, 5, 100])
def test_idle_time(
    count: int, call_us: float, clock_mhz: float | None, max_clock_mhz: float | None, idle_s: float
) -> None:
    """Three times the call, less what the host leaves idle anyway; as soon as there is one rep."""
    assert Pacing(max_clock_mhz).idle_s([]) == 0
    assert Pacing(max_clock_mhz).idle_s([rep(call_us, clock_mhz)] * count) == pytest.approx(idle_s, abs=1e-12)


@pytest.mark.parametrize(
    ("call_us", "idle_s"),
    [(LONG_CALL_US, 0.0), (1000.0, 2.9e-3), (8366.0, 24.998e-3), (8367.0, LONGEST_CPU_IDLE_S)],
)
def test_idle_time_on_a_cpu(call_us: float, idle_s: float) -> None:
    assert Pacing.of(cpu_device()).idle_s([rep(call_us)] * 5) == pytest.approx(idle_s)


SHORT, LONG, KEPT, SUNK = rep(10.0), rep(1000.0), rep(1000.0, MAX_MHZ), rep(1000.0, 1500.0)


@pytest.mark.parametrize(
    ("before", "last", "idles"),
    [
        (LONG, SHORT, False),
        (SHORT, LONG, True),
        (SUNK, KEPT, False),
        (KEPT, SUNK, True),
        (SUNK, LONG, True),
        (KEPT, LONG, True),
    ],
)
@pytest.mark.parametrize("earlier", [1, 500])
def test_only_the_last_reps_are_looked_at(before: Rep, last: Rep, idles: bool, earlier: int) -> None:
    """Whether a call sinks the clock shows when it has run for a while."""
    assert (Pacing(MAX_MHZ).idle_s([before] * earlier + [last] * LAST_REPS) > 0) is idles


@pytest.mark.parametrize(("last", "idles"), [([KEPT] * 11 + [SUNK] * 9, False), ([KEPT] * 9 + [SUNK] * 11, True)])
def test_the_median_of_the_last_reps_counts(last: list[Rep], idles: bool) -> None:
    """Not one slow rep or low reading; and a reading that is missing is not a low one."""
    assert (Pacing(MAX_MHZ).idle_s(last) > 0) is idles
    assert Pacing(MAX_MHZ).idle_s([LONG] * 15 + [KEPT] * 5) == 0


@pytest.mark.parametrize(
    ("idle_s", "slept_s"), [(0.0, []), (1e-4, []), (3e-4, []), (3.1e-4, [2.1e-4]), (4e-3, [3.9e-3])]
)
@pytest.mark.parametrize("late_s", [0.0, 6e-5, 1.0])
def test_rest_lasts_as_long_as_asked(
    monkeypatch: pytest.MonkeyPatch, idle_s: float, slept_s: list[float], late_s: float
) -> None:
    """To a microsecond, unless the sleep is later than the spinning makes up for."""
    clock = Clock(tick_s=1e-6, late_s=late_s)
    clock.read_by_all(monkeypatch)
    rest(idle_s)
    assert clock.slept_s == pytest.approx(slept_s)
    lasted_s = max(idle_s, slept_s[0] + late_s if slept_s else 0)
    assert lasted_s <= clock.now_s <= lasted_s + 3e-6


@pytest.mark.parametrize(
    ("locked", "expected_mhz"), [(None, 1980), (1410, 1410), ("max", 1980), ("base", None), ("elsewhere", 1980)]
)
def test_a_locked_clock_is_the_highest_to_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: Any, expected_mhz: int | None
) -> None:
    """A call at it has not sunk; of a base clock that NVML does not tell, the time decides."""
    monkeypatch.setitem(sys.modules, "pynvml", Recording(tmp_path))
    facts = DeviceFacts(type="cuda", name="a GPU", host="here", uuid="GPU-fake-1", max_sm_clock_mhz=1980)
    device = Device(torch.device("cpu"), facts)
    uuid, wish = ("GPU-fake-2", 1410) if locked == "elsewhere" else ("GPU-fake-1", locked)
    with nullcontext() if locked is None else ClockLock(uuid, wish, tmp_path):
        assert Pacing.of(device) == Pacing(expected_mhz)
    assert Pacing.of(device) == Pacing(1980)
