"""Older runs on the page: a measurement's history with its changes, and the trend of all measurements."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_gpubench.report.html.numbers import five_digits, rounded
from pytest_gpubench.results.counterpart import RunKey
from pytest_gpubench.results.model import Measurement
from pytest_gpubench.stats.changepoints import change_points
from pytest_gpubench.stats.process_spread import sessions_differ_by
from pytest_gpubench.stats.summary import quartiles
from pytest_gpubench.verdict.decision import tick_shares

ALPHA = 0.005
"""The chance that a history without a change is said to have one; of less, many more random orders are needed."""


@dataclass(frozen=True)
class OlderRuns:
    """The measurements of the baseline, and of each older run."""

    baseline: Mapping[RunKey, Measurement] | None
    runs: Sequence[Mapping[RunKey, Measurement]]

    def series(self, item: Measurement, key: RunKey) -> dict[str, Any]:
        """Return a measurement's points in older runs, and the numbers of the runs that it changed with.

        The changes are those of the time against the reference of the same run where all have one, as the data say with
        `by`: a new driver or card then is no change.
        """
        found = [(number, run[key]) for number, run in enumerate(self.runs) if key in run]
        way = item.timing.timer, item.timing.cache
        points = [each for each in found if _has_time(each[1]) and (each[1].timing.timer, each[1].timing.cache) == way]
        past = []  # of each run the median and its interval, the speedup and its interval
        for number, old in points:
            numbers: list[float | None] = [old.timing.median_us, *(old.timing.median_interval_us or (None, None))]
            if old.speedup is not None:
                numbers += [old.speedup.ratio, *(old.speedup.interval or (None, None))]
            past.append([number, *rounded(numbers)])
        if not points or not _has_time(item):
            return {"past": past, "by": "", "changes": []}
        places, known = [*(number for number, _ in points), len(self.runs)], [*(old for _, old in points), item]
        ratios = [each.speedup.ratio for each in known if each.speedup and 0 < each.speedup.ratio < math.inf]
        has_ratios = len(ratios) == len(known)
        values = [1 / ratio for ratio in ratios] if has_ratios else [each.timing.median_us for each in known]
        ticks = tick_shares(item, "speedup" if has_ratios else "median")
        return {
            "past": past,
            "by": "speedup" if has_ratios else "",
            "changes": [
                [places[each.index - 1], places[each.index], five_digits(each.ratio)]
                for each in change_points(values, ALPHA, sessions_differ_by((), ticks, ALPHA))
            ],
        }


def _has_time(item: Measurement) -> bool:
    return item.timing.measured and not item.why_invalid and 0 < item.timing.median_us < math.inf


def trend(items: Sequence[Mapping[str, Any]], own: int) -> list[list[Any]]:
    """Return for each run its number, how many times it shares with this run, and their ratio to those of this run.

    The ratio is the geometric mean, with its quartiles; of times against the reference where these are known. own: the
    number of this run, the last. Empty without history.
    """
    logs: dict[int, list[float]] = {}
    for item in items:
        for number, median_us, _, _, *speedup in item.get("past", ()):
            if item.get("by"):
                logs.setdefault(number, []).append(math.log(item["speedup"]["ratio"] / speedup[0]))
            elif item.get("median", 0) > 0:
                logs.setdefault(number, []).append(math.log(median_us / item["median"]))
    points = []
    for number, found in sorted(logs.items()):
        low, _, high = quartiles(found)
        middle = rounded(math.exp(value) for value in (statistics.fmean(found), low, high))
        points.append([number, len(found), *middle])
    return [*points, [own, max(map(len, logs.values())), 1, 1, 1]] if points else []
