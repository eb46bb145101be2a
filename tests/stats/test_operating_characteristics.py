"""How often the verdict on a speedup is wrong, right or open, and what it costs.

In 400 sessions of a few kinds of noise, and with `-m slow` in 20,000 of each.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from pytest_gpubench.stats.regression import change_of_samples
from pytest_gpubench.stats.speedup import LOOKS, Quad, critical_ranks, log_ratios
from tests.stats.quads import decide, decide_change, orders
from tests.stats.simulation import Floats, autoregressive, slack

ROUNDED = 0.05

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

ALPHA = 0.001
TRIALS = 400
MANY_TRIALS = 20_000
FEW_FAIL = ALPHA + slack(ALPHA, TRIALS)
CHUNK = 1_000
LAUNCHES = 4 * LOOKS[-1]
CALLS = np.arange(LAUNCHES)
RAMP: Floats = np.log1p(0.03 * CALLS / 320)

Draw = Callable[[np.random.Generator, int], Floats]
"""Takes a generator and a number of sessions; returns the log of the factor on each call's time, a session a row."""


def wander(rng: np.random.Generator, trials: int, memory: float) -> Floats:
    return autoregressive(rng, (trials, LAUNCHES), memory)


def outliers(rng: np.random.Generator, trials: int) -> Floats:
    """One to five calls of a hundred, by session, take half as long again."""
    share = rng.uniform(0.01, 0.05, (trials, 1))
    return math.log(1.5) * (rng.random((trials, LAUNCHES)) < share).astype(float)


def modes(rng: np.random.Generator, trials: int, dwell: float) -> Floats:
    """Switch between two speeds that are 2.5 % apart, each of which lasts so many calls on average."""
    switches = rng.random((trials, LAUNCHES)) < 1 / dwell
    switches[:, 0] = rng.random(trials) < 0.5
    return 0.025 * (switches.cumsum(axis=1) % 2).astype(float)


def bursts(rng: np.random.Generator, trials: int) -> Floats:
    """Ten calls in a row take half as long again, again and again."""
    begun = (rng.random((trials, LAUNCHES)) < 0.01).cumsum(axis=1)
    before = np.concatenate([np.zeros((trials, 10)), begun[:, :-10]], axis=1)
    return 0.4 * (begun > before).astype(float)


def periodic(rng: np.random.Generator, trials: int, period: int) -> Floats:
    """Swing by 1 %, once in so many calls."""
    swing: Floats = 0.01 * np.sin(2 * np.pi * (CALLS / period + rng.random((trials, 1))))
    return swing


@dataclass(frozen=True)
class Model:
    """Name what disturbs a session, and how coarsely its clock reads the time of one call of the reference."""

    name: str
    beside: Draw | None = None
    """What disturbs the calls beside their jitter."""
    std: float = 0.003
    """The jitter of each call."""
    tick: float = 0.0
    alone: float = 0.0
    """Further jitter of the candidate only, so that the ratio itself changes from call to call."""

    def draw(self, rng: np.random.Generator, trials: int) -> Floats:
        noise: Floats = self.std * rng.standard_normal((trials, LAUNCHES))
        return noise if self.beside is None else noise + self.beside(rng, trials)


SHARED = Model("shared GPU: 3 % drift, 2 % jitter", lambda rng, trials: 0.03 * wander(rng, trials, 0.99), std=0.02)
SLOT = Model("3 % in every second call", lambda _, trials: math.log1p(0.03) * (CALLS % 2) * np.ones((trials, 1)))
MODELS = [
    Model("quiet: 0.3 % jitter"),
    Model("3 % AR(1) drift", lambda rng, trials: 0.03 * wander(rng, trials, 0.99)),
    Model("32 ns tick at 1.5 us", tick=0.032 / 1.5),
    Model("period of 5 calls", partial(periodic, period=5)),
    SHARED,
    Model("heavy tails: t(2)", lambda rng, trials: 0.003 * rng.standard_t(2, (trials, LAUNCHES)), std=0.0),
    Model("skewed: exponential", lambda rng, trials: rng.exponential(0.01, (trials, LAUNCHES)), std=0.0),
    Model("3 % ramp in 320 calls", lambda _, trials: RAMP * np.ones((trials, 1))),
    SLOT,
    Model("1 to 5 % outliers of 1.5x", outliers),
    Model("bursts of ten calls", bursts),
    Model("2 % AR(1) noise", lambda rng, trials: 0.02 * wander(rng, trials, 0.7)),
    Model("two speeds, dwell 3", partial(modes, dwell=3)),
    Model("two speeds, dwell 10", partial(modes, dwell=10)),
    Model("period of 3 calls", partial(periodic, period=3)),
    Model("period of 8 calls", partial(periodic, period=8)),
    Model("period of 20 calls", partial(periodic, period=20)),
    Model("2 % in 4 of 8 calls", lambda rng, n: np.where((CALLS + rng.integers(0, 8, (n, 1))) // 4 % 2, 0.02, 0.0)),
    Model("32 ns tick at 1.5 us, calm", std=0.0003, tick=0.032 / 1.5),
    Model("5 % tick", tick=0.05),
    Model("candidate is noisy alone", std=0.0005, alone=0.02),
]
TELLING = [model for model in MODELS if model is not SHARED and model.tick < 0.03]


def some(models: Sequence[Model], cheap: int = 4) -> list[Any]:
    """Return models as parameters, all but the first few of them slow."""
    return [
        pytest.param(model, id=model.name, marks=[pytest.mark.slow] if number >= cheap else [])
        for number, model in enumerate(models)
    ]


class Scenario(NamedTuple):
    ratio: float
    limit: float


EQUAL, AT_LIMIT = Scenario(1.0, 0.98), Scenario(0.98, 0.98)
SLOWER = {percent: Scenario(1 / (1 + percent / 100), 0.99) for percent in (2, 3, 5)}
SCENARIOS = (EQUAL, AT_LIMIT, *SLOWER.values())


SIX = np.array([[letter == "B" for letter in order] for order in sorted(set(orders(100, 0)))])


def in_quads(trials: int) -> Bools:
    """Return which calls are the candidate's, in orders drawn as `round_orders` draws them."""
    drawn = np.random.default_rng([trials, 7]).integers(0, len(SIX), (trials, LOOKS[-1]))
    return SIX[drawn].reshape(trials, LAUNCHES)


class Noise(NamedTuple):
    """What disturbs the calls, what disturbs the candidate's, where in a tick each begins, and its dither in ticks."""

    factors: Floats
    alone: Floats
    phases: Floats
    dither: Floats


def log_readings(model: Model, noise: Noise, is_candidate: Bools, scenario: Scenario) -> Floats:
    """Return the log of the time the clock reads for each call; one of the reference would take 1 without noise."""
    calls = is_candidate.shape[1]
    logs: Floats = noise.factors[:, :calls] - math.log(scenario.ratio) * is_candidate
    if model.alone:
        logs += noise.alone[:, :calls] * is_candidate
    if not model.tick:
        return logs
    read: Floats = np.floor(noise.phases[:, :calls] + np.exp(logs) / model.tick) + noise.dither[:, :calls]
    return np.log(read * model.tick)


def votes_of(logs: Floats, is_candidate: Bools) -> Floats:
    shape = (len(logs), -1, 2)
    ours, theirs = logs[~is_candidate].reshape(shape), logs[is_candidate].reshape(shape)
    pairs = (ours[..., :, None] - theirs[..., None, :]).reshape(*ours.shape[:2], 4)
    mean = (ours.sum(axis=2) - theirs.sum(axis=2)) / 2
    votes: Floats = np.concatenate([pairs, mean[..., None]], axis=2)
    return votes


class Verdicts(NamedTuple):
    """Say of each session whether it failed or passed, and after how many quads it was over."""

    failed: Bools
    passed: Bools
    quads: Ints


def verdicts(votes: Floats, limit: float, alpha: float, tick: float = 0.0) -> Verdicts:
    """Return what `decide` says of each row, at the first look at which it is decided."""
    failed, passed = np.zeros(len(votes), bool), np.zeros(len(votes), bool)
    quads = np.full(len(votes), LOOKS[-1])
    low, high = ((votes < math.log(limit) + by).sum(axis=2).cumsum(axis=1) for by in (-ROUNDED * tick, ROUNDED * tick))
    for look, rank in zip(LOOKS, critical_ranks(LOOKS, alpha), strict=True):
        undecided = ~(failed | passed)
        failed |= undecided & (5 * look - low[:, look - 1] < (rank or 0))
        passed |= undecided & (high[:, look - 1] < (rank or 0))
        quads[undecided & (failed | passed)] = look
    return Verdicts(failed, passed, quads)


class Rates(NamedTuple):
    """Hold the shares of the sessions that ended so, and the mean of their quads."""

    failed: float
    passed: float
    quads: float


def noise_of(model: Model, rng: np.random.Generator, trials: int) -> Noise:
    nothing = np.empty((0, 0))
    return Noise(
        model.draw(rng, trials),
        model.alone * rng.standard_normal((trials, LAUNCHES)) if model.alone else nothing,
        rng.random((trials, LAUNCHES)) if model.tick else nothing,
        rng.triangular(-1, 0, 1, (trials, LAUNCHES)) if model.tick else nothing,
    )


def sessions(model: Model, trials: int) -> Iterator[Noise]:
    """Return the noise of so many sessions, a bounded number at a time; all scenarios see the same."""
    rng = np.random.default_rng([20250201, MODELS.index(model)])
    for start in range(0, trials, CHUNK):
        count = min(CHUNK, trials - start)
        yield noise_of(model, rng, count)


def samples_of(model: Model, noise: Noise, scenario: Scenario) -> Floats:
    is_candidate = in_quads(len(noise.factors))
    return votes_of(log_readings(model, noise, is_candidate, scenario), is_candidate)


@lru_cache(maxsize=64)
def rates(model: Model, trials: int) -> dict[Scenario, Rates]:
    sums = {scenario: np.zeros(3) for scenario in SCENARIOS}
    for noise in sessions(model, trials):
        for scenario, counted in sums.items():
            found = verdicts(samples_of(model, noise, scenario), scenario.limit, ALPHA, model.tick)
            counted += [found.failed.sum(), found.passed.sum(), found.quads.sum()]
    return {scenario: Rates(*(counted / trials).tolist()) for scenario, counted in sums.items()}


def quads_in(logs: Sequence[float], is_candidate: Sequence[bool]) -> list[Quad]:
    found = []
    for start in range(0, len(logs), 4):
        calls = range(start, start + 4)
        arms = ([math.exp(logs[call]) for call in calls if is_candidate[call] is arm] for arm in (False, True))
        found.append(Quad(*((first, second) for first, second in arms)))
    return found


def decide_look_by_look(quads: Sequence[Quad], limit: float, alpha: float) -> tuple[str, int]:
    """Return the verdict and the quads taken, as a session would find them."""
    for look in LOOKS:
        decision = decide(quads[:look], limit, alpha, LOOKS)
        if decision != "inconclusive":
            return decision, look
    return "inconclusive", LOOKS[-1]


@pytest.mark.parametrize("alpha", [0.001, 0.05])
@pytest.mark.parametrize("slower", [0.02, -0.03, 0.2])
def test_the_twin_of_the_verdict_is_equal(slower: float, alpha: float) -> None:
    is_candidate = in_quads(20)
    logs = np.random.default_rng(2).normal(0, 0.03, (20, LAUNCHES)) + slower * is_candidate
    found = verdicts(votes_of(logs, is_candidate), 1.0, alpha)
    words = np.where(found.failed, "fail", np.where(found.passed, "pass", "inconclusive")).tolist()
    expected = [
        decide_look_by_look(quads_in(*rows), 1.0, alpha)
        for rows in zip(logs.tolist(), is_candidate.tolist(), strict=True)
    ]
    assert list(zip(words, found.quads.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("model", "trials", "most"),
    [
        *(pytest.param(*each.values, TRIALS, FEW_FAIL, marks=each.marks, id=each.id) for each in some(MODELS)),
        *(pytest.param(each, MANY_TRIALS, 0.0012, marks=pytest.mark.slow) for each in MODELS),
    ],
)
def test_wrong_fails_are_as_rare_as_promised(model: Model, trials: int, most: float) -> None:
    """Drift, period or not: the order is random, so noise favours either arm as often; equal arms hardly ever fail."""
    found = rates(model, trials)
    assert found[EQUAL].failed <= ALPHA / 10 + slack(ALPHA / 10, trials)
    assert found[AT_LIMIT].failed <= most


@lru_cache(maxsize=1)
def votes_of_equal_arms(model: Model) -> Floats:
    """Return the votes of so many sessions that a rate is seen from both sides."""
    return samples_of(model, next(sessions(model, CHUNK)), EQUAL)


@pytest.mark.parametrize("model", some(MODELS, 1))
def test_a_ratio_at_the_limit_at_alpha_five_percent(model: Model) -> None:
    """Large enough an alpha to be seen from both sides: the promise is kept, and little is given away."""
    votes = votes_of_equal_arms(model) + math.log(AT_LIMIT.ratio)
    failed = verdicts(votes, AT_LIMIT.limit, 0.05).failed.mean()
    assert 0.02 - slack(0.02, CHUNK) <= failed <= 0.05 + slack(0.05, CHUNK)


@pytest.mark.slow
@pytest.mark.parametrize("tick", [0.008, 0.016, 0.032 / 1.5, 0.05])
@pytest.mark.parametrize("limit", [0.97, 0.9834, 0.9911, 1.0])
@pytest.mark.parametrize("std", [0.0, 0.003])
def test_the_clock_does_not_decide(limit: float, tick: float, std: float) -> None:
    """At the limit no more sessions fail than promised, and no more pass, wherever the steps of the clock are."""
    model = Model("ticking", std=std, tick=tick)
    noise = noise_of(model, np.random.default_rng(5), 1000)
    found = verdicts(samples_of(model, noise, Scenario(limit, limit)), limit, ALPHA, tick)
    for wrong in (found.failed, found.passed):
        assert wrong.mean() <= ALPHA + slack(ALPHA, 1000)


@pytest.mark.parametrize("percent_slower", [2, 3, 5])
@pytest.mark.parametrize("model", some(TELLING))
def test_slowdowns_are_found(model: Model, percent_slower: int) -> None:
    found = rates(model, TRIALS)[SLOWER[percent_slower]]
    assert found.failed > 0.99
    assert found.quads < MOST_QUADS[percent_slower] * (3 if model is SLOT else 1)


MOST_QUADS = {2: 75, 3: 35, 5: 20}
"""The mean quads until a verdict on a candidate that is 1, 2 or 4 % beyond its limit, in all noises."""


@pytest.mark.parametrize("model", some(MODELS, 2))
def test_equal_arms_pass(model: Model) -> None:
    found = rates(model, TRIALS)
    assert found[EQUAL].passed > 0.999
    assert found[EQUAL].quads < 75 or model is SHARED


def preempted(rng: np.random.Generator, is_candidate: Bools, call_ms: float, slower: float, share: float) -> Floats:
    """Return the log times of calls, a share of which waits for 4 to 12 ms while others have the core."""
    own_ms = call_ms * np.where(is_candidate, slower, 1.0) * np.exp(0.01 * rng.standard_normal(is_candidate.shape))
    waiting = rng.random(is_candidate.shape) < share
    logs: Floats = np.log(own_ms + waiting * rng.uniform(4, 12, is_candidate.shape))
    return logs


@pytest.mark.parametrize(
    ("share", "call_ms", "most_quads"),
    [(0.1, 0.3, 14), (0.1, 2.0, 12), (0.3, 0.3, 50), (0.3, 2.0, 20), (0.5, 0.3, 200), (0.5, 2.0, 60)],
)
def test_four_times_as_slow_on_a_busy_host(share: float, call_ms: float, most_quads: int) -> None:
    """Against min_speedup=0.9: it fails."""
    is_candidate = in_quads(200)
    logs = preempted(np.random.default_rng(8), is_candidate, call_ms, 4.0, share)
    found = verdicts(votes_of(logs, is_candidate), 0.9, ALPHA)
    assert found.failed.all()
    assert found.quads.mean() < most_quads


@pytest.mark.parametrize(("share", "least"), [(0.1, 1.0), (0.2, 0.97), (0.3, 0.7)])
def test_four_times_as_slow_as_a_saved_run_on_a_busy_host(share: float, least: float) -> None:
    """By the fastest calls of a quad it fails, where both runs are held up; by the means it is seldom decided."""
    failed, rng = Counter[bool](), np.random.default_rng(10)
    for session in range(100):
        is_candidate = in_quads(session + 1)[-1:, : 4 * 28]
        runs = [preempted(rng, is_candidate, 0.5, slower, share)[0].tolist() for slower in (1.0, 4.0)]
        old, new = (quads_in(logs, is_candidate[0].tolist()) for logs in runs)
        for fastest in (True, False):
            change = change_of_samples(log_ratios(old, fastest), log_ratios(new, fastest), "speedup", ALPHA / 2)
            failed[fastest] += decide_change(change, 0.5) == "fail"
    assert failed[True] / 100 >= least
    assert failed[False] < failed[True] or share < 0.2


@pytest.mark.parametrize("trials", [200, pytest.param(MANY_TRIALS, marks=pytest.mark.slow)])
def test_as_fast_on_a_busy_host(trials: int) -> None:
    is_candidate = in_quads(trials)
    logs = preempted(np.random.default_rng(9), is_candidate, 0.5, 1.0, 0.3)
    assert verdicts(votes_of(logs, is_candidate), 1.0, ALPHA).failed.mean() <= ALPHA + slack(ALPHA, trials)
