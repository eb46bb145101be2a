"""How many reps a limit needs at an alpha, and which number is told."""

import pytest

from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.search.fixed_reps import SHRINKING, FixedReps, least_reps, max_examples
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import critical_ranks
from pytest_gpubench.stats.summary import median_interval, std_interval

ALPHAS = [0.4, 0.05, 0.01, 0.001, 0.0005, 1e-6, 1e-9]


def verdict(limit: str, outcome: Outcome = Outcome.INCONCLUSIVE) -> Verdict:
    return Verdict(kind=limit, asked="1", outcome=outcome, sentence=f"a sentence about {limit}")


@pytest.mark.parametrize("alpha", ALPHAS)
def test_so_many_reps_decide_and_one_less_does_not(alpha: float) -> None:
    for limit in ("max_time_us", "min_gbps", "min_tflops", "min_peak_fraction"):
        least = least_reps(verdict(limit), alpha)
        assert [median_interval([1.0] * reps, alpha) is None for reps in (least - 1, least)] == [True, False]
    quads, odd = divmod(least_reps(verdict("min_speedup"), alpha), 2)
    assert not odd
    assert critical_ranks((quads,), alpha) != (None,)
    assert quads == 1 or alpha > 0.3 or critical_ranks((quads - 1,), alpha) == (None,)
    least = least_reps(verdict("max_rel_std"), alpha)
    assert [std_interval([1.0] * reps, alpha) is None for reps in (least - 1, least)] == [True, False]
    assert least_reps(verdict("max_kernels"), alpha) == 0


def test_only_what_so_few_cannot_decide_is_noted() -> None:
    fixed = FixedReps()
    fixed.begin()
    fixed.judge(1, 0.001)
    enough = least_reps(verdict("max_time_us"), 0.0005)
    fixed.note(Settings(reps=enough, alpha=0.0005), [verdict("max_time_us")])
    fixed.note(Settings(reps=None, alpha=0.0005), [verdict("max_time_us")])
    fixed.note(Settings(reps=enough - 1, alpha=0.0005), [verdict("max_time_us", Outcome.FAIL), verdict("max_kernels")])
    assert not fixed.needed
    fixed.note(Settings(reps=enough - 1, alpha=0.0005), [verdict("max_time_us")])
    (needed,) = fixed.needed.values()
    last = max_examples() + SHRINKING
    assert needed == least_reps(verdict("max_time_us"), 0.001 / (last * (last + 1)))
    open_one, kept = fixed.told([verdict("max_time_us"), verdict("max_time_us", Outcome.PASS)])
    assert open_one.sentence.startswith(f"with reps={enough - 1} not every example")
    assert kept == verdict("max_time_us", Outcome.PASS)


def test_the_number_grows_with_what_is_judged_and_the_last_one_stands() -> None:
    """More in each example, or more examples than hypothesis was thought to try."""
    fixed = FixedReps()
    for judged in (1, 2):  # in one example
        fixed.judge(judged, 0.001)
        fixed.note(Settings(reps=4, alpha=0.0005), [verdict("max_time_us")])
    assert fixed.most_in_example == 2
    assert len(fixed.outdated) == 1
    fixed.begin()
    fixed.judge(10**6, 0.001)
    fixed.note(Settings(reps=4, alpha=0.0005), [verdict("max_time_us")])
    assert len(fixed.outdated) == 2
    assert fixed.needed[4] == least_reps(verdict("max_time_us"), 0.001 / (2e6 * (2e6 + 1)))
    fixed.judge(3, 0.001)
    fixed.note(Settings(reps=4, alpha=0.0005), [verdict("max_time_us")])
    assert len(fixed.outdated) == 2
