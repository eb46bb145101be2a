"""The samples of one measurement, and what was seen of the call and of the GPU beside them."""

import math
import statistics
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, NoReturn

import msgspec

from pytest_gpubench.errors import NotMeasured
from pytest_gpubench.results.phases import Region
from pytest_gpubench.spelling import NOT_THE_RESULT, Spelled
from pytest_gpubench.stats import summary
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import count, format_time

LONGEST_US = 1e15
"""No sample takes thirty years."""


class Code(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what Triton compiled a kernel to."""

    constants: dict[str, str] = {}
    """The arguments that it was compiled for, by name, and Triton's options: `BLOCK`, `num_warps`."""
    loads: int = 0
    """Instructions that load from global memory, as its PTX has them; each may run in a loop."""
    load_bytes: int = 0
    """The most that one of them loads for a thread."""
    stores: int = 0
    store_bytes: int = 0
    """As for loads."""
    atomics: int = 0
    """Atomic instructions on global memory."""
    instructions: int = 0
    """All instructions of its PTX; 0 where an older run did not count them."""


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what launches of a kernel, all alike, take of a GPU, as its driver says."""

    launches: int = 1
    """Launches of this kind in one call."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    """Its size in blocks."""
    registers: int
    """For each thread, as it is launched."""
    local_bytes: int = 0
    """For each thread: registers that are spilled, and arrays on its stack."""
    static_shared_bytes: int = 0
    """For each block, as `dynamic_shared_bytes`."""
    dynamic_shared_bytes: int = 0
    blocks_per_sm: int
    """The blocks that a multiprocessor holds at once."""
    resident_blocks: int
    """The blocks that the GPU holds at once: less than its multiprocessors could where clusters do not fit in."""
    code: Code | None = None
    """The code that Triton compiled it to; None for any other kernel."""

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block."""
        return self.static_shared_bytes + self.dynamic_shared_bytes

    @property
    def waves(self) -> float:
        """The number of times that the GPU has to be filled for all blocks of the grid."""
        return math.prod(self.grid) / self.resident_blocks if self.resident_blocks else math.inf

    @property
    def tail(self) -> float:
        """The share of the GPU that the last wave leaves idle: 0 where it fills it."""
        last = math.prod(self.grid) % self.resident_blocks if self.resident_blocks else 0
        return (self.resident_blocks - last) / self.resident_blocks if last else 0.0


class Kernel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describe what one kernel, or one kind of copy, took of a call."""

    name: str
    kind: Literal["kernel", "memcpy", "memset"]
    launches: int
    """Launches in one call."""
    median_us: float
    """Median over the reps of the time of all its launches in one call, in microseconds."""
    mean_us: float | None = None
    """Mean of the same; the means of a call's kernels sum to the mean of its times. None where none was kept."""
    resources: tuple[Resources, ...] = ()
    """Of each kind of its launches; empty where they are not known."""


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


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what the kernels of one call, copies and fills by the copy engine left out, count together under ncu."""

    captures: dict[str, tuple[float, ...]] = {}
    """By counter, the count in each capture: of one call, in a process of its own."""
    cache_bytes: int = 0
    """The size of the GPU's cache: what is read from memory says nothing of a call that reads less."""
    untaken: str = ""
    """The reason why there are none; empty where there are."""
    wrong: str = ""
    """The reason why they are not those of the call that was timed; empty where they are."""

    def median(self, name: str) -> float:
        """Return a counter's median over the captures."""
        return statistics.median(self.captures[name])


class Timing(Spelled, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
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
    """NVML's readings of the GPU, one for all reps in a row with the same values; empty if nothing was read."""
    throttle_reasons: tuple[str, ...] = ()
    """NVML's reasons for throttling during the kept reps."""
    neighbours: str = ""
    """Other processes that computed on the GPU meanwhile, in a sentence; empty where NVML knows of none."""
    kernels: tuple[Kernel, ...] = ()
    no_resources: str = ""
    """The reason why the resources of its kernels are not known, though they were asked for; empty where they are."""
    counts: Counts | None = None
    """The counts of its kernels; None where nobody asked."""
    regions: tuple[Region, ...] = ()
    """The times of a call's regions, in reps of their own; empty if it enters none."""
    discarded: int = 0
    """Reps thrown away, and taken again, because the GPU was throttled."""
    remeasured: int = 0
    """Sessions thrown away, and taken again, because their records were not complete."""
    warmup_calls: int = 0
    elapsed_s: float = 0.0
    """Host seconds the whole measurement took, warm-up included."""
    flags: tuple[str, ...] = ()
    remark: str = ""
    """The timer's warning about a call that it cannot time as it should; empty if it can."""
    moved_bytes: int | None = None
    """The least that a call has to move to and from memory; None where it is not known."""
    read_bytes: int | None = None
    """Of these bytes, those that it has to read; None where they are not known."""
    flops: int | None = None
    """Floating-point operations of a call, a multiply-add being two; None where they are not known."""
    unmeasured: str | None = None
    """The reason why there are no samples; None where there are."""

    @property
    def measured(self) -> bool:
        """True if there are samples."""
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
        return self.std_us / self.mean_us

    @property
    def quartiles_us(self) -> tuple[float, float, float]:
        """The three quartiles of the samples."""
        return summary.quartiles(self._samples())

    @cached_property
    def median_interval_us(self) -> Interval | None:
        """The 95 % confidence interval of the median, exact for independent reps; None with fewer than six."""
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

    @property
    def resources(self) -> tuple[Resources, ...]:
        """The resources of each kind of launch, of all kernels; empty where they are not known."""
        return tuple(each for kernel in self.kernels for each in kernel.resources)

    def __str__(self) -> str:
        if not self.measured:
            return f"{self.label}: not measured ({self.unmeasured})"
        how = f"median of {count(self.reps, 'rep')}, {self.cache}, {self.timer}"
        return f"{self.label}: {format_time(self.median_us)} ({how})"

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., object], types: object, args: object = (), kwargs: object = None
    ) -> NoReturn:
        """Refuse to be a tensor, as torch asks of what is none."""
        raise TypeError(f"torch's {function.__name__} was given a Timing: {NOT_THE_RESULT}")

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
