"""Two versions of one code, measured by alternating runs of pytest: what changed, and how certain that is.

A round is four runs in the order ABBA, every other time BAAB, hence two pairs of neighbours that disagree about which
version came first. The unit is the run: its samples share whatever sets one process apart from the next (addresses,
clocks, the choice of an autotuner), so more of them do not make the answer more certain, only more runs do. A sample is
the logarithm of the ratio of a pair. What drifts from run to run cancels between the two pairs of a round, and what is
left of it widens the interval; therefore a round that is not whole is left out.

Where alpha and the number of pairs allow it, the interval is made of order statistics of the pairs (8 pairs, four
rounds, at alpha 0.01), which assumes nothing about their distribution. With fewer it is Student's t interval of their
mean, which assumes that the pairs are spread normally. Simulated with 0.5 % of spread between runs, a drift of 3 % over
the session and a margin of 3 %, 20,000 times each, at alpha 0.01: no kernel as fast as before fails, of kernels slower
by exactly the margin 0.8 % fail with three rounds and 0.3 % with four, and of kernels slower by 5 % 98 and 97 % fail
(57 % with two rounds). At alpha 0.001 three rounds find 61 % of those and four 95 %.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from pytest_gpubench.results.model import DeviceFacts, Measurement, Outcome, SavedRun
from pytest_gpubench.stats.regression import Change, decide
from pytest_gpubench.stats.summary import Interval, median_rank
from pytest_gpubench.units import count, format_time

Arm = Literal["BASE", "HEAD"]
Metric = Literal["speedup", "median", "mean"]
Ended = Literal["passed", "failed", "skipped"]
"""How a test ended; an error in its setup or teardown is a failure."""

DECISIONS = {"pass": Outcome.PASS, "fail": Outcome.FAIL, "open": Outcome.INCONCLUSIVE}
ARMS: tuple[Arm, Arm] = ("BASE", "HEAD")


@dataclass(frozen=True)
class ArmRun:
    """One run of pytest: of which version, in which round, what it measured, and how its tests ended."""

    arm: Arm
    round: int
    run: SavedRun
    ended: Mapping[str, Ended]
    """By node id, or whatever names a test in the same way in every run."""


@dataclass(frozen=True)
class Rule:
    """How much slower than BASE a HEAD may be: a fraction; `alpha` is the chance, at most, of a wrong FAIL."""

    margin: float
    alpha: float
    metric: Metric = "speedup"
    """What is compared: the speedup over a reference where there is one, else the median."""


@dataclass(frozen=True)
class Judgement:
    """What became of one measurement, or of one test that has none."""

    nodeid: str
    label: str
    """Of the measurement; empty for what is said of the test as a whole."""
    outcome: Outcome
    sentence: str
    change: Change | None = None
    """Of the time, or of the speedup; None where nothing was compared."""
    pairs: int = 0


class Key(NamedTuple):
    """What a measurement is found by again in another run; `occurrence` counts those that are alike in the rest."""

    nodeid: str
    label: str
    role: str
    example: str
    occurrence: int


@dataclass(frozen=True)
class Found:
    """A measurement, and the device it was taken on."""

    device: DeviceFacts
    measurement: Measurement

    @property
    def way(self) -> tuple[str, str, str]:
        """What must be the same for two measurements to be compared: device, timer, cache."""
        timing = self.measurement.timing
        return f"{self.device.name} {self.device.uuid or ''}".strip(), f"{timing.timer} timer", f"{timing.cache} cache"

    @property
    def is_valid(self) -> bool:
        """Whether it has samples that nothing speaks against."""
        outcomes = {verdict.outcome for verdict in self.measurement.verdicts}
        return self.measurement.timing.measured and Outcome.INVALID not in outcomes


Table = Mapping[Key, Found]


def order_of(round: int) -> tuple[Arm, ...]:
    """Return whose turn it is in the four runs of a round, counted from 0: ABBA, then BAAB, and so on."""
    first, second = ARMS if round % 2 == 0 else ARMS[::-1]
    return first, second, second, first


def judge(runs: Sequence[ArmRun], rule: Rule) -> list[Judgement]:
    """Return a judgement for each measurement, and for each test that one version alone fails or has.

    The runs come in the order they were taken in. FAIL where HEAD is slower by more than the margin, or fails a test in
    every run that BASE passes; INCONCLUSIVE where too little is known; NOT_JUDGED where one version alone measured.
    """
    tables = [table_of(each.run) for each in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    judgements = judge_tests(runs)
    told = {each.nodeid for each in judgements}
    for key in keys:
        if rule.metric == "speedup" and key.role == "reference":
            continue  # the yardstick of the others
        judgement = judge_measurement(key, runs, tables, rule)
        if judgement.change is not None or key.nodeid not in told:
            judgements.append(judgement)
    return judgements


def table_of(run: SavedRun) -> Table:
    """Return the measurements of a run by what they are found by."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    table = {}
    for record in run.records:
        for each in record.measurements:
            name = (record.nodeid, each.timing.label, each.role, each.example)
            table[Key(*name, seen[name])] = Found(record.device, each)
            seen[name] += 1
    return table


# tests that did not end alike


def judge_tests(runs: Sequence[ArmRun]) -> list[Judgement]:
    """Return a judgement for each test that only one version has, or fails, and for those that both fail."""
    found = [_judge_test(nodeid, runs) for nodeid in dict.fromkeys(name for each in runs for name in each.ended)]
    return [each for each in found if each is not None]


def _judge_test(nodeid: str, runs: Sequence[ArmRun]) -> Judgement | None:
    base, head = ([each.ended.get(nodeid) for each in runs if each.arm == arm] for arm in ARMS)
    for arm, own, others in (("BASE", base, head), ("HEAD", head, base)):
        if not any(others):
            words = f"{arm} alone has it: {'removed, or renamed' if arm == 'BASE' else 'a new test'}"
            return _unjudged(nodeid, "", f"{words}, which fails" if "failed" in own else words)
    failed_base, failed_head = base.count("failed"), head.count("failed")
    if not failed_base and not failed_head:
        return None
    words = f"fails in {failed_head} of {len(head)} runs of HEAD and in {failed_base} of {len(base)} of BASE"
    if failed_head == len(head) and not failed_base:
        return Judgement(nodeid, "", Outcome.FAIL, f"{words}: see its own error there")
    if failed_base == len(base) and failed_head in (0, len(head)):
        both = "both versions fail it" if failed_head else "HEAD mended it"
        return _unjudged(nodeid, "", f"{words}: {both}")
    return Judgement(nodeid, "", Outcome.INCONCLUSIVE, f"{words}: it is not dependable")


# measurements


def judge_measurement(key: Key, runs: Sequence[ArmRun], tables: Sequence[Table], rule: Rule) -> Judgement:
    """Return what became of a measurement between the two versions."""
    found = [table.get(key) for table in tables]
    valid = [each if each is not None and each.is_valid else None for each in found]
    measured = {arm: [one for each, one in zip(runs, valid, strict=True) if each.arm == arm and one] for arm in ARMS}
    if not measured["BASE"] or not measured["HEAD"]:
        return _unjudged(key.nodeid, key.label, _why_unmeasured(runs, found, measured))
    everywhere = [*measured["BASE"], *measured["HEAD"]]
    if len(ways := dict.fromkeys(each.way for each in everywhere)) > 1:
        words = " and ".join(", ".join(way) for way in list(ways)[:2])
        return Judgement(key.nodeid, key.label, Outcome.INVALID, f"not measured in one way: {words}")
    metric = metric_for(everywhere, rule.metric)
    log_ratios = pair_log_ratios(runs, [value_of(each.measurement, metric) if each else None for each in valid], metric)
    if not log_ratios:
        return Judgement(
            key.nodeid, key.label, Outcome.INCONCLUSIVE, "no round has it in all of its four runs: measure more rounds"
        )
    change = change_of_pairs(log_ratios, metric, rule.alpha, clock_spread(everywhere))
    outcome = DECISIONS[decide(change, rule.margin)]
    sentence = describe(change, rule, outcome, measured, len(log_ratios))
    return Judgement(key.nodeid, key.label, outcome, sentence, change, len(log_ratios))


def metric_for(found: Iterable[Found], wanted: Metric) -> Metric:
    """Return the metric to compare by: the median where not all of them are speedups over one reference."""
    if wanted != "speedup":
        return wanted
    references = {each.measurement.speedup and each.measurement.speedup.reference for each in found}
    return "speedup" if len(references) == 1 and None not in references else "median"


def value_of(measurement: Measurement, metric: Metric) -> float:
    """Return what a run says of a measurement: a time in microseconds, or a speedup."""
    if metric == "speedup" and measurement.speedup is not None:
        return measurement.speedup.ratio
    return measurement.timing.mean_us if metric == "mean" else measurement.timing.median_us


def pair_log_ratios(runs: Sequence[ArmRun], values: Sequence[float | None], metric: Metric) -> list[float]:
    """Return for each pair of whole rounds how much slower HEAD is than BASE, as the logarithm of the ratio."""
    rounds: dict[int, list[tuple[Arm, float | None]]] = {}
    for each, value in zip(runs, values, strict=True):
        rounds.setdefault(each.round, []).append((each.arm, value))
    sign = -1 if metric == "speedup" else 1
    log_ratios = []
    for turns in rounds.values():
        known = [(arm, value) for arm, value in turns if value]
        if len(known) == 4:
            log_ratios += [sign * _log_ratio(*pair) for pair in list(pairwise(known))[::2]]
    return log_ratios


def _log_ratio(one: tuple[Arm, float], other: tuple[Arm, float]) -> float:
    values = dict((one, other))
    return math.log(values["HEAD"] / values["BASE"])


# the statistics of the pairs


def change_of_pairs(log_ratios: Sequence[float], metric: str, alpha: float, least_spread: float = 0.0) -> Change:
    """Return how much slower HEAD is, with an interval each end of which is wrong with a chance of at most alpha.

    least_spread: the standard deviation that the pairs are taken to have at least. No interval with a single pair.
    """
    rank = median_rank(len(log_ratios), 2 * alpha)
    if rank is not None:
        ordered = sorted(log_ratios)
        ends = Interval(math.exp(ordered[rank - 1]), math.exp(ordered[-rank]))
        return Change(math.exp(statistics.median(ordered)), ends, metric, alpha)
    mean = statistics.fmean(log_ratios)
    if len(log_ratios) < 2:
        return Change(math.exp(mean), None, metric, alpha)
    spread = max(statistics.stdev(log_ratios), least_spread)
    half = student_t(alpha, len(log_ratios) - 1) * spread / math.sqrt(len(log_ratios))
    return Change(math.exp(mean), Interval(math.exp(mean - half), math.exp(mean + half)), metric, alpha)


def clock_spread(found: Iterable[Found]) -> float:
    """Return the standard deviation that the ticks of the clock alone give the log-ratio of a pair.

    Medians a tick apart may be those of one kernel, and a few pairs that agree by chance would look certain. A tick is
    what the samples of a run differ by at least; spread evenly over it a median deviates by a tick over the root of 12.
    """
    steps = [step / each.measurement.timing.median_us for each in found if (step := _step_us(each.measurement))]
    return statistics.median(steps) / math.sqrt(6) if steps else 0.0


def _step_us(measurement: Measurement) -> float | None:
    ordered = sorted(set(measurement.timing.samples_us))
    return min((later - sample for sample, later in pairwise(ordered)), default=None)


def student_t(alpha: float, freedom: int) -> float:
    """Return what Student's t with so many degrees of freedom exceeds with chance alpha, below one half.

    The distribution in closed form (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _upper_tail(middle, freedom) > alpha else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _upper_tail(angle: float, freedom: int) -> float:
    """Return the chance of a t above the root of `freedom` times the angle's tangent."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= (step - 1) / step * cosine**2
        total += term
    if not odd:
        return (1 - sine * total) / 2
    return 0.5 - (angle + (sine * total if freedom > 1 else 0.0)) / math.pi


# sentences


def describe(change: Change, rule: Rule, outcome: Outcome, measured: Mapping[Arm, Sequence[Found]], pairs: int) -> str:
    """Return what was found, and what was wanted, in a sentence."""
    words = {Outcome.PASS: "is not slower", Outcome.FAIL: "is slower"}.get(outcome, "is too close to tell")
    ends = f" [{change.interval.low:.3f}, {change.interval.high:.3f}]" if change.interval else ""
    what = "the speedup's loss" if change.metric == "speedup" else f"the {change.metric}"
    times = [
        format_time(statistics.median(each.measurement.timing.median_us for each in measured[arm]))
        for arm in ARMS[::-1]
    ]
    return (
        f"{words}: {change.ratio:.3f}x{ends} by {what}, wanted at most {1 + rule.margin:g}x "
        f"({times[0]} against {times[1]}, {count(pairs, 'pair')} of runs, alpha {rule.alpha:g})"
    )


def _why_unmeasured(
    runs: Sequence[ArmRun], found: Sequence[Found | None], measured: Mapping[Arm, Sequence[Found]]
) -> str:
    lacking = [arm for arm in ARMS if not measured[arm]]
    there = [one for each, one in zip(runs, found, strict=True) if each.arm in lacking and one]
    reasons = [_reason(each.measurement) for each in there]
    why = f": {reasons[0]}" if reasons else ", which has no measurement of this name"
    return f"not measured in {' and '.join(lacking)}{why}"


def _reason(measurement: Measurement) -> str:
    invalid = [verdict.sentence for verdict in measurement.verdicts if verdict.outcome is Outcome.INVALID]
    return measurement.timing.unmeasured or next(iter(invalid), "no samples")


def _unjudged(nodeid: str, label: str, sentence: str) -> Judgement:
    return Judgement(nodeid, label, Outcome.NOT_JUDGED, sentence)
