"""Compare two checkouts: run the tests of both in turn, until everything is decided."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.cli.ab.runs import Runner, by_node_id
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
    tests: Collection[str] | None = None,
) -> CommitComparison:
    """Run the tests in turn until no finding is open, or all rounds are taken, or neither version measures anything.

    After a look only the tests with an open finding are run again; the others keep their findings. tests: the only ones
    to run, by node id; None for all.
    """
    runs: list[ArmRun] = []
    findings: list[Finding] = []
    for round in range(plan.rounds):
        order = [checkouts[arm] for arm in order_of(round)]
        with closing(runner.run_in_turn(order, round, tests)) as turns:
            for taken in _told(turns, len(runs), plan.rounds):
                runs.append(taken)
                if len(runs) == 2 and not any(each.measurements for each in runs):
                    return CommitComparison(runs, judge_rounds(runs, plan.tolerance, plan.alpha), plan)
        if round == 0:
            _say(CommitComparison(runs, [], plan).noise_words(plan.rounds))
        alpha = alpha_of_look(round + 1, plan.rounds, plan.alpha)
        if alpha is None:
            continue
        settled = [each for each in findings if tests is not None and each.nodeid not in tests]
        judged = judge_rounds(by_node_id(runs), plan.tolerance, alpha)
        findings = settled + [each for each in judged if tests is None or each.nodeid in tests]
        found = CommitComparison(runs, findings, plan)
        tests = {each.nodeid for each in findings if is_open(each)}
        if not tests:
            break
    if found.rounds < plan.rounds:
        say(f"everything is decided after {count(found.rounds, 'round')}")
    return found


def _told(turns: Iterator[ArmRun], before: int, rounds: int) -> Iterator[ArmRun]:
    """Say of each run what it measured; before: the number of runs of earlier rounds."""
    most = "at most " if rounds > 2 else ""
    began_s = time.monotonic()
    for number, taken in enumerate(turns, before + 1):
        say(
            f"run {number} of {most}{RUNS_PER_ROUND * rounds}: {taken.arm}, {count(len(taken.ended), 'test')}, "
            f"{count(taken.measurements, 'measurement')}, {time.monotonic() - began_s:.0f} s"
        )
        yield taken
        began_s = time.monotonic()


def _say(sentence: str) -> None:
    if sentence:
        say(sentence)
