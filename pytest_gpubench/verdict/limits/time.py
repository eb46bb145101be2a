"""Limits on the time and its spread."""

from collections.abc import Mapping

from pytest_gpubench.limits import fraction_below_one, limit_for_device, number_by_name
from pytest_gpubench.results.model import Measurement, Timing
from pytest_gpubench.stats.autocorrelation import independent_for
from pytest_gpubench.stats.summary import LEAST_FOR_STD, Interval, least_count, std_interval
from pytest_gpubench.units import format_share, with_ends
from pytest_gpubench.verdict.decision import Judged, at_most, certainty, time_interval, words_for
from pytest_gpubench.verdict.limits.base import Limit, Seen, judged_time, not_for_device, only, share_missed


class MaxRelStd(Limit):
    """The standard deviation of the reps over their mean is at most this."""

    name = "max_rel_std"
    help = "standard deviation of the reps over their mean, at most: 0.02 is 2 %"
    stage = "time"
    is_noisy = True
    parse = staticmethod(fraction_below_one)
    least_reps = staticmethod(lambda _: LEAST_FOR_STD)

    def judge(self, seen: Seen) -> Judged:
        timing, most = seen.timing, self.asked
        independent = independent_for("std", timing.samples_us)
        std = std_interval(timing.samples_us, seen.spent, independent)
        interval = std and Interval(std.low / timing.mean_us, std.high / timing.mean_us)
        outcome = at_most(interval, most)
        words = words_for(outcome, interval, "is steady", "is unsteady")
        found = with_ends(timing.rel_std, interval, most, format_share, 2) if timing.reps > 1 else "unknown"
        return outcome, (
            f"{timing.label} {words}: relative std {found}, wanted at most {100 * most:.10g} % "
            f"({certainty(timing.reps, independent, LEAST_FOR_STD, seen.alpha)})"
        )

    def cell(self, item: Measurement) -> str:
        known = item.timing.reps > 1
        found = with_ends(item.timing.rel_std, None, self.asked, format_share, 2, unit=" ") if known else ""
        return f"std {found}<= {100 * self.asked:.10g} %"


class MaxTime(Limit):
    """The median time is at most this, for all GPUs or by their names."""

    name = "max_time_us"
    help = "median time of one call in microseconds, at most: a number, or one per GPU name {'H200': 40}"
    stage = "time"
    is_noisy = is_on_speed = holds_throttled = True
    parse = staticmethod(number_by_name("GPUs", "{'H200': 40, 'A100': 75}"))
    least_reps = staticmethod(least_count)

    def number(self, timing: Timing) -> float | None:
        return limit_for_device(self.asked, timing.device)

    def judge(self, seen: Seen) -> Judged:
        timing, wanted = seen.timing, self.number(seen.timing)
        if wanted is None:
            return not_for_device(self, timing)
        interval = time_interval(timing, seen.spent)
        found = f"median {with_ends(timing.median_us, interval, wanted, unit=' us')}"
        return judged_time(seen, interval, at_most(interval, wanted), f"{found}, wanted at most {wanted:.10g} us")

    def cell(self, item: Measurement) -> str:
        wanted = self.number(item.timing)
        if not isinstance(self.asked, Mapping):
            return f"<= {wanted:.10g} us"
        device = item.timing.device
        names = [name for name in self.asked if limit_for_device({name: self.asked[name]}, device) == wanted]
        return only(self.asked) if wanted is None else f"<= {wanted:.10g} us ({max(names, key=len)})"

    def missed_by(self, item: Measurement) -> float:
        return share_missed(item.timing.median_us, self.number(item.timing))


LIMITS = (MaxRelStd, MaxTime)
