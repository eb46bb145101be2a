"""Measurements of the page: times, samples, kernels, verdicts, and the same in older runs."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from pytest_gpubench.metrics import BY_NAME, METRICS
from pytest_gpubench.report.html.history import OlderRuns
from pytest_gpubench.report.html.numbers import five_digits, rounded, sizes_in, thin
from pytest_gpubench.report.rows import change_word, notes_of, resources_text
from pytest_gpubench.results.counterpart import RunKey, by_key
from pytest_gpubench.results.model import Measurement, SavedRun, Speedup, TestRecord, Timing, Verdict
from pytest_gpubench.verdict.limits import number_for

MOST_KERNELS_ON_PAGE = 40
"""Kernels of one call that are listed; the shortest of more are left out."""
MOST_SAMPLES = 1000
"""Samples of one series on the page."""
MOST_NUMBERS = 400_000
"""Samples, clocks and ratios of all series; of more, every series keeps every second one, or third, ..."""

OF_BASELINE = ("median", "interval", "reps", "clock")
"""The metrics of the saved run that the page shows beside this run's."""


class Measured:
    """The measurements of a run as the page shows them."""

    def __init__(self, run: SavedRun, past: OlderRuns) -> None:
        self.kernel_numbers: dict[str, int] = {}
        """The index of each kernel's name in the list of names, which are long and occur often."""
        self._past = past
        items = [item for record in run.records for item in record.measurements]
        series = [each for item in items for each in (item.timing.samples_us, item.timing.sm_clock_mhz)]
        series += [item.speedup.log_ratios for item in items if item.speedup]
        self._longest = max(20, min(MOST_SAMPLES, MOST_NUMBERS // max(1, sum(map(bool, series)))))

    def items(self, record: TestRecord) -> Iterator[dict[str, Any]]:
        """Yield the page's data for each measurement of a test, without empty entries."""
        for key, item in by_key(record.measurements).items():
            run_key = record.device.name, record.nodeid, key
            content = {
                "label": item.timing.label,
                "role": item.role,
                "example": item.example,
                "sizes": sizes_in(item.example),
                **self._timing(item),
                "speedup": item.speedup and self._speedup(item.speedup),
                "verdicts": [_verdict_content(verdict, item.timing) for verdict in item.verdicts],
                "differences": item.differences,
                "change": item.change
                and {
                    "ratio": five_digits(item.change.ratio),
                    "interval": item.change.interval and rounded(item.change.interval),
                    "of": item.change.metric,
                    "word": change_word(item),
                    "baseline": item.change.baseline,
                    "old": five_digits(item.change.old_us),
                },
                "base": self._baseline(item, run_key),
                **({} if item.role == "reference" else self._past.series(item, run_key)),
            }
            yield {name: value for name, value in content.items() if value not in (None, "", [], (), {}, 0)}

    def _timing(self, item: Measurement) -> dict[str, Any]:
        timing = item.timing
        about: dict[str, Any] = {
            "timer": timing.timer,
            "cache": timing.cache,
            "notes": notes_of(timing),
            "why": timing.unmeasured,
            "throttled": timing.throttle_reasons,
            "bytes": timing.moved_bytes,
            "flops": timing.flops,
        }
        if not timing.measured:
            return about
        samples, step = thin(timing.samples_us, self._longest)
        clocks, clock_step = thin(timing.sm_clock_mhz, self._longest)
        return about | {
            **page_numbers(item, [metric.name for metric in METRICS if metric.page]),
            "samples": samples,
            "step": step,
            "clocks": [clock and round(clock) for clock in clocks],
            "clock_step": clock_step,
            "launched": self._kernels(timing),
        }

    def _kernels(self, timing: Timing) -> list[list[Any]]:
        """Return the kernels of a call, the longest first: name, kind, launches, microseconds, resources of each."""
        numbers, found = self.kernel_numbers, []
        for each in sorted(timing.kernels, key=lambda kernel: -kernel.median_us)[:MOST_KERNELS_ON_PAGE]:
            number, told = numbers.setdefault(each.name, len(numbers)), resources_text(each.resources)
            found.append([number, each.kind, each.launches, five_digits(each.median_us), told])
        return found

    def _speedup(self, speedup: Speedup) -> dict[str, Any]:
        logs, step = thin(speedup.log_ratios, self._longest)
        return {
            "ratio": five_digits(speedup.ratio),
            "interval": speedup.interval and rounded(speedup.interval),
            "reference": speedup.reference,
            "quads": speedup.quads,
            "alpha": speedup.alpha,
            "seed": str(speedup.seed),
            "ratios": [None if value is None else five_digits(math.exp(min(value, 700))) for value in logs],
            "step": step,
        }

    def _baseline(self, item: Measurement, key: RunKey) -> dict[str, Any] | None:
        if self._past.baseline is None or item.role == "reference":
            return None
        old = self._past.baseline.get(key)
        if old is None:
            return None if item.example else {"new": True}  # every run has other examples
        found: dict[str, Any] = {}
        if old.timing.measured:
            found |= page_numbers(old, OF_BASELINE) | {"launched": self._kernels(old.timing)}
        if old.speedup is not None:
            found["ratio"] = five_digits(old.speedup.ratio)
        return found


def page_numbers(item: Measurement, names: Iterable[str]) -> dict[str, Any]:
    """Return metrics of a measurement, pairs as lists; without those of a time that cannot be true."""
    values = {name: BY_NAME[name].value(item) for name in names}
    return {name: rounded(value) if isinstance(value, tuple) else five_digits(value) for name, value in values.items()}


def _verdict_content(verdict: Verdict, timing: Timing) -> dict[str, Any]:
    found, _, wanted = verdict.sentence.partition(", wanted")  # `softmax: 1.667x [1.650, 1.684], wanted ...`
    found = found.removeprefix(timing.label).strip(" :")
    return {
        "limit": verdict.limit,
        "kind": verdict.kind,
        "value": five_digits(number_for(verdict, timing)),
        "measured": verdict.found or (found.rpartition(": ")[2] if wanted else found),
        "outcome": verdict.outcome.value,
        "sentence": verdict.sentence,
        **({"reasons": verdict.lines[1:]} if verdict.reasons else {}),
        "enforced": verdict.enforced,
    }
