"""Several calls timed in turn, so that what disturbs one of them disturbs all: rounds of mirrored orders."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_gpubench.errors import GpuBenchError, IncompleteRecords, KernelsDiffer, annotate
from pytest_gpubench.gpu.readings import NO_READING, Reading
from pytest_gpubench.stats.speedup import log_ratio, pooled
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


@dataclass
class Interleaved:
    """The rounds taken so far."""

    samples: dict[str, Sample]
    pool: int = 1
    """How many neighbouring rounds make one log-ratio, where the ticks of the clock are too coarse for one round."""
    rounds: list[dict[str, tuple[float, float]]] = field(default_factory=list)
    """By round and arm, its two readings in microseconds."""

    def log_ratios(self, reference: str, candidate: str) -> Sequence[float]:
        """Return a log-ratio for each pool of rounds; above 0 where the candidate was faster."""
        return pooled([log_ratio(times[reference], times[candidate]) for times in self.rounds], self.pool)


def take_rounds(
    timer: Timer,
    arms: Mapping[str, Arm],
    orders: Sequence[Order],
    watch: Watch,
    taken: Interleaved,
    left_s: float,
    interleave: bool = True,
    again: bool = True,
) -> None:
    """Add a round for each order: one session, as many as it takes where it cannot hold them all.

    A round with a throttled rep is taken again, within the time left and the room for it in its session. Without
    `interleave` each arm's reps of a session follow one another; the rounds are then made of the reps of equal number.
    Without `again`, kernels that differ once raise at once.
    """
    deadline_s = time.perf_counter() + left_s
    room = timer.max_reps // 2 if interleave else timer.max_reps  # the other half is for rounds taken again
    size = max(1, room // (2 * len(arms)))
    for start in range(0, len(orders), size):
        _take_session(timer, arms, orders[start : start + size], watch, taken, deadline_s, interleave, again)


def _take_session(
    timer: Timer,
    arms: Mapping[str, Arm],
    orders: Sequence[Order],
    watch: Watch,
    taken: Interleaved,
    deadline_s: float,
    interleave: bool,
    retry: bool,
) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with collection_off(), timer.session() as session:
                turns = schedule(orders, interleave)
                again = timer.max_reps - len(turns) if interleave else 0
                done = fill_session(session, arms, turns, watch, deadline_s, again)
            reps = Reps(done, session.reps())
            for name, sample in taken.samples.items():
                check_same_kernels(arms[name].call, [*sample.reps[:1], *reps.of(name)])
        except (IncompleteRecords, KernelsDiffer) as error:
            if isinstance(error, KernelsDiffer) and not retry:
                raise
            if attempt == ATTEMPTS:
                raise type(error)(f"{error} (measured {count(ATTEMPTS, 'time')})") from None
            for sample in taken.samples.values():
                sample.remeasured += 1
            continue
        reps.add_to(taken, len(orders))
        return


@dataclass
class Turn:
    """The rep of one arm at one place of a round, and what was read after it."""

    name: str
    round: int
    reading: Reading = NO_READING

    @property
    def throttled(self) -> bool:
        """Whether the GPU was."""
        return bool(self.reading.throttle_mask)


def schedule(orders: Sequence[Order], interleave: bool) -> list[Turn]:
    """Return the turns of all rounds, round by round or arm by arm."""
    turns = [Turn(name, number) for number, order in enumerate(orders) for name in order]
    return turns if interleave else sorted(turns, key=lambda turn: orders[0].index(turn.name))


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
        _take_rep(session, arms[turn.name], len(done) + 1)
        turn.reading = watch()
        done.append(turn)
        if waiting and waiting[0].round == turn.round:
            continue
        members = [other for other in done if other.round == turn.round]
        again_s = time.perf_counter() + pause_s
        if any(other.throttled for other in members) and len(members) <= again and again_s <= deadline_s:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            waiting += [Turn(other.name, rounds) for other in members]
            rounds, again = rounds + 1, again - len(members)
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
class Reps:
    """The reps of a session, which come in the order of its turns."""

    turns: Sequence[Turn]
    reps: Sequence[Rep]

    def of(self, name: str) -> list[Rep]:
        """Return the reps of an arm."""
        return [rep for turn, rep in zip(self.turns, self.reps, strict=True) if turn.name == name]

    def add_to(self, taken: Interleaved, wanted: int) -> None:
        """Keep so many rounds, those without throttling first; count and drop the others."""
        rounds: dict[int, list[tuple[Turn, Rep]]] = {}
        for turn, rep in zip(self.turns, self.reps, strict=True):
            rounds.setdefault(turn.round, []).append((turn, rep))
        ordered = sorted(rounds.values(), key=lambda members: any(turn.throttled for turn, _ in members))
        for members in ordered[:wanted]:
            taken.rounds.append(readings_of(members))
            for turn, rep in members:
                taken.samples[turn.name].keep(rep, turn.reading)
        for members in ordered[wanted:]:
            for turn, _ in members:
                taken.samples[turn.name].discarded += 1


def readings_of(members: Sequence[tuple[Turn, Rep]]) -> dict[str, tuple[float, float]]:
    """Return each arm's two readings."""
    readings: dict[str, list[float]] = {}
    for turn, rep in members:
        readings.setdefault(turn.name, []).append(rep.elapsed_us)
    return {name: (first, second) for name, (first, second) in readings.items()}
