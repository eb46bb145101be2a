"""The change of a counter since an older run: of no samples, but of a few captures that are nearly all the same.

The interval of the ratio leads from the least that the captures allow to the most, wider by the spread that the
captures of either run have among themselves: what differs by chance within one process differs as much between two. A
FAIL has to be seen in a second process too, and is INCONCLUSIVE until then. The captures of both are taken together:
where an autotuner chooses otherwise in one, or a library another kernel, they differ, and it stays INCONCLUSIVE.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from pytest_gpubench.results.counterpart import Missing
from pytest_gpubench.results.model import Measurement, Outcome
from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, format_share, printable, ratio_text
from pytest_gpubench.verdict.decision import at_most
from pytest_gpubench.verdict.limits.counters import counted_text, counter_unknown, number_text, spread_of_captures
from pytest_gpubench.verdict.regression import Change

CONFIRMED = 2
"""The processes of the new run that have to agree before it fails."""


def compare_counters(
    found: Change,
    tolerance: RegressionTolerance,
    alpha: float,
    where: str,
    olds: Sequence[Measurement],
    news: Sequence[Measurement],
    least: int = CONFIRMED,
) -> Change:
    """Return a change judged by the counter of a tolerance; where: the older run, as in `the baseline 'main'`.

    olds, news: the same measurement in each process of both runs, the latest last. least: the processes of the new run
    without which it does not fail.
    """
    name, label = tolerance.metric, printable(found.label)
    if olds[-1].timing.counts is None:
        return _without(found, f"{label} has no counters in {where}: save a new one with --gpu-bench-counters=all")
    for item, words in ((news[-1], ""), (olds[-1], f" of {where}")):
        if unknown := counter_unknown(item.timing, name, f"{tolerance}{words}"):
            outcome, sentence = unknown
            if outcome is Outcome.NOT_JUDGED:
                return _without(found, sentence)
            return replace(found, outcome=outcome, sentence=sentence)
    (old, _), (new, processes) = _captures(olds, name), _captures(news, name)
    words = f"{label} {counted_text(name, statistics.median(new))}"
    against = f" against {number_text(name, statistics.median(old))} in {where}"
    estimate = change_of_captures(old, new, name, alpha)
    assert tolerance.margin is not None
    outcome = at_most(estimate.interval, 1 + tolerance.margin)
    further = max(least - processes, 0) if outcome is Outcome.FAIL else 0
    is_exact = math.isclose(*(estimate.interval or (1, 1)), rel_tol=1e-9)
    ratio = f": {ratio_text(estimate.ratio, None if is_exact else estimate.interval, limit=1 + tolerance.margin)}"
    wanted = f"wanted at most {1 + tolerance.margin:.12g}x ({_captured(old, new, processes)})"
    sentence = f"{words}{against}{ratio if math.isfinite(estimate.ratio) else ''}, {wanted}"
    if further:
        outcome, sentence = Outcome.INCONCLUSIVE, f"{sentence}; a second process has to confirm it"
    return replace(found, estimate=replace(estimate, further=further), outcome=outcome, sentence=sentence)


def _without(found: Change, sentence: str) -> Change:
    return replace(found, outcome=Outcome.NOT_JUDGED, sentence=sentence, missing=Missing("not asked", sentence))


def change_of_captures(old: Sequence[float], new: Sequence[float], metric: str, alpha: float) -> ChangeEstimate:
    """Return the ratio of a counter's medians with the interval that its captures allow: infinite over nothing."""
    was, now = statistics.median(old), statistics.median(new)
    apart = max(spread_of_captures(old), spread_of_captures(new))
    low, high = _ratio(min(new), max(old)) / (1 + apart), _ratio(max(new), min(old)) * (1 + apart)
    return ChangeEstimate(_ratio(now, was), Interval(low, high), metric, alpha, was, now, counts=(len(old), len(new)))


def _ratio(new: float, old: float) -> float:
    """Return how many times as much is counted; 1 where both count nothing."""
    return new / old if old else math.inf if new else 1.0


def _captures(items: Sequence[Measurement], name: str) -> tuple[list[float], int]:
    """Return all captures of a counter, and the number of processes that have some."""
    counts = [item.timing.counts for item in items]
    known = [each.captures[name] for each in counts if each is not None and name in each.captures]
    return [value for captures in known for value in captures], len(known)


def _captured(old: Sequence[float], new: Sequence[float], processes: int) -> str:
    apart = max(spread_of_captures(old), spread_of_captures(new))
    counts = f"{len(new)} and {count(len(old), 'capture')}"
    counts += f" in {processes} processes" if processes > 1 else ""
    return f"{counts} that differ by {format_share(apart)}" if apart else f"{counts}, each the same"
