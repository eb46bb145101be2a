"""The tracing tax: measured, taken off the reps, and zero where it cannot be told from noise."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.events import Lap
from pytest_gpubench.timing.tracing_tax import Taxes
from pytest_gpubench.timing.warmup import warm_up
from tests.timing.fakes import Clock, FakeTimer, call_of, instrument_of, rep

ALIKE = 0.03
LATE_US = 100.0
GAP_US = 0.2
LAP_S = 0.02
LEAST_CALL_US = 20.0
LEAST_TAX = 0.005
MOST_REPS = 4
MOST_REP_S = 0.05
MOST_TAX = 0.1


@dataclass
class Gpu:
    """A GPU whose calls take 100 us between two events, and more while it is traced.

    drift_us: by so much each lap takes longer than the one before. slow_laps: so many, at first, take 10 us longer.
    spoilt_laps: in so many, at first, the host is not ahead. quick_lap: one to which tracing adds nothing.
    """

    added_us: float
    noise_us: float = 0.3
    drift_us: float = 0.0
    slow_laps: int = 0
    late_us: float = 5.0
    spoilt_laps: float = 0
    quick_lap: int = 0
    is_traced: bool = False
    laps: int = 0
    known: list[Any] = field(default_factory=list)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        assert not self.is_traced
        self.is_traced = True
        yield
        self.is_traced = False

    def taxes(self) -> Taxes:
        return Taxes(self.lap, self.tracing, self.known)

    def lap(self, call: Call, idle_s: float) -> Lap:
        self.laps += 1
        slow_us = 10.0 * (self.laps <= self.slow_laps) + self.drift_us * self.laps
        is_taxed = self.is_traced and self.laps != self.quick_lap
        elapsed_us = 100 + self.added_us * is_taxed + slow_us + self.noise_us * (0, 1, -1)[self.laps % 3]
        return Lap(elapsed_us, 100, 5, 6, self.laps > self.spoilt_laps, self.late_us)


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("traced_us", "added_us", "noise_us", "rep_s", "tax_us"),
    [
        (104, 4 + GAP_US, 0.3, 1e-3, 4.0),  # what lies between the kernels is in no record
        (100, 0.0, 0.3, 1e-3, 0.0),
        (100, -1.0, 0.3, 1e-3, 0.0),
        (104, 4 + GAP_US, 5.0, 1e-3, 0.0),  # the noise hides it
        (100, GAP_US + 101 * LEAST_TAX, 0.0, 1e-3, 101 * LEAST_TAX),
        (100, GAP_US + 99 * LEAST_TAX, 0.0, 1e-3, 0.0),
        (100, GAP_US + 90 * MOST_TAX, 0.0, 1e-3, 90 * MOST_TAX),
        (100, GAP_US + 92 * MOST_TAX, 0.0, 1e-3, 0.0),
        (1.01 * LEAST_CALL_US, 1 + GAP_US, 0.0, 1e-3, 1.0),
        (0.99 * LEAST_CALL_US, 1 + GAP_US, 0.0, 1e-3, 0.0),
        (104, 4 + GAP_US, 0.3, MOST_REP_S, 4.0),
        (104, 4 + GAP_US, 0.3, 1.01 * MOST_REP_S, 0.0),
    ],
)
def test_the_tax_is_what_tracing_adds(
    traced_us: float, added_us: float, noise_us: float, rep_s: float, tax_us: float
) -> None:
    taxes, call = Gpu(added_us, noise_us).taxes(), call_of(nothing)
    tax = taxes.learn(call, [rep(traced_us)] * 5, 0.0, rep_s)
    assert traced_us / (1 + tax) == pytest.approx(traced_us - tax_us, abs=1e-6)
    assert taxes.of(call) == tax
    assert taxes.of(call_of(lambda: None)) == 0


@pytest.mark.parametrize(
    ("gpu", "kernels", "tax"),
    [
        (Gpu(6 * GAP_US), "abcdef", 0),  # each gap between kernels is left out
        (Gpu(6 * GAP_US + 4), "abcdef", 0.04),
        (Gpu(4 + GAP_US, noise_us=0.0, quick_lap=3), "a", 0),  # the others were slow for another reason
        (Gpu(0.0, drift_us=0.15), "a", 0),
        (Gpu(0.0, drift_us=-0.15), "a", 0),
        *((Gpu(4 + GAP_US, noise_us=0.0, slow_laps=laps), "a", 0.04) for laps in (0, MOST_REPS // 2, MOST_REPS)),
        (Gpu(4 + GAP_US, spoilt_laps=2 * MOST_REPS / 2), "a", 0.04),  # they are taken again
        (Gpu(4 + GAP_US, spoilt_laps=3 * MOST_REPS / 2), "a", 0),
        (Gpu(4 + GAP_US, spoilt_laps=math.inf), "a", 0),
        (Gpu(4 + GAP_US, late_us=LATE_US), "a", 0.04),
        (Gpu(4 + GAP_US, late_us=1.01 * LATE_US), "a", 0),  # it works on where events do not see it
    ],
)
def test_only_what_tracing_adds_is_a_tax(gpu: Gpu, kernels: str, tax: float) -> None:
    found = gpu.taxes().learn(call_of(nothing), [rep(104, kernels)], 0.0, 1e-3)
    assert found == pytest.approx(tax)


@pytest.mark.parametrize(
    ("added_us", "rep_s", "laps"),
    [(0.0, 1e-3, 2 * MOST_REPS), (4.0, 1e-3, 6 * MOST_REPS), (0.0, LAP_S / 3, 6), (0.0, LAP_S, 4)],
)
def test_a_call_without_tax_costs_a_few_laps(added_us: float, rep_s: float, laps: int) -> None:
    gpu = Gpu(added_us)
    gpu.taxes().learn(call_of(nothing), [rep(100)], 0.0, rep_s)
    assert gpu.laps == laps


@pytest.mark.parametrize("spoilt_laps", [0, math.inf])
def test_the_laps_outside_of_sessions_are_kept(spoilt_laps: float) -> None:
    taxes = Gpu(4.0, noise_us=0.0, spoilt_laps=spoilt_laps).taxes()
    taxes.learn(call_of(nothing), [rep(104)], 0.0, 1e-3)
    assert list(taxes.outside_us.values()) == ([] if spoilt_laps else [[100.0] * 3 * MOST_REPS])


@pytest.mark.parametrize(
    ("kernels", "traced_us", "same"),
    [("a", 104 * (1 + 0.99 * ALIKE), True), ("a", 104 / (1 - 1.01 * ALIKE), False), ("b", 104.0, False)],
)
def test_the_same_kernels_pay_the_same_tax(kernels: str, traced_us: float, same: bool) -> None:
    """Two taxes of one kernel would differ by their noise, and so would the ratio of the kernel with itself."""
    gpu = Gpu(4 + GAP_US)
    taxes = gpu.taxes()
    first = taxes.learn(call_of(nothing), [rep(104, "a")], 0.0, 1e-3)
    gpu.added_us = 5.0
    second = taxes.learn(call_of(lambda: None), [rep(traced_us, kernels)], 0.0, 1e-3)
    assert (first == second) is same
    assert gpu.taxes().learn(call_of(nothing), [rep(traced_us, kernels)], 0.0, 1e-3) == second  # by another timer


def test_a_call_that_never_rests_pays_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of kernels and its graph may differ in whether they come to rest, not in what tracing adds."""
    learnt: list[float] = []
    timer = FakeTimer(Clock(), play=lambda number: rep(100 * 1.05 ** (number // 5)))

    def calibrate(call: Call, reps: Sequence[Rep], *_: float) -> Sequence[Rep]:
        learnt.append(reps[0].elapsed_us)
        return reps

    monkeypatch.setattr(timer, "calibrate", calibrate)
    warmth = warm_up(instrument_of(timer), cpu_device(), {"a": call_of(nothing)}, None)["a"]
    assert (warmth.settled, warmth.sample.reps) == (False, [])
    assert learnt == [100 * 1.05 ** (timer.taken // 5 - 1)]


def test_the_reps_at_rest_are_calibrated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = FakeTimer(Clock(), play=lambda number: rep(104.0))
    monkeypatch.setattr(timer, "calibrate", lambda call, reps, *_: [replace(each, elapsed_us=100.0) for each in reps])
    warmth = warm_up(instrument_of(timer), cpu_device(), {"a": call_of(nothing)}, None)["a"]
    assert warmth.sample.samples_us == (100.0,) * 5
