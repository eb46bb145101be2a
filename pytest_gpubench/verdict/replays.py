"""The change of a call that was saved as data: it and today's, replayed in turn in one process, or the same code."""

from dataclasses import dataclass, replace

from pytest_gpubench.results.model import SAME_CODE, Outcome
from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, printable
from pytest_gpubench.verdict.regression import Change, judge_change

REPLAYED = "replayed time"
"""The metric of such a change that was timed."""


@dataclass(frozen=True)
class Replay:
    """The comparison of today's call with the saved one."""

    found: SpeedupEstimate | None
    """The saved call's time over today's; None where both launch the same code alike."""
    old_us: float = 0.0
    new_us: float = 0.0
    doubt: str = ""
    """The reason why it is no FAIL although the whole interval is beyond the tolerance."""
    notes: tuple[str, ...] = ()


def replayed_change(found: Change, replay: Replay, tolerance: RegressionTolerance, alpha: float, where: str) -> Change:
    """Return a change, judged by replays; where: the saved run, as in `the baseline 'main'`."""
    if replay.found is None:
        same = ChangeEstimate(1.0, None, SAME_CODE, alpha)
        sentence = f"{printable(found.label)} is the same call as in {where}: the same code, launched alike"
        return replace(found, outcome=Outcome.PASS, estimate=same, sentence=sentence, notes=replay.notes)
    timed = replay.found
    ends = timed.interval and Interval(1 / timed.interval.high, 1 / timed.interval.low)
    estimate = ChangeEstimate(
        1 / timed.ratio, ends, REPLAYED, timed.alpha, replay.old_us, replay.new_us, doubt=replay.doubt
    )
    counts = f"replayed in turn, {count(timed.quads, 'quad')}"
    judged = judge_change(found, estimate, tolerance, where, replay.old_us, replay.new_us, counts)
    return replace(judged, notes=(*judged.notes, *replay.notes))
