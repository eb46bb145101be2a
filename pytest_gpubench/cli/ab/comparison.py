"""Compare two checkouts: run the tests of both in turn, until everything is decided."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.cli.ab.runs import Runner
from pytest_gpubench.cli.output import say
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.run_noise import RunNoise
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, format_share
from pytest_gpubench.verdict.rounds import Arm, ArmRun, alpha_of_look, judge_rounds, noise_between, order_of
from pytest_gpubench.verdict.saved_runs import Finding

RUNS_PER_ROUND = 4


@dataclass(frozen=True)
class ComparisonPlan:
    """The plan of a comparison: tolerance, alpha, and the most rounds."""

    tolerance: RegressionTolerance
    alpha: float
    rounds: int


@dataclass(frozen=True)
class CommitComparison:
    """The runs of two checkouts, and the findings."""

    runs: Sequence[ArmRun]
    findings: Sequence[Finding]
    plan: ComparisonPlan

    @property
    def rounds(self) -> int:
        """The number of whole rounds."""
        return len(self.runs) // RUNS_PER_ROUND

    @property
    def noise(self) -> RunNoise | None:
        """The spread between runs of the same code; None if nothing was measured in a whole round."""
        return noise_between(self.runs, self.plan.tolerance.metric)

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
            f"{'shows' if rounds == 1 else 'show'} a slowdown of {format_share(smallest)} or more{few}"
        )


def is_open(finding: Finding) -> bool:
    """Tell whether more rounds may decide a measurement; a test that fails now and then is not one."""
    return finding.outcome is Outcome.INCONCLUSIVE and finding.label != ""


def compare(
    checkouts: Mapping[Arm, Checkout],
    runner: Runner,
    plan: ComparisonPlan,
    is_open: Callable[[Finding], bool] = is_open,
) -> CommitComparison:
    """Run the tests in turn until no finding is open, or all rounds are taken, or neither version measures anything."""
    runs: list[ArmRun] = []
    for round in range(plan.rounds):
        for arm in order_of(round):
            runs.append(_take(checkouts[arm], runner, round, len(runs) + 1, plan.rounds))
            if len(runs) == 2 and not any(each.measurements for each in runs):
                return CommitComparison(runs, judge_rounds(runs, plan.tolerance, plan.alpha), plan)
        if round == 0:
            _say(CommitComparison(runs, [], plan).noise_words(plan.rounds))
        alpha = alpha_of_look(round + 1, plan.rounds, plan.alpha)
        if alpha is None:
            continue
        found = CommitComparison(runs, judge_rounds(runs, plan.tolerance, alpha), plan)
        if not any(map(is_open, found.findings)):
            break
    if found.rounds < plan.rounds:
        say(f"everything is decided after {count(found.rounds, 'round')}")
    return found


def _take(checkout: Checkout, runner: Runner, round: int, number: int, rounds: int) -> ArmRun:
    began_s = time.monotonic()
    taken = runner.run(checkout, round)
    most = "at most " if rounds > 2 else ""
    say(
        f"run {number} of {most}{RUNS_PER_ROUND * rounds}: {checkout.arm}, {count(len(taken.ended), 'test')}, "
        f"{count(taken.measurements, 'measurement')}, {time.monotonic() - began_s:.0f} s"
    )
    return taken


def _say(sentence: str) -> None:
    if sentence:
        say(sentence)
