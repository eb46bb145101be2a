"""Fixed reps under @given: each example has less of alpha than the one before, and needs more reps to be decided."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats import speedup
from pytest_gpubench.stats.summary import LEAST_FOR_STD, least_count

__tracebackhide__ = True

SHRINKING = 1000
"""Judged beside the test's max_examples, to shrink what fails: planted defects took up to 658 calls in all."""
ON_MEDIAN = ("max_time_us", "min_gbps", "min_tflops", "min_peak_fraction")


@dataclass
class FixedReps:
    """What the examples of a test need where the number of their reps is given."""

    judged: int = 0
    alpha: float = 0.0
    """The test's, of which every judgement spends a part."""
    in_example: int = 0
    """The judgements of the running example."""
    most_in_example: int = 1
    needed: dict[int, int] = field(default_factory=dict)
    """The reps that would decide all examples, by those that were given and are too few."""
    open: dict[str, int] = field(default_factory=dict)
    """The reps of verdicts that so few could not decide, by their sentences."""
    outdated: set[str] = field(default_factory=set)
    """What was told of fewer judgements in an example than there are."""

    def begin(self) -> None:
        """Note that the next example begins."""
        self.in_example = 0

    def judge(self, judged: int, alpha: float) -> None:
        """Note the next judgement: how many they are, and the test's alpha."""
        self.judged, self.alpha, self.in_example = judged, alpha, self.in_example + 1
        self.most_in_example = max(self.most_in_example, self.in_example)

    def note(self, settings: Settings, verdicts: Sequence[Verdict]) -> None:
        """Note which verdicts a judgement by these settings could not come to, whatever the reps had taken."""
        if settings.reps is None:
            return
        last = max(self.most_in_example * (max_examples() + SHRINKING), 2 * self.judged)
        for verdict in verdicts:
            if verdict.outcome is Outcome.INCONCLUSIVE and settings.reps < least_reps(verdict, settings.alpha):
                needed = least_reps(verdict, self.alpha / (last * (last + 1)))
                self._need(settings.reps, needed)
                self.open[verdict.sentence] = settings.reps

    def _need(self, reps: int, needed: int) -> None:
        if reps in self.needed and needed > self.needed[reps]:
            self.outdated.add(self.sentence(reps))
        self.needed[reps] = max(needed, self.needed.get(reps, 0))

    def told(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return verdicts as they are told: one sentence for all that could not be decided."""
        return [
            msgspec.structs.replace(each, sentence=self.sentence(self.open[each.sentence]))
            if each.outcome is Outcome.INCONCLUSIVE and each.sentence in self.open
            else each
            for each in verdicts
        ]

    def sentence(self, reps: int) -> str:
        """Return what is wrong with so many reps, and what to do."""
        return (
            f"with reps={reps} not every example of @given can be judged, as all of them together spend alpha "
            f"{self.alpha:g}: take at least {self.needed[reps]} reps, enough for max_examples={max_examples()} and to "
            "shrink what fails, or give no reps"
        )


def least_reps(verdict: Verdict, alpha: float) -> int:
    """Return with how many reps the limit of a verdict can be decided at this alpha, at best."""
    if verdict.kind == "min_speedup":
        return speedup.least_reps(alpha)
    if verdict.kind == "max_rel_std":
        return LEAST_FOR_STD
    return least_count(alpha) if verdict.kind in ON_MEDIAN else 0


def max_examples() -> int:
    """Return how many examples hypothesis tries in the running test."""
    import hypothesis

    return hypothesis.settings().max_examples
