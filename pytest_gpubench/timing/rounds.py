"""Rounds of one call, or of several in turn, so that what disturbs one of them disturbs all."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pytest_gpubench.errors import KernelsDiffer, annotating
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.readings import NO_READING, Reading, Watcher
from pytest_gpubench.stats.speedup import Quad
from pytest_gpubench.timing.attempts import ATTEMPTS, Pauses, until_complete
from pytest_gpubench.timing.base import Call, Rep, Session, Timer, collection_off
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.windows import describe_difference, kernel_list

ArmOrder = Sequence[str]
"""The arms of a round by name, each twice in a comparison; once where one arm is measured."""


@dataclass(frozen=True)
class Instrument:
    """A timer, what is read of the GPU after each of its reps, and how the reps are paced."""

    timer: Timer
    watch: Callable[[], Reading]
    pacing: Pacing

    @classmethod
    def on(cls, device: Device, timer: Timer) -> "Instrument":
        """Return what measures on a device; nothing is read where the timer's times do not come from it."""
        return cls(timer, Watcher(device.nvml if timer.settles else None), Pacing.of(device))


@dataclass
class Sample:
    """The reps of one measurement so far."""

    reps: list[Rep] = field(default_factory=list)
    throttle_mask: int = 0
    discarded: int = 0
    remeasured: int = 0

    @property
    def samples_us(self) -> tuple[float, ...]:
        """The time of each rep."""
        return tuple(rep.elapsed_us for rep in self.reps)

    def count_again(self) -> None:
        """Count a session that is measured again."""
        self.remeasured += 1


@dataclass(frozen=True)
class Arm:
    """A call that takes part, and how long the GPU idles before each of its reps."""

    call: Call
    idle_s: float = 0.0


@dataclass
class Interleaved:
    """The rounds taken so far."""

    samples: dict[str, Sample]
    tick_us: float = 0.0
    """The step of the clock, by which readings are dithered in `rounds`; 0 leaves them."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    rounds: list[dict[str, tuple[float, ...]]] = field(default_factory=list)
    """The readings of each arm in each round, in microseconds."""

    def quads(self, reference: str, candidate: str) -> list[Quad]:
        """Return the readings of two arms, round by round."""
        return [Quad(times[reference], times[candidate]) for times in self.rounds]


def dithered(time_us: float, tick_us: float, chance: random.Random) -> float:
    """Return a reading of a clock that ticks, moved by chance by less than a tick, triangularly distributed.

    Readings that are whole ticks tie, or miss each other by a step, at a limit that no noise has chosen: without this
    0.09 to 0.30 of simulated verdicts on calls of 1.5 us with a tick of 32 ns failed at the limit, with it as many as
    of a fine clock.
    """
    return time_us + min(tick_us, time_us / 2) * (chance.random() - chance.random())


@dataclass
class ArmTurn:
    """The rep of one arm at one place of a round, and what was read after it."""

    name: str
    round: int
    reading: Reading = NO_READING

    @property
    def throttled(self) -> bool:
        """True if the GPU was throttled."""
        return bool(self.reading.throttle_mask)


Taken = Sequence[tuple[ArmTurn, Rep]]


def take_rounds(
    instrument: Instrument,
    arms: Mapping[str, Arm],
    orders: Sequence[ArmOrder],
    taken: Interleaved,
    left_s: float,
    interleave: bool = True,
    attempts: int = ATTEMPTS,
) -> None:
    """Add a round for each order: one session, as many as it takes where it cannot hold them all.

    A round with a throttled rep is taken again, within the time left and the room for it in its session. Without
    `interleave` each arm's reps of a session follow one another; the rounds are then made of the reps of equal number.
    A session is measured so often before IncompleteRecords or KernelsDiffer is raised.
    """

    def count_again() -> None:
        for sample in taken.samples.values():
            sample.count_again()

    deadline_s = time.perf_counter() + left_s
    max_reps = instrument.timer.max_reps
    room = max_reps // 2 if interleave and len(arms) > 1 else max_reps  # the other half is for rounds taken again
    size = max(1, room // len(orders[0]))
    for start in range(0, len(orders), size):
        chosen = orders[start : start + size]
        take = partial(_take_session, instrument, arms, chosen, taken, deadline_s, interleave)
        _keep_rounds(until_complete(take, attempts, count_again), taken, len(chosen))


def add_reps(
    instrument: Instrument,
    call: Call,
    wanted: int,
    idle_s: float,
    sample: Sample,
    left_s: float,
    attempts: int = ATTEMPTS,
) -> None:
    """Add so many reps to the sample of one call."""
    arms, taken = {call.label: Arm(call, idle_s)}, Interleaved({call.label: sample})
    take_rounds(instrument, arms, [(call.label,)] * wanted, taken, left_s, attempts=attempts)


def _take_session(
    instrument: Instrument,
    arms: Mapping[str, Arm],
    orders: Sequence[ArmOrder],
    taken: Interleaved,
    deadline_s: float,
    interleave: bool,
) -> Taken:
    """Return the turns of one session, each with its rep."""
    turns = [ArmTurn(name, number) for number, order in enumerate(orders) for name in order]
    if not interleave:
        turns.sort(key=lambda turn: orders[0].index(turn.name))
    with collection_off(), instrument.timer.session() as session:
        spare = instrument.timer.max_reps - len(turns) if interleave else 0
        done = _fill_session(session, instrument, arms, turns, Pauses(deadline_s), spare, taken)
    reps = list(zip(done, session.reps(), strict=True))
    for name, sample in taken.samples.items():
        check_same_kernels(arms[name].call, [*sample.reps[:1], *(rep for turn, rep in reps if turn.name == name)])
    return reps


def _fill_session(
    session: Session,
    instrument: Instrument,
    arms: Mapping[str, Arm],
    turns: Sequence[ArmTurn],
    pauses: Pauses,
    spare: int,
    taken: Interleaved,
) -> list[ArmTurn]:
    """Take every turn; a round in which the GPU was throttled again at the end, while there is time and room.

    spare: the reps that there is room for beside those of the turns.
    """
    done: list[ArmTurn] = []
    members: list[ArmTurn] = []
    waiting = list(turns)
    rounds = 1 + max(turn.round for turn in turns)
    number = Counter({name: len(sample.reps) + sample.discarded for name, sample in taken.samples.items()})
    with annotating(lambda: f"gpu_bench: raised in rep {number[turn.name]} of {turn.name!r}"):
        while waiting:
            turn = waiting.pop(0)
            number[turn.name] += 1
            session.take(arms[turn.name].call, arms[turn.name].idle_s)
            turn.reading = instrument.watch()
            done.append(turn)
            members.append(turn)
            if waiting and waiting[0].round == turn.round:
                continue
            if any(other.throttled for other in members) and len(members) <= spare and pauses.rest():
                waiting += [ArmTurn(other.name, rounds) for other in members]
                rounds, spare = rounds + 1, spare - len(members)
            members = []
    return done


def _keep_rounds(reps: Taken, taken: Interleaved, wanted: int) -> None:
    """Keep so many rounds, those with a throttled rep only where there are too few; count and drop the others."""
    rounds: dict[int, list[tuple[ArmTurn, Rep]]] = {}
    for turn, rep in reps:
        rounds.setdefault(turn.round, []).append((turn, rep))
    clean_first = sorted(rounds, key=lambda number: any(turn.throttled for turn, _ in rounds[number]))
    kept = set(clean_first[:wanted])
    for number, members in rounds.items():
        if number not in kept:
            for turn, _ in members:
                taken.samples[turn.name].discarded += 1
            continue
        readings: dict[str, list[float]] = {}
        for turn, rep in members:
            sample = taken.samples[turn.name]
            readings.setdefault(turn.name, []).append(rep.elapsed_us)
            sample.reps.append(replace(rep, reading=turn.reading))
            sample.throttle_mask |= turn.reading.throttle_mask or 0
        if taken.tick_us:  # arm by arm: the seed's numbers are dealt in this order
            readings = {
                name: [dithered(each, taken.tick_us, taken.chance) for each in times]
                for name, times in readings.items()
            }
        taken.rounds.append({name: tuple(times) for name, times in readings.items()})


def check_same_kernels(call: Call, reps: Sequence[Rep]) -> None:
    """Raise KernelsDiffer unless every rep launched the same kernels equally often."""
    lists = [kernel_list(rep.records) for rep in reps]
    for number, found in enumerate(lists, 1):
        if found != lists[0]:
            raise KernelsDiffer(
                f"{call.label!r} does not launch the same kernels in every call: rep 1 and rep {number} differ, "
                f"{describe_difference(lists[0], found)}; does it autotune, cache or branch?"
            )
