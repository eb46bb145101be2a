"""The limit on the change since a saved run: a keyword of the mark, and an option; `verdict.regression` judges it."""

import math
from typing import Any

from pytest_gpubench.limits import fraction_below_one
from pytest_gpubench.results.model import Measurement
from pytest_gpubench.stats.tolerance import RegressionTolerance, parse_tolerance
from pytest_gpubench.verdict.limits.base import Limit, Need, share_missed


class MaxRegression(Limit):
    """A test is at most this much slower than in a saved run."""

    name = "max_regression"
    help = (
        "how much slower than in the saved run of --gpu-bench-compare, at most: 0.05 is 5 % of the speedup, or of the "
        "median time where there is no reference; or as --gpu-bench-compare-fail, 'median:5%', 'instructions:0.1%'"
    )
    stage = "baseline"
    needed = frozenset({"baseline"})

    @property
    def needs(self) -> frozenset[Need]:
        return self.needed | {"counters"} if self.counters else self.needed

    @property
    def counters(self) -> tuple[str, ...]:
        return (self.value.metric,) if self.value.is_on_counter else ()

    @staticmethod
    def parse(asked: Any) -> RegressionTolerance:
        if isinstance(asked, str):
            return parse_tolerance(asked)
        return RegressionTolerance("speedup", margin=fraction_below_one(asked))

    def cell(self, item: Measurement) -> str:
        tolerance = self.value
        metric = tolerance.metric if item.change is None else item.change.metric
        if tolerance.margin is None:
            return f"{metric} <= +{tolerance.absolute_us:.10g} us"
        if metric == "speedup":
            return f"speedup >= -{100 - 100 / (1 + tolerance.margin):.2g} %"
        return f"{metric} <= +{100 * tolerance.margin:.10g} %"

    def missed_by(self, item: Measurement) -> float:
        if item.change is None:
            return math.nan
        allowed = self.value.margin or (self.value.absolute_us or 0.0) / item.change.old_us
        return share_missed(item.change.ratio, 1 + allowed)


class CompareFail(MaxRegression):
    """The same for all tests, as --gpu-bench-compare-fail."""

    name = "compare_fail"
    help = ""


LIMITS = (MaxRegression, CompareFail)
