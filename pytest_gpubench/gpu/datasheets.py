"""NVIDIA's datasheets by GPU name: memory bandwidth and operations per second."""

import re
from dataclasses import dataclass, field

from pytest_gpubench.results.model import DeviceFacts

SPARSE = "half of what it states with sparsity"


@dataclass(frozen=True)
class Datasheet:
    """The rates of a GPU: 10^9 bytes a second, and 10^12 operations a second without sparsity."""

    words: str
    """A regular expression for the words of the GPU's name."""
    source: str
    """The name of the datasheet."""
    gbps: float
    tflops: dict[str, float] = field(default_factory=dict)
    """Rates by dtype; empty if the datasheet does not state them."""
    boost_mhz: float | None = None
    """The clock that the operations are stated for; the GPU may allow a higher one."""
    on_matmuls: str = ""
    """The conversion of the stated operations."""
    on_memory: str = ""
    """The computation of the bytes a second, where the datasheet rounds them."""

    def __str__(self) -> str:
        notes = [self.on_matmuls, self.on_memory and f"memory: {self.on_memory}"]
        return "; ".join([self.source, *filter(None, notes)])


def _dense_rates(
    half: float, *, tf32: float | None = None, fp32: float, fp8: float | None = None, fp64: float | None = None
) -> dict[str, float]:
    """Return rates by dtype; float16 and bfloat16 are equal wherever tensor cores support both."""
    rates = {"float16": half, "bfloat16": half, "tfloat32": tf32, "float32": fp32, "float64": fp64}
    rates |= {"float8_e4m3fn": fp8, "float8_e5m2": fp8}
    return {name: rate for name, rate in rates.items() if rate is not None}


_B200 = _dense_rates(2250, tf32=1125, fp32=75, fp8=4500, fp64=37)
_H100 = _dense_rates(989.4, tf32=494.7, fp32=66.9, fp8=1978.9, fp64=66.9)
_H100_NVL = _dense_rates(835, tf32=417.5, fp32=60, fp8=1671, fp64=60)
_H100_PCIE = _dense_rates(756, tf32=378, fp32=51.2, fp8=1513, fp64=51.2)
_A100 = _dense_rates(312, tf32=156, fp32=19.5, fp64=19.5)
_L40S = _dense_rates(366.5, tf32=183, fp32=91.6, fp8=733)
_L4 = _dense_rates(121, tf32=60, fp32=30.3, fp8=242.5)
_A10 = _dense_rates(125, tf32=62.5, fp32=31.2)
_V100_SXM2 = {"float16": 125, "float32": 15.7, "float64": 7.8}
_V100_PCIE = {"float16": 112.0, "float32": 14.0, "float64": 7.0}
_RTX_4090 = _dense_rates(330.3, tf32=82.6, fp32=82.6, fp8=660.6) | {"bfloat16": 165.2}
_FLOAT16_SUMS = "float16 as accumulated in float16, float8 too"

DATASHEETS = (
    Datasheet(r"B200", "HGX B200 datasheet", 8000, _B200, 1860, SPARSE, "up to 8 TB/s, 7.7 in later issues"),
    Datasheet(r"H200 NVL", "H200 datasheet, NVL", 4800, _H100_NVL, 1545, SPARSE),
    Datasheet(r"H200", "H200 datasheet, SXM", 4800, _H100, 1830, SPARSE),
    Datasheet(r"H100 NVL", "H100 NVL product brief", 3938, _H100_NVL, 1545, SPARSE),
    Datasheet(r"H100 PCIe", "H100 whitepaper, PCIe", 2039, _H100_PCIE, 1620, "", "above 2 TB/s, 5120 bit at 3186 MT/s"),
    Datasheet(r"H100 80GB HBM3", "H100 whitepaper, SXM5", 3352, _H100, 1830, "", "3.35 TB/s"),
    Datasheet(r"A100-SXM4-80GB", "A100 datasheet, 80 GB SXM", 2039, _A100, 1410),
    Datasheet(r"A100 80GB PCIe", "A100 datasheet, 80 GB PCIe", 1935, _A100, 1410),
    Datasheet(r"A100-(SXM4|PCIE)-40GB", "A100 datasheet, 40 GB", 1555, _A100, 1410),
    Datasheet(r"L40S", "L40S datasheet", 864, _L40S, 2520),
    Datasheet(r"L40", "L40 datasheet", 864),
    Datasheet(r"L4", "L4 datasheet", 300, _L4, 2040, SPARSE),
    Datasheet(r"A10", "A10 datasheet", 600, _A10, 1695),
    Datasheet(r"A10G", "A10 datasheet, whose memory the A10G has", 600),
    Datasheet(r"V100-SXM[23]-(16|32)GB(-LS)?", "V100 datasheet, SXM2", 900, _V100_SXM2, 1530),
    Datasheet(r"V100-PCIE-(16|32)GB", "V100 datasheet, PCIe", 900, _V100_PCIE, 1380),
    Datasheet(
        r"GeForce RTX 4090(?! (Laptop|D))", "Ada whitepaper", 1008, _RTX_4090, 2520, _FLOAT16_SUMS, "384 bit at 21 GT/s"
    ),
)
"""The first whose words are in the name counts."""


def datasheet_of(facts: DeviceFacts) -> Datasheet | None:
    """Return the datasheet of a GPU; None for an unknown GPU and for a part of one (MIG)."""
    if facts.mig or re.search(r"\bMIG\b", facts.name):
        return None
    return next((each for each in DATASHEETS if re.search(rf"(?<![\w-]){each.words}(?![\w-])", facts.name)), None)
