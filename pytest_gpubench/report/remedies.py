"""Warnings about the numbers of a run, one line a kind, each with what to do about it."""

from collections.abc import Sequence

from pytest_gpubench.report.rows import split
from pytest_gpubench.results.model import Outcome, TestRecord
from pytest_gpubench.stats import summary
from pytest_gpubench.stats.speedup import least_reps
from pytest_gpubench.units import count, first_few, format_share

MOST_CLOCK_DIFFERENCE = 0.03
"""Relative difference of two arms' median SM clocks: a larger one distorts the speedup."""
MOST_CLOCK_SPREAD = 0.05
"""The standard deviation of the reps' SM clocks over their mean."""
MOST_TESTS_NAMED = 3
"""Tests that a warning names."""

STEADY_CLOCKS = "lock the clocks (nvidia-smi -lgc, as administrator), or let the GPU idle between the tests"
COOL = (
    "give the GPU time to cool (run fewer tests at once, raise --gpu-bench-budget-s), or lock a clock that it can hold "
    "(nvidia-smi -lgc, as administrator)"
)


def remedy_lines(records: Sequence[TestRecord]) -> list[str]:
    """Return a line for each kind of trouble, with the tests it was found in."""
    clocks = {record.nodeid: _clock_trouble(record) for record in records}
    throttled = {}
    for record in records:
        timings = [item.timing for item in record.measurements if "throttled" in item.timing.flags]
        reasons = dict.fromkeys(reason for timing in timings for reason in timing.throttle_reasons)
        throttled[record.nodeid] = ", ".join(reasons) or (count(len(timings), "measurement") if timings else "")
    few = [(record, least_reps) for record in records if (least_reps := _needed_reps(record))]
    lines = []
    if any(clocks.values()):
        lines.append(f"unsteady SM clocks in {named(clocks)}: {STEADY_CLOCKS}")
    if any(throttled.values()):
        lines.append(f"the GPU was throttled in {named(throttled)}: {COOL}")
    remarks = (item.timing.remark for record in records for item in record.measurements)
    lines += dict.fromkeys(filter(None, remarks))
    if few:
        least_reps = max(least for _, least in few)
        tests = {record.nodeid: f"at least {least} reps" for record, least in few}
        lines.append(
            f"too few reps for an interval of the speedup in {named(tests)}: take {least_reps} "
            f"(--gpu-bench-reps={least_reps}), or give them time (--gpu-bench-budget-s)"
        )
    return lines


def named(found: dict[str, str]) -> str:
    """Return the first tests with a finding, each with it, and the number of the others."""
    return first_few([f"{nodeid} ({what})" for nodeid, what in found.items() if what], MOST_TESTS_NAMED)


def _clock_trouble(record: TestRecord) -> str:
    """Return the largest difference or spread of a test's clocks; empty where they were steady."""
    differences = []
    for arms in (row.arms for row in split(record)[1]):
        clocks = [(clock_mhz, arm.label) for arm in arms if (clock_mhz := arm.median_sm_clock_mhz)]
        if len(clocks) > 1:
            words = ", ".join(f"{label} at {clock_mhz:.0f} MHz" for clock_mhz, label in clocks)
            differences.append((1 - min(clocks)[0] / max(clocks)[0], words))
    difference, text = max(differences, default=(0.0, ""))
    if difference > MOST_CLOCK_DIFFERENCE:
        return text
    timings = [item.timing for item in record.measurements if len(item.timing.sm_clock_mhz) > 1]
    spread, label = max(((summary.rel_std(each.sm_clock_mhz), each.label) for each in timings), default=(0.0, ""))
    return f"{label}: relative std {format_share(spread)}" if spread > MOST_CLOCK_SPREAD else ""


def _needed_reps(record: TestRecord) -> int:
    """Return the reps that a test's speedups need for an interval; 0 if they have one, or the test warned of it."""
    if record.search:  # which needs more with each example, and says itself how many
        return 0
    found = [
        least_reps(item.speedup.alpha)
        for item in record.measurements
        if item.speedup is not None
        and item.speedup.interval is None
        and (item.verdicts or not item.example)  # a cheap look under @given is not meant to decide anything
        and not any(
            verdict.outcome is Outcome.INCONCLUSIVE and verdict.sentence in record.warnings for verdict in item.verdicts
        )
    ]
    return max(found, default=0)
