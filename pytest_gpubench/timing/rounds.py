"""Several calls timed in turn, so that what disturbs one of them disturbs all: rounds of mirrored orders."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_gpubench.errors import GpuBenchError, IncompleteRecords, KernelsDiffer, annotate
from pytest_gpubench.stats.speedup import log_ratio
from pytest_gpubench.timing.base import Call, Rep, Session, Timer
from pytest_gpubench.timing.sampling import (
    ATTEMPTS,
    MAX_PAUSE_S,
    PAUSE_S,
    Sample,
    Watch,
    check_same_kernels,
    collection_off,
)
from pytest_gpubench.units import count

__tracebackhide__ = True

Order = Sequence[str]
"""The arms of a round by name, each twice."""


@dataclass(frozen=True)
class Arm:
    """A call that takes part, and what its warm-up found out."""

    call: Call
    idle_s: float = 0.0
    batch: int = 1
    """How many reps make one reading of the clock, where its ticks are too coarse for one rep."""


@dataclass
class Interleaved:
    """The rounds taken so far."""

    samples: dict[str, Sample]
    rounds: list[dict[str, tuple[float, float]]] = field(default_factory=list)
    """By round and arm, its two readings in microseconds."""

    def log_ratios(self, reference: str, candidate: str) -> list[float]:
        """Return a log-ratio for each round; above 0 where the candidate was faster."""
        return [log_ratio(readings[reference], readings[candidate]) for readings in self.rounds]

    def ratio(self, reference: str, candidate: str) -> float:
        """Return how many times as fast as the reference the candidate is, the median over the rounds."""
        return math.exp(statistics.median(self.log_ratios(reference, candidate)))


def take_rounds(
    timer: Timer,
    arms: Mapping[str, Arm],
    orders: Sequence[Order],
    watch: Watch,
    taken: Interleaved,
    left_s: float,
    interleave: bool = True,
) -> None:
    """Add a round for each order: one session, as many as it takes where it cannot hold them all.

    A round with a throttled rep is taken again, within the time left and the room for it in its session. Without
    `interleave` each arm's reps of a session follow one another; the rounds are then made of the reps of equal number.
    """
    deadline_s = time.perf_counter() + left_s
    room = timer.max_reps // 2 if interleave else timer.max_reps  # the other half is for rounds taken again
    size = max(1, room // sum(2 * arm.batch for arm in arms.values()))
    for start in range(0, len(orders), size):
        _take_session(timer, arms, orders[start : start + size], watch, taken, deadline_s, interleave)


def _take_session(
    timer: Timer,
    arms: Mapping[str, Arm],
    orders: Sequence[Order],
    watch: Watch,
    taken: Interleaved,
    deadline_s: float,
    interleave: bool,
) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with collection_off(), timer.session() as session:
                turns = schedule(orders, interleave)
                again = timer.max_reps - reps_in(turns, arms) if interleave else 0
                done = fill_session(session, arms, turns, watch, deadline_s, again)
            groups = group_reps(session.reps(), arms, done)
            for name, sample in taken.samples.items():
                check_same_kernels(arms[name].call, [*sample.reps[:1], *groups.reps_of(name)])
        except (IncompleteRecords, KernelsDiffer) as error:
            if attempt == ATTEMPTS:
                raise type(error)(f"{error} (measured {count(ATTEMPTS, 'time')})") from None
            for sample in taken.samples.values():
                sample.remeasured += 1
            continue
        groups.add_to(taken, len(orders))
        return


@dataclass
class Turn:
    """The reps of one arm at one place of a round, and the throttle reasons that were seen in them."""

    name: str
    round: int
    mask: int = 0


def schedule(orders: Sequence[Order], interleave: bool) -> list[Turn]:
    """Return the turns of all rounds, round by round or arm by arm."""
    turns = [Turn(name, number) for number, order in enumerate(orders) for name in order]
    return turns if interleave else sorted(turns, key=lambda turn: orders[0].index(turn.name))


def reps_in(turns: Sequence[Turn], arms: Mapping[str, Arm]) -> int:
    """Return how many reps the turns are made of."""
    return sum(arms[turn.name].batch for turn in turns)


def fill_session(
    session: Session,
    arms: Mapping[str, Arm],
    turns: Sequence[Turn],
    watch: Watch,
    deadline_s: float,
    again: int,
) -> list[Turn]:
    """Take every turn; a round in which the GPU was throttled again at the end, while there is time and room.

    again: the reps that there is room for beside those of the turns.
    """
    pause_s = PAUSE_S
    done: list[Turn] = []
    waiting = list(turns)
    rounds = 1 + max(turn.round for turn in turns)
    while waiting:
        turn = waiting.pop(0)
        for _ in range(arms[turn.name].batch):
            _take_rep(session, arms[turn.name], len(done) + 1)
            turn.mask |= watch()
        done.append(turn)
        if waiting and waiting[0].round == turn.round:
            continue
        members = [other for other in done if other.round == turn.round]
        again_s = time.perf_counter() + pause_s
        if any(other.mask for other in members) and reps_in(members, arms) <= again and again_s <= deadline_s:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            waiting += [Turn(other.name, rounds) for other in members]
            rounds, again = rounds + 1, again - reps_in(members, arms)
    return done


def _take_rep(session: Session, arm: Arm, number: int) -> None:
    try:
        session.take(arm.call, arm.idle_s)
    except GpuBenchError:
        raise
    except Exception as error:
        annotate(error, f"gpu_bench: raised in turn {number} of {arm.call.label!r}, in the comparison")
        raise


@dataclass
class Groups:
    """The reps of a session by round and arm."""

    turns: list[Turn]
    reps: list[Sequence[Rep]]

    def reps_of(self, name: str) -> list[Rep]:
        """Return the reps of an arm."""
        return [rep for turn, reps in zip(self.turns, self.reps, strict=True) if turn.name == name for rep in reps]

    def add_to(self, taken: Interleaved, wanted: int) -> None:
        """Keep so many rounds, those without throttling first; count and drop the others."""
        rounds: dict[int, list[tuple[Turn, Sequence[Rep]]]] = {}
        for turn, reps in zip(self.turns, self.reps, strict=True):
            rounds.setdefault(turn.round, []).append((turn, reps))
        ordered = sorted(rounds.values(), key=lambda members: any(turn.mask for turn, _ in members))
        for members in ordered[:wanted]:
            taken.rounds.append(readings_of(members))
            for turn, reps in members:
                taken.samples[turn.name].reps += reps
                taken.samples[turn.name].throttle_mask |= turn.mask
        for members in ordered[wanted:]:
            for turn, reps in members:
                taken.samples[turn.name].discarded += len(reps)


def readings_of(members: Sequence[tuple[Turn, Sequence[Rep]]]) -> dict[str, tuple[float, float]]:
    """Return each arm's two readings: the mean time of the reps of each of its turns."""
    readings: dict[str, list[float]] = {}
    for turn, reps in members:
        readings.setdefault(turn.name, []).append(statistics.fmean(rep.elapsed_us for rep in reps))
    return {name: (first, second) for name, (first, second) in readings.items()}


def group_reps(reps: Sequence[Rep], arms: Mapping[str, Arm], turns: list[Turn]) -> Groups:
    """Return the reps of a session, which come in the order of its turns."""
    grouped: list[Sequence[Rep]] = []
    position = 0
    for turn in turns:
        grouped.append(reps[position : position + arms[turn.name].batch])
        position += arms[turn.name].batch
    return Groups(turns, grouped)
