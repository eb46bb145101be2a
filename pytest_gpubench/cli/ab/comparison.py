"""A comparison of two commits: how it is made, its runs, and the changes that they show."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.process_spread import RunNoise, noise_of
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, format_share, share_or_more
from pytest_gpubench.verdict.counters import CONFIRMED
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.rounds import ArmRun, CommitArm, alpha_of_look, measured_series, order_of


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
