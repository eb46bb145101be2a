"""Limits on rates while reps are taken: the looks and the alpha of a limit on time, and how often it is wrong.

Only the times are played: what stops is what stops a test.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import Kernel, Timing
from pytest_gpubench.bench import request
from pytest_gpubench.bench.plan import plan_of
from pytest_gpubench.bench.request import MeasureRequest
from pytest_gpubench.bench.work import Work
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.results.model import MemoryPeak, Outcome, Peaks
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing import measurement
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.measurement import measure_call
from pytest_gpubench.verdict.limits import Judgement, Limits
from pytest_gpubench.verdict.limits.base import Seen
from tests.results.measured import timing_of
from tests.timing.fakes import ArmsTimer, Clock, call_of, rep
from tests.verdict.judging import judge

LEAST_REPS = 12

PASS, FAIL = Outcome.PASS, Outcome.FAIL
LIMIT_GBPS = 1000.0
MOVED_BYTES = 10**8
AT_LIMIT_US = MOVED_BYTES / LIMIT_GBPS / 1e3
SHORT_REP_S = 0.5e-3
"""What a rep of a short kernel takes on the host, flush and all: two thousand fit into the second that a limit has."""
MEDIUM_REP_S = 1.5e-3
"""Several hundred reps, and three looks."""
NOISES = (0.01, 0.05)
SIGMAS = 2
AT_LIMIT = Limits(min_gbps=LIMIT_GBPS)

Play = Callable[[str, int], Rep]


def noisy(rng: np.random.Generator, noise: float) -> Play:
    """Return reps whose median rate is at the limit, of lognormal noise."""
    times_us = AT_LIMIT_US * np.exp(noise * rng.standard_normal(20_000))
    return lambda name, number: rep(float(times_us[number]))


def settings_of(alpha: float) -> Settings:
    return Settings(timer="scripted", device="cpu", alpha=alpha)


def judgement_of(settings: Settings, limits: Limits) -> Judgement:
    return MeasureRequest(settings, cpu_device(), limits, (), {}).judgement(Work(moved_bytes=MOVED_BYTES))


def reps_of(play: Play, settings: Settings, rep_s: float, judgement: Judgement) -> Timing:
    """Take the reps of a measurement until they are judged."""
    clock = Clock()
    timer = ArmsTimer(clock, play, cost_s=rep_s, max_reps=20_000)
    with pytest.MonkeyPatch.context() as patch:
        clock.read_by_all(patch)
        return measure_call(
            call_of(lambda: None), timer, cpu_device(), plan_of(settings), judgement.look, lambda text: None
        )


# the same procedure as for a limit on time


@given(
    st.lists(st.floats(90, 110), min_size=LEAST_REPS, max_size=60),
    st.floats(800, 1200),
    st.sampled_from([0.2, 0.01, 0.001]),
    st.booleans(),
)
def test_a_rate_is_judged_as_the_time_that_it_stands_for(
    samples_us: list[float], gbps: float, alpha: float, single: bool
) -> None:
    """The inequality turned around, look by look."""
    settings = replace(settings_of(alpha), reps=1 if single else None)
    rate = judgement_of(settings, Limits(min_gbps=gbps))
    time = judgement_of(settings, Limits(max_time_us=MOVED_BYTES / gbps / 1e3))
    for taken in range(LEAST_REPS, len(samples_us) + 1, 8):
        seen = timing_of(tuple(samples_us[:taken]))
        assert rate.look(seen) is time.look(seen)
        assert [item.outcome for item in rate.verdicts] == [item.outcome for item in time.verdicts]
    assert rate.looks == time.looks


@given(st.lists(st.integers(2900, 3200), min_size=LEAST_REPS, max_size=60), st.data(), st.integers(2**20, 2**33))
def test_a_rate_and_the_time_that_it_was_computed_from_agree(ticks: list[int], data: st.DataObject, moved: int) -> None:
    """Where the limit is the time of a rep: an end of the interval is then exactly at it."""
    samples_us = tuple(tick * 0.032 for tick in ticks)
    wanted_us = data.draw(st.sampled_from(samples_us))
    seen = msgspec.structs.replace(timing_of(samples_us), moved_bytes=moved, flops=moved)
    [on_time] = judge(seen, Limits(max_time_us=wanted_us), 0.05)
    [gbps] = judge(seen, Limits(min_gbps=moved / wanted_us / 1e3), 0.05)
    [tflops] = judge(seen, Limits(min_tflops=moved / wanted_us / 1e6), 0.05)
    assert (gbps.outcome, tflops.outcome) == (on_time.outcome, on_time.outcome)


@pytest.mark.parametrize(("tick", "moved"), [(11, 2**21), (39, 2**21), (22, 2**26)])
def test_the_rate_of_reps_that_are_all_alike_is_reached(tick: int, moved: int) -> None:
    """Rates that are not what a product with the time and a quotient by it leave of them."""
    rate = moved / (tick * 0.032) / 1e3
    assert rate * (tick * 0.032) / (tick * 0.032) < rate
    seen = timing_of((tick * 0.032,) * 60, timer="wall", moved_bytes=moved)
    for wanted, outcome in ((rate, PASS), (rate * (1 + 1e-9), FAIL)):
        assert [item.outcome for item in judge(seen, Limits(min_gbps=wanted), 0.001)] == [outcome]


def test_peaks_are_measured_before_the_first_look_and_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def note(device: object, dtypes: tuple[str, ...]) -> Peaks:
        asked.append(tuple(dtypes))
        return Peaks(memory=(MemoryPeak(read_share=0.5, moved_bytes=1, gbps=2000.0),))

    monkeypatch.setattr(request, "measured_peaks", note)
    looked_for = MeasureRequest(
        replace(settings_of(0.01), timer="wall"), cpu_device(), Limits(min_peak_fraction=0.9), (), {}
    )
    judgement = looked_for.judgement(Work(MOVED_BYTES, 0.5, 10, "bfloat16"))
    assert asked == [("bfloat16",)]
    for _ in range(3):
        assert judgement.look(timing_of((50.0,) * 20))
    assert [item.outcome for item in judgement.verdicts] == [PASS]
    assert len(asked) == 1


def test_what_kernels_took_is_summed_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look needs the times alone, whatever there is to say of hundreds of kernels."""
    asked: list[int] = []

    def note(reps: list[Rep]) -> list[Kernel]:
        asked.append(len(reps))
        return []

    monkeypatch.setattr(measurement, "summarise_kernels", note)
    judgement = judgement_of(settings_of(0.001), AT_LIMIT)
    timing = reps_of(noisy(np.random.default_rng(1), 0.05), settings_of(0.001), SHORT_REP_S, judgement)
    assert judgement.looks > 1
    assert asked == [timing.reps]


def test_what_more_reps_cannot_settle_asks_for_none() -> None:
    """Unknown bytes, and a rate that cannot be true: INVALID at the first look already."""
    peaks = Peaks(copy_gbps=2000.0, read_gbps=2000.0)
    unknown = timing_of((20.0,) * 20)
    impossible = msgspec.structs.replace(unknown, moved_bytes=MOVED_BYTES)
    for timing, words in ((unknown, "not known"), (impossible, "faster than memory allows")):
        judgement = Judgement(Limits(min_gbps=1.0), 0.01, known=lambda seen: Seen(seen, peaks=peaks))
        assert judgement.look(timing)
        assert [item.outcome for item in judgement.verdicts] == [Outcome.INVALID]
        assert words in judgement.verdicts[0].sentence


def test_verdicts_come_in_the_order_in_which_limits_are_declared() -> None:
    limits = Limits(min_tflops=1, max_time_us=1, min_gbps=1, max_rel_std=0.1)
    judgement = MeasureRequest(settings_of(0.01), cpu_device(), limits, (), {}).judgement(Work(MOVED_BYTES, None, 1))
    judgement.look(timing_of((50.0,) * 20))
    names = [item.kind for item in judgement.verdicts]
    assert names == ["max_rel_std", "max_time_us", "min_gbps", "min_tflops"]


# how often it is wrong


@pytest.mark.parametrize("rep_s", [MEDIUM_REP_S, pytest.param(SHORT_REP_S, marks=pytest.mark.slow)])
def test_three_limits_at_once_each_fail_as_seldom_as_promised(rep_s: float) -> None:
    """All exactly at their limit: what one decides stands, and ends the reps that the others would have had."""
    alpha, number, noise = 0.05, 100, 0.05
    limits = Limits(max_rel_std=math.sqrt(math.expm1(noise**2)), max_time_us=AT_LIMIT_US, min_gbps=LIMIT_GBPS)
    failed: Counter[str] = Counter()
    looks: Counter[int] = Counter()
    for seed in np.random.SeedSequence(20250612).spawn(number):
        judgement = judgement_of(settings_of(alpha), limits)
        reps_of(noisy(np.random.default_rng(seed), noise), settings_of(alpha), rep_s, judgement)
        fails = [item.kind for item in judgement.verdicts if item.outcome is FAIL]
        failed.update([*fails, *(["any"] if fails else [])])
        assert len(judgement.verdicts) == len(SHARES) - 1
        looks[judgement.looks] += 1
    assert max(looks) > 2
    for name, share in SHARES.items():
        most = share * alpha
        assert failed[name] / number <= most + SIGMAS * math.sqrt(most * (1 - most) / number), name


SHARES = {"max_rel_std": 1, "max_time_us": 1, "min_gbps": 1, "any": 2}
"""Of alpha, by limit; of a time and its rate none fails without the other."""


@pytest.mark.parametrize("noise", NOISES)
def test_an_open_limit_takes_nothing_from_one_that_is_broken(noise: float) -> None:
    """A time 1 % above its limit, alone and beside a steadiness that is exactly at its limit."""
    open_too = Limits(max_time_us=AT_LIMIT_US / 1.01, max_rel_std=math.sqrt(math.expm1(noise**2)))
    found = []
    for limits in (Limits(max_time_us=AT_LIMIT_US / 1.01), open_too):
        judgement = judgement_of(settings_of(0.001), limits)
        timing = reps_of(noisy(np.random.default_rng(7), noise), settings_of(0.001), SHORT_REP_S, judgement)
        [on_time] = [item for item in judgement.verdicts if item.kind == "max_time_us"]
        found.append((on_time.outcome, timing.reps, judgement.looks))
    assert found[0] == found[1]
    assert found[0][0] is FAIL
