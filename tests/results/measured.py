"""Builders of measurements, tests, runs and baselines."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from pytest_gpubench import DeviceFacts, Kernel, Measurement, Speedup, Timing, Verdict
from pytest_gpubench.results.baseline import Baseline
from pytest_gpubench.results.counterpart import Missing, PastTest
from pytest_gpubench.results.model import Outcome, Resources, SavedRun, TestRecord
from pytest_gpubench.stats.summary import Interval

GPU = DeviceFacts(type="cuda", name="NVIDIA H200", host="here", uuid="GPU-1", driver="570.1", multiprocessors=132)
BARE_GPU = DeviceFacts(type="cuda", name="NVIDIA H200", host="here")
TEST = "tests/test_a.py::test_it"
ALPHA = 0.001
T = TypeVar("T")


def present(value: T | None) -> T:
    """Return what a test expects to be there."""
    assert value is not None
    return value


def on(**facts: Any) -> DeviceFacts:
    return msgspec.structs.replace(GPU, **facts)


def facts(name: str = BARE_GPU.name, **known: Any) -> DeviceFacts:
    """Return what is known of a GPU: its name, its host, and what is given."""
    return msgspec.structs.replace(BARE_GPU, name=name, **known)


def kernel(name: str, launches: int = 1, median_us: float = 1.0, kind: Any = "kernel", **others: Any) -> Kernel:
    return Kernel(name=name, kind=kind, launches=launches, median_us=median_us, **others)


def resources(**others: Any) -> Resources:
    """Return what launches of a kernel take that fills an H200 twice."""
    known = {"grid": (264, 1, 1), "block": (1024, 1, 1), "registers": 64, "blocks_per_sm": 1, "resident_blocks": 132}
    return Resources(**{**known, **others})


def timing_of(samples: Sequence[float] = (), label: str = "softmax", **others: Any) -> Timing:
    known = {"timer": "profiler", "cache": "cold", "device": GPU.name, "samples_us": tuple(samples)}
    return Timing(label=label, **{**known, **others})


def timing(label: str, us: float, reps: int = 30, **others: Any) -> Timing:
    return timing_of([us * (1 + (step - reps / 2) / 1e4) for step in range(reps)], label, **others)


def clocked(label: str, us: float, clock_mhz: float | None = 1980, **others: Any) -> Timing:
    """Return a timing of nine reps about a median, of two launches of a kernel, at a steady clock."""
    known = {
        "sm_clock_mhz": () if clock_mhz is None else (clock_mhz,) * 9,
        "kernels": (kernel(f"{label}_kernel", 2, us),),
    }
    return timing_of([us * (1 + step / 1000) for step in range(-4, 5)], label, **{**known, **others})


def unmeasured(label: str, reason: str) -> Timing:
    return timing_of((), label, unmeasured=reason)


def verdict(limit: str, outcome: Outcome, sentence: str = "", enforced: bool = True) -> Verdict:
    """Return a verdict on a limit as a marker states it, `max_time_us=10`; other text is about the test as a whole."""
    sentence = sentence or f"a sentence about {limit}"
    kind, equals, asked = limit.partition("=")
    if not equals:
        kind, asked = "validity", limit
    return Verdict(kind=kind, asked=asked, outcome=outcome, sentence=sentence, enforced=enforced)


def alone(label: str = "softmax", us: float = 289, **others: Any) -> Measurement:
    return Measurement(timing=timing(label, us, **others))


def retimed(item: Measurement, **changes: Any) -> Measurement:
    return msgspec.structs.replace(item, timing=msgspec.structs.replace(item.timing, **changes))


def speedup_over(reference_us: float, ratio: float, ends: tuple[float, float] | None = None, **others: Any) -> Speedup:
    known = {"quads": 20, "alpha": ALPHA, "reference": "torch", "seed": 0, **others}
    return Speedup(ratio=ratio, interval=ends and Interval(*ends), reference_us=reference_us, **known)


def pair(candidate: str, us: float, reference_us: float = 400, example: str = "") -> tuple[Measurement, Measurement]:
    ratio = reference_us / us
    logs = tuple(math.log(ratio) + step / 1e4 for step in range(-15, 15))
    speedup = speedup_over(reference_us, ratio, quads=30, seed=1, log_ratios=logs)
    return (
        Measurement(timing=timing("torch", reference_us), role="reference", example=example),
        Measurement(timing=timing(candidate, us), speedup=speedup, role="candidate", example=example),
    )


def arms(
    candidate: Timing, reference: Timing, *verdicts: Verdict, interval: bool = True, **others: Any
) -> tuple[Measurement, Measurement]:
    """Return the measurements of a comparison; the speedup's interval is 1 % wide to each side, others are its own."""
    found = None
    if candidate.measured and reference.measured:
        ratio = reference.median_us / candidate.median_us
        ends = (0.99 * ratio, 1.01 * ratio) if interval else None
        found = speedup_over(reference.median_us, ratio, ends, **{"reference": reference.label, "seed": 7, **others})
    lines = ("out PASS max_diff=0",)
    return (
        Measurement(timing=reference, role="reference"),
        Measurement(timing=candidate, speedup=found, verdicts=verdicts, differences=lines, role="candidate"),
    )


def record(*measurements: Measurement, nodeid: str = TEST, **others: Any) -> TestRecord:
    known: dict[str, Any] = {"device": GPU, "source": "abc"}
    return TestRecord(nodeid=nodeid, measurements=measurements, **{**known, **others})


def run(*records: TestRecord, **others: Any) -> SavedRun:
    known: dict[str, Any] = {"datetime": "2026-01-01T00:00:00+00:00", "name": "main", "machine_info": {"torch": "2.11"}}
    return SavedRun(records=records, **{**known, **others})


def baseline(*records: TestRecord, **others: Any) -> Baseline:
    return Baseline([("main", run(*records, **others))])


def find(where: Baseline, nodeid: str = TEST, source: str = "abc", device: DeviceFacts = GPU, **others: Any) -> Any:
    return where.find(nodeid, source, device, others.pop("params", {}), **others)


def missing(found: PastTest | Missing | Measurement) -> Missing:
    assert isinstance(found, Missing)
    assert not found.sentence.endswith(".")
    return found
