"""Compare two checkouts: run the tests of both in turn, until everything is decided."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.cli.ab.runs import PytestRunner, by_node_id
from pytest_gpubench.cli.output import say
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.process_spread import RunNoise, noise_of
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, format_share, share_or_more
from pytest_gpubench.verdict.counters import CONFIRMED
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.rounds import (
    ArmRun,
    CommitArm,
    alpha_of_look,
    judge_rounds,
    measured_series,
    order_of,
)


@dataclass(frozen=True)
class ComparisonPlan:
    """The plan of a comparison: tolerance, alpha, and the most rounds."""

    tolerance: RegressionTolerance
    alpha: float
    rounds: int
    processes: int = CONFIRMED
    """The processes of HEAD that have to agree before it fails by a counter."""

    def order(self, round: int) -> tuple[CommitArm, ...]:
        """Return the versions of the runs of a round: of counters, which have no drift that could cancel, one each."""
        return order_of(round)[:2] if self.tolerance.is_on_counter else order_of(round)

    @property
    def runs_per_round(self) -> int:
        """The runs of a round."""
        return len(self.order(0))


@dataclass(frozen=True)
class CommitComparison:
    """The runs of two checkouts, and the changes between them."""

    runs: Sequence[ArmRun]
    changes: Sequence[Change]
    plan: ComparisonPlan
    interrupted: bool = False
    """True where an interrupt ended it: the changes are those of the last look before."""

    @property
    def rounds(self) -> int:
        """The number of whole rounds."""
        return len(self.runs) // self.plan.runs_per_round

    @property
    def most_runs(self) -> str:
        """The number of runs of all rounds, of which some may not be needed."""
        least = 1 if self.plan.tolerance.is_on_counter else 2
        return f"{'at most ' if self.plan.rounds > least else ''}{self.plan.runs_per_round * self.plan.rounds}"

    @property
    def interrupted_words(self) -> str:
        """The number of runs before the interrupt, in words."""
        verdicts = "the verdicts are those so far" if self.changes else "nothing is decided yet"
        return f"interrupted after {len(self.runs)} of {self.most_runs} runs: {verdicts}"

    @property
    def noise(self) -> RunNoise | None:
        """The spread between times of the same code; None if nothing was timed in a whole round, or counters count."""
        if self.plan.tolerance.is_on_counter:
            return None
        return noise_of(each.log_ratios for each in measured_series(self.runs, self.plan.tolerance.metric))

    def smallest_change(self, noise: RunNoise, rounds: int) -> float:
        """Return the smallest slowdown that so many rounds show."""
        alpha = alpha_of_look(rounds, self.plan.rounds, self.plan.alpha) or self.plan.alpha
        return noise.smallest_change(2 * rounds, alpha)

    def noise_words(self, rounds: int) -> str:
        """Return what the noise is, and what so many rounds show in spite of it; empty where it is not known."""
        if (noise := self.noise) is None:
            return ""
        smallest, margin = self.smallest_change(noise, rounds), self.plan.tolerance.margin or 0.0
        few = f": more than --fail-slower {format_share(margin)}, take more --rounds" if smallest > margin > 0 else ""
        return (
            f"runs of the same code differ by {format_share(noise.spread)} here, so {count(rounds, 'round')} "
            f"{'shows' if rounds == 1 else 'show'} {share_or_more(smallest)}{few}"
        )


class ComparisonInterrupted(KeyboardInterrupt):
    """An interrupt, with what was found before it."""

    def __init__(self, found: CommitComparison) -> None:
        super().__init__()
        self.found = found


def is_open(change: Change) -> bool:
    """Tell whether more rounds may decide a measurement; a test that fails now and then is not one.

    Of one that is INVALID, with no number of one version, they may bring numbers.
    """
    has_none = change.outcome is Outcome.INVALID and change.old is None
    return (change.outcome is Outcome.INCONCLUSIVE or has_none) and change.label != ""


def compare_commits(
    checkouts: Mapping[CommitArm, Checkout],
    runner: PytestRunner,
    plan: ComparisonPlan,
    still_open: Callable[[Sequence[Change]], Collection[str]] | None = None,
    tests: Collection[str] | None = None,
    taken_before: Sequence[ArmRun] = (),
) -> CommitComparison:
    """Run the tests in turn until none is open, or all rounds are taken, or neither version measures anything.

    After a look only the open tests are run again; the others keep their changes. still_open: returns them, None for
    those that more rounds may decide. tests: the only ones to run, by node id; None for all. taken_before: runs of
    these checkouts that need not be taken again. Raises ComparisonInterrupted.
    """
    found = CommitComparison([], [], plan)
    try:
        for rounds, alpha in _looks(plan):
            before = [each for each in taken_before if each.round in rounds]
            found, known = replace(found, runs=[*found.runs, *before]), [(each.arm, each.round) for each in before]
            order = [(arm, round) for round in rounds for arm in plan.order(round)]
            turns = [(checkouts[arm], round) for arm, round in order if (arm, round) not in known]
            with closing(runner.run_in_turn(turns, tests)) as taken:
                for longer in _say_each(taken, found):
                    found = longer
                    if len(found.runs) == 2 and not any(each.measurements for each in found.runs):
                        return replace(
                            found, changes=judge_rounds(found.runs, plan.tolerance, plan.alpha, plan.processes)
                        )
            settled = [each for each in found.changes if tests is not None and each.nodeid not in tests]
            judged = judge_rounds(by_node_id(found.runs), plan.tolerance, alpha, plan.processes)
            found = replace(found, changes=settled + [each for each in judged if tests is None or each.nodeid in tests])
            undecided = {each.nodeid for each in found.changes if is_open(each)}
            tests = undecided if still_open is None else still_open(found.changes)
            if not tests:
                break
    except KeyboardInterrupt:
        say(found.interrupted_words)
        raise ComparisonInterrupted(replace(found, interrupted=True)) from None
    if found.rounds < plan.rounds:
        say(f"everything is decided after {count(found.rounds, 'round')}")
    return found


def _looks(plan: ComparisonPlan) -> Iterator[tuple[Sequence[int], float]]:
    """Yield the alpha of each look, with the rounds since the last one: they start together."""
    rounds: list[int] = []
    for round in range(plan.rounds):
        rounds.append(round)
        alpha = alpha_of_look(round + 1, plan.rounds, plan.alpha)
        if plan.tolerance.is_on_counter:
            alpha = plan.alpha
        if alpha is not None:
            yield rounds, alpha
            rounds = []


def _say_each(turns: Iterator[ArmRun], found: CommitComparison) -> Iterator[CommitComparison]:
    """Yield the comparison with each run added, and say what it measured; after a round, what the noise is."""
    began_s = time.monotonic()
    for taken in turns:
        found = replace(found, runs=[*found.runs, taken])
        say(
            f"run {len(found.runs)} of {found.most_runs}: {taken.arm}, {count(len(taken.ended), 'test')}, "
            f"{count(taken.measurements, 'measurement')}, {time.monotonic() - began_s:.0f} s"
        )
        if len(found.runs) == found.plan.runs_per_round and (words := found.noise_words(found.plan.rounds)):
            say(words)
        yield found
        began_s = time.monotonic()
