"""A performance assertion you can trust as much as a correctness assertion.

The names below are loaded when they are first used: everybody who has the plugin installed imports this module in
every pytest run.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pytest_gpubench.errors import (
        BadFile,
        BadRequest,
        DeviceUnavailable,
        GpuBenchError,
        IncompleteRecords,
        InvalidResult,
        KernelsDiffer,
        LimitBroken,
        MeasurementError,
        NoBaseline,
        NothingRecorded,
        NotMeasured,
        ProfilerBusy,
        UnfairComparison,
        WrongResult,
    )
    from pytest_gpubench.fixture import GpuBench
    from pytest_gpubench.judge import judge_candidate as judge
    from pytest_gpubench.judge.judgement import Judgement
    from pytest_gpubench.results.model import (
        Comparison,
        DeviceFacts,
        Kernel,
        Measurement,
        PastChange,
        Speedup,
        Timing,
        Verdict,
    )
    from pytest_gpubench.results.phases import Phases, Region
    from pytest_gpubench.timing.ranks import Rank, Ranks
    from pytest_gpubench.timing.regions import region
    from pytest_gpubench.timing.scripted import scripted

__all__ = [
    "BadFile",
    "BadRequest",
    "Comparison",
    "DeviceFacts",
    "DeviceUnavailable",
    "GpuBench",
    "GpuBenchError",
    "IncompleteRecords",
    "InvalidResult",
    "Judgement",
    "Kernel",
    "KernelsDiffer",
    "LimitBroken",
    "Measurement",
    "MeasurementError",
    "NoBaseline",
    "NotMeasured",
    "NothingRecorded",
    "PastChange",
    "Phases",
    "ProfilerBusy",
    "Rank",
    "Ranks",
    "Region",
    "Speedup",
    "Timing",
    "UnfairComparison",
    "Verdict",
    "WrongResult",
    "judge",
    "region",
    "scripted",
]

_MODULES = {
    "fixture": ["GpuBench"],
    "judge.judgement": ["Judgement"],
    "results.model": [
        "Comparison",
        "DeviceFacts",
        "Kernel",
        "Measurement",
        "PastChange",
        "Speedup",
        "Timing",
        "Verdict",
    ],
    "results.phases": ["Phases", "Region"],
    "timing.ranks": ["Rank", "Ranks"],
    "timing.regions": ["region"],
    "timing.scripted": ["scripted"],
}
"""The names that are not in `errors`, by module."""


if not TYPE_CHECKING:  # which would believe that every name exists

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        if name == "judge":  # a folder of the same name: importing it would put it in the function's place
            return importlib.import_module("pytest_gpubench.judge")
        module = next((module for module, names in _MODULES.items() if name in names), "errors")
        found = getattr(importlib.import_module(f"pytest_gpubench.{module}"), name)
        importlib.import_module("pytest_gpubench.errors").hide_frames()  # it may raise while tests are collected
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
