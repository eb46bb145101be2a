"""The record of a test, as a worker sends it to the controller, of its device, and of a run."""

from numbers import Integral, Real
from typing import Any, Literal

import msgspec

from pytest_gpubench.results.model.measurement import Measurement
from pytest_gpubench.results.phases import Phases

DEEPEST = 50
"""The deepest nesting of dicts and lists in `extra_info`."""


def plain(value: Any, outer: tuple[object, ...] = ()) -> Any:
    """Return a value for JSON: itself, the one number in an array or tensor, or its text; never raise.

    outer: what the value was found in. What is found within itself, or too deep, is written as text.
    """
    try:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Integral):
            return int(str(int(value)))  # str refuses what has too many digits to be written
        if isinstance(value, Real):
            return float(value)
        if isinstance(value, str) or len(outer) == DEEPEST or any(value is one for one in outer):
            return text_of(value)
        if isinstance(value, dict):
            return {text_of(key): plain(inner, (*outer, value)) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner, (*outer, value)) for inner in value]
        return plain(value.item(), (*outer, value))
    except Exception:
        return text_of(value)


def text_of(value: object) -> str:
    """Return a value as text that can be encoded; never raise."""
    try:
        text = value if isinstance(value, str) else str(value)
        return str.encode(text, errors="backslashreplace").decode()
    except Exception:
        return f"<{type(value).__name__} object>"


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


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold which GPUs a test had for itself, and when, in seconds since the epoch by its host's clock."""

    gpus: tuple[str, ...]
    """The UUIDs, the one that was measured on first."""
    began_s: float
    ended_s: float
    """The time when its results were put together: what was measured was measured before."""
    waited_s: float = 0.0


class TestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what one test measured; it travels from a worker to the controller as JSON."""

    __test__ = False  # pytest collects classes named Test*

    nodeid: str
    device: DeviceFacts
    worker: str = "master"
    params: dict[str, str] = {}
    measurements: tuple[Measurement, ...] = ()
    phases: tuple[Phases, ...] = ()
    extra_info: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    turn: Turn | None = None
    """None where the test took no turn at a GPU: on the CPU, or where nothing is measured."""
    search: str = ""
    """The extent of a search by hypothesis: `42 examples, 17 compilations (31 s)`; empty for any other test."""
    peaks: Peaks | None = None
    """The GPU's peaks; None if the test did not ask for them."""
    source: str = ""
    """A hash of the test function's syntax tree, which comments and line breaks do not change; empty: not known."""
    throttled: Literal["fail", "warn"] = "fail"
    """The setting of the run, or of the mark, for a GPU that is throttled."""

    @property
    def key(self) -> tuple[str, str]:
        """Its node id and the name of its device: what tells the tests of a run apart."""
        return self.nodeid, self.device.name


class CommitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the commit that was measured, with pytest-benchmark's names; None stands for what is not known."""

    id: str | None = None
    time: str | None = None
    """The time when it was committed, ISO 8601."""
    author_time: str | None = None
    dirty: bool | None = None
    """True if files differed from the commit."""
    project: str | None = None
    branch: str | None = None
    error: str | None = None
    """The reason why nothing is known; None where something is."""


class SavedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one run of pytest measured, and where."""

    records: tuple[TestRecord, ...]
    """The latest session of each test."""
    earlier: tuple[TestRecord, ...] = ()
    """The earlier sessions of the same tests, each a process of its own, oldest first."""
    datetime: str
    """The time when the run ended, ISO 8601 with its offset from UTC."""
    name: str = ""
    """The name that it was saved under; empty if it was given none."""
    version: str = ""
    """The version of pytest-gpubench."""
    commit_info: CommitInfo = CommitInfo()
    machine_info: dict[str, Any] = {}
    """Host, Python, torch, Triton and CPU, with pytest-benchmark's names where it has any."""
    settings: dict[str, str] = {}
    """The options that were not at their defaults, by name."""
    left_out: tuple[str, ...] = ()
    """The tests that only older runs of the same name have, as this one was not to run them or did not measure them."""


def encode(record: TestRecord) -> str:
    """Write a record as JSON; what JSON has no form for in `extra_info` is written as its number or its text."""
    text = msgspec.json.encode(msgspec.structs.replace(record, extra_info=plain(record.extra_info)))
    return text.decode()


def decode(text: str) -> TestRecord:
    """Read a record that `encode` wrote."""
    return msgspec.json.decode(text, type=TestRecord)
