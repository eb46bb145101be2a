"""A device: its facts, and its measured peaks."""

from typing import Literal

import msgspec


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describe the device that was measured; None stands for what could not be found out."""

    type: Literal["cuda", "cpu"]
    name: str
    host: str
    uuid: str | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    cache_bytes: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    power_limit_w: float | None = None
    mig: bool | None = None
    nvml_error: str | None = None


class MemoryPeak(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the fastest rate at which so many bytes were moved, in 10^9 bytes a second."""

    read_share: float
    """The share of the bytes that are read: 1 for a reader, 0.5 for a copy, 0 for a writer."""
    moved_bytes: int
    gbps: float


class Peaks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what a GPU reached when its peaks were measured, and what its datasheet states; None stands for unknown."""

    copy_gbps: float | None = None
    """The rate of the largest copy, bytes read and written."""
    read_gbps: float | None = None
    """The rate of the largest reader."""
    matmul_tflops: dict[str, float] = {}
    """Rates by dtype; float32 is `tfloat32` where torch rounds it."""
    datasheet_gbps: float | None = None
    datasheet_tflops: dict[str, float] = {}
    """Dense, by dtype."""
    datasheet: str = ""
    """The name of the datasheet; empty if none is known."""
    boost: float = 1.0
    """The GPU's highest clock over the one that the datasheet counts with."""
    memory: tuple[MemoryPeak, ...] = ()
    cache_bytes: int = 0
    remarks: tuple[str, ...] = ()
    """Remarks on the peaks, such as no room for a large copy."""
