"""The budget that the examples of a test share: seconds, and alpha, of which each judgement spends a part."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.verdict.limits import BY_NAME

SHRINKING = 1000
"""Judgements beside the test's max_examples, to shrink what fails: planted defects took up to 658 calls in all."""


@dataclass
class TimeBudget:
    """Seconds to time examples; as many again once one has failed, to shrink it."""

    budget_s: float
    spent_s: float = 0.0
    has_failed: bool = False

    @property
    def why_spent(self) -> str:
        """The reason why nothing more is timed; empty while there is time."""
        if self.spent_s < self.budget_s * (1 + self.has_failed):
            return ""
        return f"--gpu-bench-given-budget-s of {self.budget_s:g} s is spent"


@dataclass
class AlphaBudget:
    """The alpha of a test: each judgement has less than the one before, so fixed reps may be too few for later ones.

    A judgement with several noisy limits, or of several candidates, divides its part evenly among them (Bonferroni).
    """

    alpha: float = 0.0
    judged: int = 0
    in_example: int = 0
    """Judgements in the running example."""
    most_in_example: int = 1
    most_limits: int = 1
    """The most noisy limits, of all candidates together, that one judgement had."""
    needed: dict[int, int] = field(default_factory=dict)
    """For each number of reps that is too few, the number that is enough for all examples."""
    open: dict[str, int] = field(default_factory=dict)
    """The reps of each verdict that too few left INCONCLUSIVE, by its sentence."""
    outdated: set[str] = field(default_factory=set)
    """Sentences about too few reps that have named too small a number."""

    def spend(self, settings: Settings, limits: int = 1) -> Settings:
        """Return settings with the alpha of each of so many noisy limits in the next judgement."""
        self.alpha = settings.alpha
        self.judged, self.in_example = self.judged + 1, self.in_example + 1
        self.most_in_example = max(self.most_in_example, self.in_example)
        self.most_limits = max(self.most_limits, limits)
        return replace(settings, alpha=settings.alpha / (self.judged * (self.judged + 1)) / max(limits, 1))

    def note(self, settings: Settings, verdicts: Sequence[Verdict]) -> None:
        """Note the verdicts that are INCONCLUSIVE because the reps of these settings are too few for their alpha."""
        if settings.reps is None:
            return
        last = max(self.most_in_example * (max_examples() + SHRINKING), 2 * self.judged)
        for verdict in verdicts:
            if verdict.outcome is Outcome.INCONCLUSIVE and settings.reps < reps_to_decide(verdict, settings.alpha):
                needed = reps_to_decide(verdict, self.alpha / (last * (last + 1)) / self.most_limits)
                if needed > self.needed.get(settings.reps, needed):
                    self.outdated.add(self._sentence(settings.reps))
                self.needed[settings.reps] = max(needed, self.needed.get(settings.reps, 0))
                self.open[verdict.sentence] = settings.reps

    def told(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return verdicts with one sentence for all that have too few reps."""
        return [
            msgspec.structs.replace(each, sentence=self._sentence(self.open[each.sentence]))
            if each.outcome is Outcome.INCONCLUSIVE and each.sentence in self.open
            else each
            for each in verdicts
        ]

    def _sentence(self, reps: int) -> str:
        return (
            f"with reps={reps} not every example of @given can be judged, as all of them together spend alpha "
            f"{self.alpha:g}: take at least {self.needed[reps]} reps, enough for max_examples={max_examples()} and to "
            "shrink what fails, or give no reps"
        )


def reps_to_decide(verdict: Verdict, alpha: float) -> int:
    """Return the fewest reps that can decide the limit of a verdict at this alpha."""
    return BY_NAME[verdict.kind].least_reps(alpha) if verdict.kind in BY_NAME else 0


def max_examples() -> int:
    """Return the number of examples that hypothesis tries in the running test."""
    import hypothesis

    count: int = hypothesis.settings().max_examples
    return count
