"""The records of a run: devices, kernels, timings, verdicts."""

from pytest_gpubench.results.model.device import DeviceFacts, MemoryPeak, Peaks
from pytest_gpubench.results.model.measurement import (
    SAME_CODE,
    VALIDITY,
    Comparison,
    Measurement,
    Outcome,
    Overhead,
    PastChange,
    Speedup,
    Verdict,
    with_reasons,
)
from pytest_gpubench.results.model.plain import plain, text_of
from pytest_gpubench.results.model.record import CommitInfo, SavedRun, TestRecord, Turn, decode, encode
from pytest_gpubench.results.model.timing import LONGEST_US, Code, Counts, Kernel, Resources, Stretch, Timing

__all__ = [
    "LONGEST_US",
    "SAME_CODE",
    "VALIDITY",
    "Code",
    "CommitInfo",
    "Comparison",
    "Counts",
    "DeviceFacts",
    "Kernel",
    "Measurement",
    "MemoryPeak",
    "Outcome",
    "Overhead",
    "PastChange",
    "Peaks",
    "Resources",
    "SavedRun",
    "Speedup",
    "Stretch",
    "TestRecord",
    "Timing",
    "Turn",
    "Verdict",
    "decode",
    "encode",
    "plain",
    "text_of",
    "with_reasons",
]
