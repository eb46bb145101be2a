"""The records of a run: devices, kernels, timings, verdicts."""

import math
import statistics
from enum import Enum
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Literal

import msgspec

from pytest_gpubench.errors import BadRequest, NotMeasured
from pytest_gpubench.results.phases import Phases, Region
from pytest_gpubench.stats import summary
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import count, format_time

__tracebackhide__ = True

DEEPEST = 50
"""How deep dicts and lists in `extra_info` may be nested."""


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


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """Describe what one kernel, or one kind of copy, took of a call."""

    name: str
    kind: Literal["kernel", "memcpy", "memset"]
    launches: int
    """Launches in one call."""
    median_us: float
    """Median over the reps of the time of all its launches in one call, in microseconds."""
    mean_us: float | None = None
    """Mean of the same; the means of a call's kernels sum to the mean of its times. None where none was kept."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what NVML said of the GPU during reps in a row; None stands for what it does not say.

    Throttle reasons are read after each rep, the others once in some milliseconds and taken to be the same meanwhile.
    """

    reps: int
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    """From Ampere on (but for the A100) the mean over the last second, so of more than one rep."""
    throttle_mask: int | None = None
    """The bits of the throttle reasons, 0 for none."""


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """Hold every sample of one measurement; all numbers are of one call, times in microseconds.

    A rep's sample is the sum over its device records (kernels, copies, memsets) with the `profiler` timer, and the
    host clock with the `wall` timer. Reading a number from a timing that was not measured raises `NotMeasured`.
    """

    label: str
    timer: str
    cache: str
    device: str
    samples_us: tuple[float, ...] = ()
    busy_us: tuple[float, ...] = ()
    """Per rep, the time in which at least one record was running; empty where the timer sees no records."""
    span_us: tuple[float, ...] = ()
    """Per rep, from the start of the first record to the end of the last; empty where the timer sees no records."""
    sm_clock_mhz: tuple[float, ...] = ()
    """Per rep, the mean clock of one multiprocessor while the call ran; empty where it could not be read."""
    stretches: tuple[Stretch, ...] = ()
    """What NVML said of the GPU, once for all reps in a row in which it was the same; empty where nothing was read."""
    throttle_reasons: tuple[str, ...] = ()
    """What slowed the GPU down during the kept reps, as NVML names it."""
    kernels: tuple[Kernel, ...] = ()
    regions: tuple[Region, ...] = ()
    """What the regions of a call took, in reps of their own; empty where it enters none."""
    discarded: int = 0
    """Reps thrown away, and taken again, because the GPU was throttled."""
    remeasured: int = 0
    """Sessions thrown away, and taken again, because their records were not complete."""
    warmup_calls: int = 0
    elapsed_s: float = 0.0
    """Host seconds the whole measurement took, warm-up included."""
    flags: tuple[str, ...] = ()
    remark: str = ""
    """What the timer has to say of a call that it cannot time as it should; empty where it can."""
    moved_bytes: int | None = None
    """The least that a call has to move to and from memory; None where it is not known."""
    flops: int | None = None
    """Floating-point operations of a call, a multiply-add being two; None where they are not known."""
    unmeasured: str | None = None
    """Why there are no samples; None where there are."""

    @property
    def measured(self) -> bool:
        """Whether there are samples."""
        return bool(self.samples_us)

    @property
    def reps(self) -> int:
        """The number of samples."""
        return len(self.samples_us)

    @property
    def median_us(self) -> float:
        """The median of the samples."""
        return statistics.median(self._samples())

    @property
    def mean_us(self) -> float:
        """The mean of the samples."""
        return statistics.fmean(self._samples())

    @property
    def min_us(self) -> float:
        """The smallest sample."""
        return min(self._samples())

    @property
    def max_us(self) -> float:
        """The largest sample."""
        return max(self._samples())

    @property
    def std_us(self) -> float:
        """The sample standard deviation; nan for a single rep."""
        samples = self._samples()
        return statistics.stdev(samples) if self.reps > 1 else math.nan

    @property
    def rel_std(self) -> float:
        """The sample standard deviation over the mean; nan for a single rep."""
        return summary.rel_std(self._samples())

    @property
    def quartiles_us(self) -> tuple[float, float, float]:
        """The three quartiles of the samples."""
        return summary.quartiles(self._samples())

    @cached_property
    def median_interval_us(self) -> Interval | None:
        """The exact 95 % confidence interval of the median; None with fewer than six reps."""
        return summary.median_interval(self._samples())

    @property
    def median_busy_us(self) -> float | None:
        """The median of `busy_us`; None where the timer sees no records."""
        return statistics.median(self.busy_us) if self.busy_us else None

    @property
    def median_span_us(self) -> float | None:
        """The median of `span_us`; None where the timer sees no records."""
        return statistics.median(self.span_us) if self.span_us else None

    @property
    def median_sm_clock_mhz(self) -> float | None:
        """The median of `sm_clock_mhz`; None where it could not be read."""
        return statistics.median(self.sm_clock_mhz) if self.sm_clock_mhz else None

    @property
    def cycles(self) -> tuple[float, ...]:
        """Per rep, the cycles of a multiprocessor in its time; empty where the clock could not be read."""
        if len(self.sm_clock_mhz) != self.reps:
            return ()
        return tuple(mhz * us for mhz, us in zip(self.sm_clock_mhz, self.samples_us, strict=True))

    @property
    def median_cycles(self) -> float | None:
        """The median of `cycles`; None where the clock could not be read."""
        return statistics.median(self.cycles) if self.cycles else None

    @property
    def memory_clock_mhz(self) -> tuple[int, ...]:
        """Per rep, the memory clock, some milliseconds old; empty unless it is known of all."""
        return self._per_rep("memory_clock_mhz")

    @property
    def temperature_c(self) -> tuple[int, ...]:
        """Per rep, the GPU's temperature, some milliseconds old; empty unless it is known of all."""
        return self._per_rep("temperature_c")

    @property
    def power_w(self) -> tuple[float, ...]:
        """Per rep, the power, some milliseconds old and often a mean over a second; empty unless it is known of all."""
        return self._per_rep("power_w")

    @property
    def throttle_masks(self) -> tuple[int, ...]:
        """Per rep, the bits of NVML's throttle reasons, 0 for none; empty unless they are known of all."""
        return self._per_rep("throttle_mask")

    @property
    def max_temperature_c(self) -> int | None:
        """The highest temperature; None where none is known."""
        return max((one.temperature_c for one in self.stretches if one.temperature_c is not None), default=None)

    @property
    def gbps(self) -> float | None:
        """The bytes that a call has to move over its median time, in 10^9 bytes a second; None where not known."""
        return None if self.moved_bytes is None else self.moved_bytes / self.median_us / 1e3

    @property
    def tflops(self) -> float | None:
        """The floating-point operations over the median time, in 10^12 a second; None where not known."""
        return None if self.flops is None else self.flops / self.median_us / 1e6

    @property
    def launches(self) -> int:
        """Kernels, copies and memsets of one call; 0 where the timer sees no records."""
        return sum(kernel.launches for kernel in self.kernels)

    def __str__(self) -> str:
        if not self.measured:
            return f"{self.label}: not measured ({self.unmeasured})"
        how = f"median of {count(self.reps, 'rep')}, {self.cache}, {self.timer}"
        return f"{self.label}: {format_time(self.median_us)} ({how})"

    def _per_rep(self, name: str) -> tuple[Any, ...]:
        """Return a reading of each rep; nothing where it is not known of all."""
        values = [getattr(one, name) for one in self.stretches]
        if None in values or sum(one.reps for one in self.stretches) != self.reps:
            return ()
        return tuple(value for value, one in zip(values, self.stretches, strict=True) for _ in range(one.reps))

    def _samples(self) -> tuple[float, ...]:
        if not self.samples_us:
            raise NotMeasured(f"{self.label!r} has no numbers: {self.unmeasured}")
        return self.samples_us


class Outcome(str, Enum):
    """What a limit's judgement came to."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    """There is no number to judge that is known to be right: the test fails, whatever the limit."""
    NOT_JUDGED = "not judged"
    """The limit says nothing about this device."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the judgement of one timing by one limit."""

    limit: str
    """The limit as it was asked for: `max_rel_std=0.02`."""
    outcome: Outcome
    sentence: str
    enforced: bool = True
    """Whether a FAIL fails the test: not on a CPU that nobody asked for by name."""

    @property
    def is_of_past(self) -> bool:
        """Whether it is about a saved run."""
        return self.limit.startswith(("max_regression=", "compare_fail="))


class Speedup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold how many times as fast as its reference a candidate is."""

    ratio: float
    """The reference's time over the candidate's: the median over the quads; above 1 where the candidate is faster."""
    interval: Interval | None
    """Of the ratio, right at all looks together; None where there are too few quads for alpha."""
    quads: int
    alpha: float
    reference: str
    reference_us: float
    seed: int
    log_ratios: tuple[float, ...] = ()
    """Per quad, the logarithm of the reference's time over the candidate's; empty in what kept none."""


class Overhead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what the launching of one call costs; medians in microseconds."""

    label: str
    host_us: float | None
    """The host's time for a call whose launches are only queued; None for one that waits for the GPU."""
    busy_us: float
    """For how long at least one of its kernels ran, by the profiler."""
    span_us: float
    """From its first kernel's start to its last one's end, by the profiler, launched on an idle GPU."""
    eager_us: float
    """What a caller waits for who finds the GPU idle, by events."""
    graph_us: float | None
    """The same for the replay of a graph of it; None where it cannot be captured."""
    no_graph: str = ""
    """Why it cannot be captured; empty where it can."""

    @property
    def gap_us(self) -> float:
        """For how long the GPU waited inside the call, for the next launch or between its kernels."""
        return max(0.0, self.span_us - self.busy_us)

    @property
    def gap_share(self) -> float:
        """The gaps over the call's span; 0 for an empty span."""
        return self.gap_us / self.span_us if self.span_us else 0.0

    @property
    def graph_speedup(self) -> float | None:
        """How many times as fast the replay is, both by events on an idle GPU; None where it cannot be captured."""
        return self.eager_us / self.graph_us if self.graph_us else None

    @property
    def is_host_bound(self) -> bool:
        """Whether calls in a row take as long as the host needs to launch them, or the call waits for the GPU."""
        return self.host_us is None or self.host_us > self.busy_us


class PastChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what a measurement is next to the same one of a saved run."""

    baseline: str
    """The saved run's name, or its file's."""
    metric: str
    """What was compared: "speedup", "median", "mean", "q1" or "q3"."""
    ratio: float
    """New over old, above 1 where it is slower; of a speedup, old over new."""
    interval: Interval | None
    """Of that ratio; None where there are too few samples for alpha."""
    old_us: float
    """The median time in the saved run."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold one timing and what its test's limits make of it."""

    timing: Timing
    verdicts: tuple[Verdict, ...] = ()
    speedup: Speedup | None = None
    """Against its reference, for a candidate of a comparison."""
    differences: tuple[str, ...] = ()
    """How each of a candidate's outputs compares with the reference's: `out PASS max_diff=1.2e-07`."""
    role: Literal["", "reference", "candidate"] = ""
    """What it is in a comparison, whose candidates follow their reference; empty for a measurement of its own."""
    example: str = ""
    """What hypothesis called the test with, as keywords; empty for a test that it does not call."""
    overhead: Overhead | None = None
    """What launching it costs; None where `timers=` did not ask."""
    change: PastChange | None = None
    """Against a saved run; None where it was compared with none."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what `gpu_bench.compare` found: the reference, and each candidate by name.

    With a single candidate its timing, speedup, verdicts and differences are attributes of the comparison itself.
    """

    reference: Timing
    candidates: dict[str, Measurement]
    reference_overhead: Overhead | None = None
    """What launching the reference costs; None where `timers=` did not ask."""

    def __str__(self) -> str:
        lines = []
        for name, item in self.candidates.items():
            found = item.speedup
            ratio = item.timing.unmeasured if found is None else f"{found.ratio:.4g}x ({count(found.quads, 'quad')})"
            lines.append(f"{name} against {self.reference.label}: {ratio}")
        return "\n".join(lines)

    def __getitem__(self, name: str) -> Measurement:
        if name not in self.candidates:
            raise BadRequest(f"comparison[{name!r}]: there is no such candidate, only {', '.join(self.candidates)}")
        return self.candidates[name]

    @property
    def timing(self) -> Timing:
        """The only candidate's timing."""
        return self._only().timing

    @property
    def speedup(self) -> float:
        """The only candidate's speedup: the reference's time over its own."""
        return self._speedup().ratio

    @property
    def interval(self) -> Interval | None:
        """The interval of the only candidate's speedup; None where there are too few quads for alpha."""
        return self._speedup().interval

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The only candidate's verdicts."""
        return self._only().verdicts

    @property
    def differences(self) -> tuple[str, ...]:
        """How each of the only candidate's outputs compares with the reference's."""
        return self._only().differences

    def _only(self) -> Measurement:
        if len(self.candidates) != 1:
            first, *others = self.candidates
            raise BadRequest(
                f"there are several candidates ({', '.join([first, *others])}): read comparison[{first!r}]"
            )
        return next(iter(self.candidates.values()))

    def _speedup(self) -> Speedup:
        found = self._only().speedup
        if found is None:
            raise NotMeasured(f"there is no speedup: {self._only().timing.unmeasured}")
        return found


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold which GPUs a test had for itself, and when, in seconds since the epoch by its host's clock."""

    gpus: tuple[str, ...]
    """The UUIDs, the one that was measured on first."""
    began_s: float
    ended_s: float
    """When its results were put together: what was measured was measured before."""
    waited_s: float = 0.0


class MemoryPeak(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the fastest rate at which so many bytes were moved, in 10^9 bytes a second."""

    read_share: float
    """Of the bytes, those that were read: 1 for a reader, 0.5 for a copy, 0 for a writer."""
    moved_bytes: int
    gbps: float


class Peaks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what a GPU reached when its peaks were measured, and what its datasheet states; None stands for unknown."""

    copy_gbps: float | None = None
    """Of the largest copy, bytes read and written."""
    read_gbps: float | None = None
    """Of the largest reader."""
    matmul_tflops: dict[str, float] = {}
    """By dtype; float32 is `tfloat32` where torch rounds it."""
    datasheet_gbps: float | None = None
    datasheet_tflops: dict[str, float] = {}
    """Dense, by dtype."""
    datasheet: str = ""
    """Which datasheet that is; empty where none is known."""
    boost: float = 1.0
    """The GPU's highest clock over the one that the datasheet counts with."""
    memory: tuple[MemoryPeak, ...] = ()
    cache_bytes: int = 0
    remarks: tuple[str, ...] = ()
    """What a reader of the peaks has to know: that there was no room for a large copy, say."""


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
    """What a search by hypothesis went through: `42 examples, 17 compilations (31 s)`; empty for any other test."""
    peaks: Peaks | None = None
    """What the GPU can do; None where no test asked for it to be measured."""
    source: str = ""
    """A hash of the test function's syntax tree, which comments and line breaks do not change; empty: not known."""


class CommitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the commit that was measured, with pytest-benchmark's names; None stands for what is not known."""

    id: str | None = None
    time: str | None = None
    """When it was committed, ISO 8601."""
    author_time: str | None = None
    dirty: bool | None = None
    """Whether files differed from the commit."""
    project: str | None = None
    branch: str | None = None
    error: str | None = None
    """Why nothing is known; None where something is."""


class SavedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one run of pytest measured, and where."""

    records: tuple[TestRecord, ...]
    datetime: str
    """When the run ended, ISO 8601 with its offset from UTC."""
    name: str = ""
    """What it was saved as; empty where it was given no name."""
    version: str = ""
    """Of pytest-gpubench."""
    commit_info: CommitInfo = CommitInfo()
    machine_info: dict[str, Any] = {}
    """Host, Python, torch, Triton and CPU, with pytest-benchmark's names where it has any."""
    settings: dict[str, str] = {}
    """The options that were not at their defaults, by name."""


def encode(record: TestRecord) -> str:
    """Write a record as JSON; what JSON has no form for in `extra_info` is written as its number or its text."""
    text = msgspec.json.encode(msgspec.structs.replace(record, extra_info=plain(record.extra_info)))
    return text.decode()


def decode(text: str) -> TestRecord:
    """Read a record that `encode` wrote."""
    return msgspec.json.decode(text, type=TestRecord)


def plain(value: Any, outer: tuple[object, ...] = ()) -> Any:
    """Return what stands for a value in JSON: itself, the one number in an array or tensor, or its text; never raise.

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
