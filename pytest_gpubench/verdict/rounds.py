"""Two versions of one code, measured by alternating runs of pytest: what changed, and how certain that is.

A round is four runs in the order ABBA, every other time BAAB, hence two pairs of neighbours that disagree about which
version came first. The unit is the run: its samples share whatever sets one process apart from the next (addresses,
clocks, the choice of an autotuner), so more of them do not make the answer more certain, only more runs do. A sample is
the logarithm of the ratio of a pair. What drifts from run to run cancels between the two pairs of a round, and what is
left of it widens the interval; therefore a round that is not whole is left out.

Where alpha and the number of pairs allow it, the interval is made of order statistics of the pairs (8 pairs, four
rounds, at alpha 0.005), which assumes only that the pairs are independent. With fewer it is Student's t interval of
their mean, which assumes that the pairs are spread normally.

The runs can end early: there is a look after each round from the second on, the last one spends half of alpha and the
others share the rest, so all looks together are wrong with a chance of at most alpha. Simulated with 0.5 % of spread
between runs, a drift of 3 % over the session, a margin of 3 % and alpha 0.01, 4,000 times each, up to four rounds: no
kernel as fast as before fails and all pass, after 2.4 rounds on average; of kernels slower by exactly the margin 0.8 %
fail; of kernels slower by 5 % 98 % fail. With 0.2 % of spread nearly all end after two rounds.

The rounds also calibrate the machine: how much the pairs of a measurement differ from each other does not depend on
whether HEAD is slower, and it is known for every test.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from pytest_gpubench.counters import is_changed_by_others
from pytest_gpubench.results.baseline import comparable, differences, toolchain
from pytest_gpubench.results.counterpart import MeasurementKey, keys_of
from pytest_gpubench.results.model import Measurement, Outcome, SavedRun, TestRecord
from pytest_gpubench.settings.cache import cache_words
from pytest_gpubench.stats.process_spread import RunNoise, noise_of
from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.summary import LARGEST_LOG, Interval, median_interval, steps_us, student_t
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, share_or_more
from pytest_gpubench.verdict.counters import CONFIRMED, compare_counters
from pytest_gpubench.verdict.reasons import explained_change
from pytest_gpubench.verdict.regression import Change, judge_change

CommitArm = Literal["BASE", "HEAD"]
TestEnding = Literal["passed", "failed", "skipped"]
"""The end of a test; an error in its setup or teardown is a failure."""

COMMIT_ARMS: tuple[CommitArm, CommitArm] = ("BASE", "HEAD")


@dataclass(frozen=True)
class ArmRun:
    """One run of pytest: of which version, in which round, what it measured, and how its tests ended."""

    arm: CommitArm
    round: int
    run: SavedRun
    ended: Mapping[str, TestEnding]
    """Keyed by node id, or any other name of a test that is the same in every run."""
    tests: Collection[str] | None = None
    """The only tests that it ran, by node id; None for all."""

    @property
    def measurements(self) -> int:
        """The number of measurements in it."""
        return sum(len(record.measurements) for record in self.run.records)


@dataclass(frozen=True)
class RecordedMeasurement:
    """A measurement, and the test that took it."""

    record: TestRecord
    measurement: Measurement

    @property
    def way(self) -> tuple[str, str, str]:
        """The device, timer and cache state, which two measurements must share to be compared."""
        timing, device = self.measurement.timing, self.record.device
        return f"{device.name} {device.uuid or ''}".strip(), f"{timing.timer} timer", cache_words(timing.cache)

    @property
    def why_invalid(self) -> str:
        """The reason why it cannot be compared; empty where it can."""
        timing = self.measurement.timing
        return self.measurement.why_invalid if timing.measured else timing.unmeasured or "no samples"


@dataclass(frozen=True)
class RoundSeries:
    """One measurement in all runs."""

    nodeid: str
    label: str
    runs: Sequence[ArmRun]
    found: Sequence[RecordedMeasurement | None]
    """It in each run; None where that lacks it."""
    wanted: str
    """The metric that was asked for."""

    @cached_property
    def valid(self) -> Sequence[RecordedMeasurement | None]:
        """It in each run; None where that has no number that is known to be right."""
        return [each if each is not None and not self.why_invalid(each) else None for each in self.found]

    def why_invalid(self, found: RecordedMeasurement) -> str:
        """Return why it cannot be compared in a run; empty where it can."""
        return found.why_invalid or (found.measurement.timing.neighbours if is_changed_by_others(self.wanted) else "")

    def of(self, *arms: CommitArm) -> list[RecordedMeasurement]:
        """Return it in the runs of these versions that measured it."""
        return [one for each, one in zip(self.runs, self.valid, strict=True) if each.arm in arms and one]

    @cached_property
    def metric(self) -> str:
        """The metric compared: the median unless all are speedups over one reference."""
        references = {each.measurement.speedup and each.measurement.speedup.reference for each in self.of(*COMMIT_ARMS)}
        is_speedup = len(references) == 1 and None not in references
        return "median" if self.wanted == "speedup" and not is_speedup else self.wanted

    @cached_property
    def log_ratios(self) -> list[float]:
        """The logarithms of HEAD's time over BASE's, one for each pair of whole rounds."""
        rounds: dict[int, list[tuple[CommitArm, float]]] = {}
        for each, one in zip(self.runs, self.valid, strict=True):
            if one and (value := _value_of(one.measurement, self.metric)):
                rounds.setdefault(each.round, []).append((each.arm, value))
        whole = [turns for turns in rounds.values() if len(turns) == 4]
        pairs = [dict(half) for turns in whole for half in (turns[:2], turns[2:])]
        sign = -1 if self.metric == "speedup" else 1
        return [sign * math.log(pair["HEAD"] / pair["BASE"]) for pair in pairs]


def order_of(round: int) -> tuple[CommitArm, ...]:
    """Return the versions of the four runs of a round, counted from 0: ABBA, then BAAB, and so on."""
    first, second = COMMIT_ARMS if round % 2 == 0 else COMMIT_ARMS[::-1]
    return first, second, second, first


def alpha_of_look(taken: int, rounds: int, alpha: float) -> float | None:
    """Return the alpha of the look after so many rounds; None where none is taken: a single round shows no spread.

    rounds: how many there are at most.
    """
    earlier = max(rounds - 2, 0)
    if taken == rounds:
        return alpha / 2 if earlier else alpha
    return alpha / 2 / earlier if taken > 1 else None


def judge_rounds(
    runs: Sequence[ArmRun], tolerance: RegressionTolerance, alpha: float, processes: int = CONFIRMED
) -> list[Change]:
    """Return the change of each measurement, and of each test that one version alone fails or has, or that changed.

    The runs come in the order they were taken in. FAIL where HEAD is slower by more than is tolerated, or fails a test
    in every run that BASE passes; INCONCLUSIVE where too little is known; NOT_JUDGED where one version alone
    measured, INVALID where the other was measured beside other processes alone. processes: those of HEAD that have to
    count more before it fails by a counter.
    """
    series = measured_series(runs, tolerance.metric)
    noise = noise_of(each.log_ratios for each in series)
    tests = dict.fromkeys(name for each in runs for name in each.ended)
    changes = [change for nodeid in tests if (change := _judge_test(nodeid, runs))]
    told = {each.nodeid for each in changes}
    changed = _changed_tests(series)
    changes += [change for nodeid, change in changed.items() if nodeid not in told]
    for each in series:
        change = _judge_series(each, tolerance, alpha, noise, processes)
        if each.nodeid not in changed and (change.estimate is not None or each.nodeid not in told):
            changes.append(change)
    return changes


def measured_series(runs: Sequence[ArmRun], metric: str) -> list[RoundSeries]:
    """Return each measurement's times in all runs; of a speedup those of candidates."""
    tables = []
    for each in runs:
        tests: dict[str, list[RecordedMeasurement]] = {}
        for record in each.run.records:
            tests.setdefault(record.nodeid, []).extend(RecordedMeasurement(record, one) for one in record.measurements)
        table: dict[tuple[str, MeasurementKey], RecordedMeasurement] = {}
        for nodeid, found in tests.items():  # by keys that are the same whatever a reference is called
            keys = keys_of([one.measurement for one in found], by_reference=False)
            table |= {(nodeid, key): one for key, one in zip(keys, found, strict=True)}
        tables.append(table)
    return [
        RoundSeries(nodeid, key.label, runs, [table.get((nodeid, key)) for table in tables], metric)
        for nodeid, key in dict.fromkeys(each for table in tables for each in table)
        if metric != "speedup" or key.role != "reference"  # candidates are judged by it
    ]


def _judge_test(nodeid: str, runs: Sequence[ArmRun]) -> Change | None:
    """Return a change for a test that only one version has, or fails, or that both fail; None for any other."""
    asked = [each for each in runs if each.tests is None or nodeid in each.tests]
    base, head = ([each.ended.get(nodeid) for each in asked if each.arm == arm] for arm in COMMIT_ARMS)
    for arm, own, others in (("BASE", base, head), ("HEAD", head, base)):
        if not any(others):
            words = f"{arm} alone has it: {'removed, or renamed' if arm == 'BASE' else 'a new test'}"
            return Change(nodeid, "", Outcome.NOT_JUDGED, f"{words}, which fails" if "failed" in own else words)
    failed_base, failed_head = base.count("failed"), head.count("failed")
    if not failed_base and not failed_head:
        return None
    words = f"fails in {failed_head} of {len(head)} runs of HEAD and in {failed_base} of {len(base)} of BASE"
    if failed_head == len(head) and not failed_base:
        return Change(nodeid, "", Outcome.FAIL, f"{words}: see its own error there")
    if failed_base == len(base) and failed_head in (0, len(head)):
        both = "both versions fail it" if failed_head else "HEAD mended it"
        return Change(nodeid, "", Outcome.NOT_JUDGED, f"{words}: {both}")
    return Change(nodeid, "", Outcome.INCONCLUSIVE, f"{words}: it is not dependable")


def _changed_tests(series: Sequence[RoundSeries]) -> dict[str, Change]:
    """Return a change for each test that is another one in HEAD: its times would be those of two tests."""
    found: dict[str, Change] = {}
    for each in series:
        base, head = (
            {(one.record.source, tuple(comparable(one.record.params).items())) for one in each.of(arm)}
            for arm in COMMIT_ARMS
        )
        if base and head and base != head:
            what = "parameters" if {source for source, _ in base} == {source for source, _ in head} else "source"
            sentence = f"its own {what} changed, so BASE and HEAD run two tests: --tests PATH takes HEAD's for both"
            found[each.nodeid] = Change(each.nodeid, "", Outcome.NOT_JUDGED, sentence)
    return found


def _judge_series(
    series: RoundSeries, tolerance: RegressionTolerance, alpha: float, noise: RunNoise | None, processes: int
) -> Change:
    base, head = series.of("BASE"), series.of("HEAD")
    change = Change(series.nodeid, series.label, Outcome.NOT_JUDGED, "")
    if not base or not head:
        return _unmeasured(series, change)
    change = replace(change, old=base[-1].measurement, new=head[-1].measurement)
    installed = {each.arm: toolchain(each.run.machine_info) for each in series.runs}
    devices = base[-1].record.device, head[-1].record.device
    changed = list(differences(*devices, installed["BASE"], installed["HEAD"]))
    if len(ways := dict.fromkeys(each.way for each in (*base, *head))) > 1:
        words = " and ".join(", ".join(way) for way in list(ways)[:2])
        return replace(change, outcome=Outcome.INVALID, sentence=f"not measured in one way: {words}")
    if tolerance.is_on_counter:
        olds, news = ([each.measurement for each in arm] for arm in (base, head))
        return explained_change(compare_counters(change, tolerance, alpha, "BASE", olds, news, processes), changed)
    if not series.log_ratios:
        others = next(filter(None, (series.why_invalid(one) for one in series.found if one)), "")
        sentence = f"no round has it in all of its four runs{others and f' ({others})'}: measure more rounds"
        return replace(change, outcome=Outcome.INCONCLUSIVE, sentence=sentence)
    metric, pairs = series.metric, series.log_ratios
    old, new = (statistics.median(_value_of(each.measurement, metric) for each in arm) for arm in (base, head))
    old_us, new_us = (statistics.median(each.measurement.timing.median_us for each in arm) for arm in (base, head))
    estimate = change_of_pairs(pairs, metric, alpha, _clock_spread((*base, *head)))
    counts = f"{count(len(pairs), 'pair')} of runs"
    change = judge_change(change, replace(estimate, old=old, new=new), tolerance, "BASE", old_us, new_us, counts)
    smallest = noise.smallest_change(len(pairs), alpha) if noise else math.inf
    if change.outcome is Outcome.FAIL and estimate.ratio - 1 < smallest:  # few pairs of one test may agree by chance
        sentence = f"{change.sentence}; no regression: this machine sees {share_or_more(smallest)}"
        change = replace(change, outcome=Outcome.INCONCLUSIVE, sentence=sentence)
    return explained_change(change, changed)


def _unmeasured(series: RoundSeries, change: Change) -> Change:
    """Return the change of what one version did not measure; INVALID where other processes alone are to blame."""
    lacking = [arm for arm in COMMIT_ARMS if not series.of(arm)]
    found = [one for each, one in zip(series.runs, series.found, strict=True) if each.arm in lacking and one]
    beside_others = any(series.why_invalid(one) and not one.why_invalid for one in found)
    why = f": {series.why_invalid(found[0])}" if found else ", which has no measurement of this name"
    outcome = Outcome.INVALID if beside_others else Outcome.NOT_JUDGED
    return replace(change, outcome=outcome, sentence=f"not measured in {' and '.join(lacking)}{why}")


def change_of_pairs(log_ratios: Sequence[float], metric: str, alpha: float, least: float = 0.0) -> ChangeEstimate:
    """Return HEAD's slowdown, with an interval each end of which is wrong with a chance of at most alpha.

    least: the standard deviation that the pairs are taken to have at least. No interval with a single pair.
    """
    logs, middle, pairs = median_interval(log_ratios, 2 * alpha), statistics.median(log_ratios), len(log_ratios)
    if logs is None:
        middle = statistics.fmean(log_ratios)
        if pairs > 1:
            spread = max(statistics.stdev(log_ratios), least)
            half = min(student_t(alpha, pairs - 1) * spread / math.sqrt(pairs), LARGEST_LOG)
            logs = Interval(middle - half, middle + half)
    return ChangeEstimate(math.exp(middle), logs and Interval(*map(math.exp, logs)), metric, alpha)


def _value_of(measurement: Measurement, metric: str) -> float:
    """Return the value of a measurement in a run: a time in microseconds, or a speedup."""
    if metric == "speedup" and measurement.speedup is not None:
        return measurement.speedup.ratio
    return measurement.timing.mean_us if metric == "mean" else measurement.timing.median_us


def _clock_spread(found: Iterable[RecordedMeasurement]) -> float:
    """Return the standard deviation that the ticks of the clock alone give the log-ratio of a pair.

    Medians a tick apart may be those of one kernel, and a few pairs that agree by chance would look certain. A tick is
    what the samples of a run differ by at least; spread evenly over it a median deviates by a tick over the root of 12.
    """
    timings = [each.measurement.timing for each in found]
    ticks = [min(steps) / timing.median_us for timing in timings if (steps := steps_us(timing.samples_us))]
    return statistics.median(ticks) / math.sqrt(6) if ticks else 0.0
