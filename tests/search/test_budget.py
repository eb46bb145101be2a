"""How many reps a limit needs at an alpha, and which number is told."""

from dataclasses import replace

import hypothesis
import pytest

from pytest_gpubench import Verdict
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.search.budget import AlphaBudget
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import critical_ranks
from pytest_gpubench.stats.summary import least_count, median_interval, std_interval

ALPHAS = [0.4, 0.05, 0.01, 0.001, 0.0005, 1e-6, 1e-9]


def verdict(limit: str, outcome: Outcome = Outcome.INCONCLUSIVE) -> Verdict:
    return Verdict(kind=limit, asked="1", outcome=outcome, sentence=f"a sentence about {limit}")


def is_too_few(reps: int, limit: str, alpha: float) -> bool:
    budget = AlphaBudget(alpha)
    budget.note(Settings(reps=reps, alpha=alpha), [verdict(limit)])
    return bool(budget.open)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_so_many_reps_decide_and_one_less_does_not(alpha: float) -> None:
    for reps in range(2, 80):
        no_median = median_interval([1.0] * reps, alpha) is None
        for limit in ("max_time_us", "min_gbps", "min_tflops", "min_peak_fraction"):
            assert is_too_few(reps, limit, alpha) is no_median
        no_ranks = critical_ranks((reps // 2,), alpha) == (None,)
        assert is_too_few(reps, "min_speedup", alpha) is no_ranks or alpha > 0.3
        assert is_too_few(reps, "max_rel_std", alpha) is (std_interval([1.0] * reps, alpha) is None)
        assert not is_too_few(reps, "max_kernels", alpha)


@pytest.mark.parametrize("limits", [0, 1, 3])
def test_judgements_together_spend_alpha(limits: int) -> None:
    budget, shares = AlphaBudget(), max(limits, 1)
    alphas = [budget.spend(Settings(alpha=0.01), limits).alpha for _ in range(200)]
    assert alphas == pytest.approx([0.01 / (n * (n + 1)) / shares for n in range(1, 201)])
    assert shares * sum(alphas) < 0.01


def test_only_what_so_few_reps_cannot_decide_is_noted() -> None:
    budget = AlphaBudget()
    settings = budget.spend(Settings(alpha=0.001))
    enough = least_count(settings.alpha)
    few = replace(settings, reps=enough - 1)
    budget.note(replace(settings, reps=enough), [verdict("max_time_us")])
    budget.note(settings, [verdict("max_time_us")])
    budget.note(few, [verdict("max_time_us", Outcome.FAIL), verdict("max_kernels")])
    assert not budget.needed
    budget.note(few, [verdict("max_time_us")])
    (needed,) = budget.needed.values()
    last = hypothesis.settings().max_examples + 1000
    assert needed == least_count(0.001 / (last * (last + 1)))
    open_one, kept = budget.told([verdict("max_time_us"), verdict("max_time_us", Outcome.PASS)])
    assert open_one.sentence.startswith(f"with reps={enough - 1} not every example")
    assert kept == verdict("max_time_us", Outcome.PASS)


def test_the_needed_reps_grow_with_the_judgements_and_never_shrink() -> None:
    """More in each example, or more examples than max_examples."""
    budget, asked = AlphaBudget(), Settings(reps=4, alpha=0.001)
    for _ in range(2):  # in one example
        budget.note(budget.spend(asked), [verdict("max_time_us")])
    assert budget.most_in_example == 2
    assert len(budget.outdated) == 1
    budget.in_example = 0
    budget.judged = 10**6 - 1
    budget.note(budget.spend(asked), [verdict("max_time_us")])
    assert len(budget.outdated) == 2
    assert budget.needed[4] == least_count(0.001 / (2e6 * (2e6 + 1)))
    budget.judged = 2
    budget.note(budget.spend(asked), [verdict("max_time_us")])
    assert len(budget.outdated) == 2
    budget.judged = 10**6 - 1
    budget.note(budget.spend(asked, limits=6), [verdict("max_time_us")])
    assert budget.needed[4] == least_count(0.001 / 6 / (2e6 * (2e6 + 1)))
