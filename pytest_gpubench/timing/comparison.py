"""One comparison from warm-up to log-ratios: quads are added until every question is decided."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.readings import NO_READING
from pytest_gpubench.results.model import Timing
from pytest_gpubench.stats.speedup import LOOKS, needed_batch, quads_of, round_orders
from pytest_gpubench.timing.base import Call, Timer
from pytest_gpubench.timing.measurement import Plan, summarise
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.rounds import Arm, Interleaved, take_rounds
from pytest_gpubench.timing.sampling import Sample, watch_of
from pytest_gpubench.timing.warmup import Warmth, warm_up

__tracebackhide__ = True

LEAST_MARGIN = 0.005
"""No finer than this are short kernels resolved by pooling: 0.5 %, as the default precision."""
MAX_POOL = 32

Decided = Callable[[Interleaved, tuple[int, ...]], bool]
"""Told the rounds so far and the planned looks, one of which has as many rounds; returns whether all is decided."""


@dataclass(frozen=True)
class Match:
    """What is compared, and how."""

    calls: Mapping[str, Call]
    reference: str
    limits: Mapping[str, float]
    """The speedup asked of each candidate that a limit is set for."""
    seed: int
    interleave: bool = True
    begin: Callable[[], None] = lambda: None
    """Told when warming up is over."""


def compare(
    match: Match, timer: Timer, device: Device, plan: Plan, decided: Decided, say: Callable[[str], None]
) -> tuple[Interleaved, dict[str, Timing]]:
    """Return the rounds taken, and the timing of every arm."""
    started_s = time.perf_counter()
    watch, pacing = watch_of(device, timer), Pacing.of(device)
    warmths: dict[str, Warmth] = {}
    for name, call in match.calls.items():
        say(f"{name}: compiling and warming up")
        warmths[name] = warm_up(timer, device, call, plan.warmup, pacing, watch)
    say(f"comparing {', '.join(match.calls)}")
    match.begin()
    arms = make_arms(match, warmths, pacing)
    # so many reps of each function were asked for: none to spare for pooling
    pool = 1 if plan.reps is not None else needed_pool(match, timer, warmths)
    taken = Interleaved({name: Sample() for name in match.calls}, pool)
    deadline_s = timer.clock_s() + plan.max_time_s
    looks: tuple[int, ...] = ()
    following = next_look(plan, 0, 0.0, plan.max_time_s)
    while following is not None:
        orders = round_orders(tuple(match.calls), pool * following, match.seed)[len(taken.rounds) :]
        began_s = timer.clock_s()
        take_rounds(timer, arms, orders, watch, taken, deadline_s - began_s, match.interleave)
        ended_s = timer.clock_s()
        looks = (*looks, following)
        following = next_look(plan, looks[-1], pool * (ended_s - began_s) / len(orders), deadline_s - ended_s)
        if decided(taken, looks if following is None else (*looks, following)):
            break
    share_s = (time.perf_counter() - started_s) / len(match.calls)
    counted = replace(plan, reps=2 * len(taken.rounds))  # the ratio has to be precise, not each arm's time
    timings = {
        name: summarise(call, timer, device, counted, warmths[name], taken.samples[name], share_s)
        for name, call in match.calls.items()
    }
    return taken, timings


def take_once_more(match: Match, timer: Timer, taken: Interleaved) -> None:
    """Take one more round, whose times do not count; raise KernelsDiffer where it launches other kernels.

    The calls cannot tell it from those that count.
    """
    arms = {name: Arm(replace(call, prepares_on_device=True)) for name, call in match.calls.items()}
    again = Interleaved({name: Sample(sample.reps[:1]) for name, sample in taken.samples.items()})
    orders = round_orders(tuple(match.calls), 1, match.seed)
    take_rounds(timer, arms, orders, lambda: NO_READING, again, 0.0, again=False)


def next_look(plan: Plan, ratios: int, cost_s: float, left_s: float) -> int | None:
    """Return after how many log-ratios to look next; None when enough are taken, or no time is left.

    The first look is always taken. A number of reps asks for one look: two reps of each arm make a round. Where time
    is too short for the next planned look, the last one is at what it is long enough for.
    """
    if plan.reps is not None:
        return quads_of(plan.reps) if not ratios else None
    following = next((look for look in LOOKS if look > ratios), None)
    if following is None or not ratios:
        return following
    affordable = ratios + int(left_s / cost_s)
    least_worthwhile = ratios + LOOKS[0] // 2
    if affordable < least_worthwhile:
        return None
    return min(following, affordable)


def make_arms(match: Match, warmths: Mapping[str, Warmth], pacing: Pacing) -> dict[str, Arm]:
    """Return the arms, each idling before its reps as it has to."""
    return {name: Arm(call, pacing.idle_s(warmths[name].sample.reps)) for name, call in match.calls.items()}


def needed_pool(match: Match, timer: Timer, warmths: Mapping[str, Warmth]) -> int:
    """Return how many rounds make one log-ratio, so that in the closest pair the clock's ticks do not decide."""
    reference_us = warmths[match.reference].call_us
    candidates = [name for name in match.calls if name != match.reference]
    return max(
        pool_for(timer.tick_us, warmths[name].call_us, reference_us, match.limits.get(name)) for name in candidates
    )


def pool_for(tick_us: float, call_us: float, reference_us: float, limit: float | None) -> int:
    """Return how many rounds of a pair make one log-ratio: more where the answer seems close on a coarse clock."""
    if not tick_us or not call_us or not reference_us:
        return 1
    distance = abs(math.log(reference_us / call_us / limit)) if limit else LEAST_MARGIN
    return min(needed_batch(tick_us, min(call_us, reference_us), max(distance, LEAST_MARGIN)), MAX_POOL)
