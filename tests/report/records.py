"""Records made by hand."""

from pytest_gpubench import Measurement, Speedup, Timing, Verdict
from pytest_gpubench.results.model import Outcome, TestRecord
from tests.results import measured
from tests.results.measured import kernel

GPU = measured.BARE_GPU


def timing(label: str, median_us: float, clock_mhz: float | None = 1980, **others: object) -> Timing:
    """Return a timing of nine reps about a median, at a steady clock."""
    known: dict[str, object] = {
        "sm_clock_mhz": () if clock_mhz is None else (clock_mhz,) * 9,
        "kernels": (kernel(f"{label}_kernel", 2, median_us),),
    }
    samples = [median_us * (1 + step / 1000) for step in range(-4, 5)]
    return measured.timing_of(samples, label, **{**known, **others})


def unmeasured(label: str, reason: str) -> Timing:
    return measured.timing_of((), label, unmeasured=reason)


def verdict(limit: str, outcome: Outcome, enforced: bool = True) -> Verdict:
    """Return a verdict whose sentence names its limit."""
    return measured.verdict(limit, outcome, f"a sentence about {limit}", enforced)


def speedup(reference: Timing, ratio: float, quads: int = 20, interval: bool = True) -> Speedup:
    """Return a speedup over a reference, 1 % wide to each side."""
    ends = (0.99 * ratio, 1.01 * ratio) if interval else None
    return measured.speedup_over(reference.median_us, ratio, ends, quads=quads, reference=reference.label, seed=7)


def arms(candidate: Timing, reference: Timing, *verdicts: Verdict, **others: object) -> tuple[Measurement, Measurement]:
    """Return the measurements of a comparison; others are the speedup's, of which there is one where both are timed."""
    found = None
    if candidate.measured and reference.measured:
        found = speedup(reference, reference.median_us / candidate.median_us, **others)  # type: ignore[arg-type]
    lines = ("out PASS max_diff=0",)
    return (
        Measurement(timing=reference, role="reference"),
        Measurement(timing=candidate, speedup=found, verdicts=verdicts, differences=lines, role="candidate"),
    )


def record(*measurements: Measurement, nodeid: str = "tests/test_a.py::test_it", **others: object) -> TestRecord:
    return TestRecord(nodeid=nodeid, device=GPU, measurements=measurements, **others)  # type: ignore[arg-type]
