"""What this GPU reaches at its best, measured once a process with our own timer, and what its datasheet states."""

import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import IncompleteRecords, MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.nvml import reason_names
from pytest_gpubench.results.model import DeviceFacts, MemoryPeak, Peaks
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.l2flush import flush_buffer
from pytest_gpubench.timing.pacing import IDLE_PER_BUSY
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.sampling import ATTEMPTS, collection_off
from pytest_gpubench.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

__tracebackhide__ = True

SIZES_BYTES = tuple(2**exponent for exponent in range(24, 32))
"""The traffic that memory is measured with, 16 MiB to 2 GiB: what the cache keeps of the writes shrinks with it."""
ALIGNMENT_BYTES = 512
MEMORY_REPS = 8
"""The fastest counts: a peak that half of the calls are above would not be one."""
MATMUL_SIDES = (2048, 4096, 8192)
EVEN_ROWS_PER_SM = 128
"""So many rows a multiprocessor, and 4096 columns, leave none of them idle with tiles of 128 x 128 or 128 x 256."""
EVEN_COLUMNS, EVEN_DEPTH = 4096, 8192
LONGEST_US = 25_000.0
"""A matmul that should take longer is not tried: it would cost a second, and hit the power cap."""
MATMUL_BUDGET_US = 100_000.0
FEWEST_REPS, MOST_REPS = 3, 10
TF32_PROBE_SIDE = 1024
TF32_PROBE = 1 + 2.0**-12
"""A float32 that TF32, with 10 bits behind the point, rounds to 1."""


# what the datasheets state


@dataclass(frozen=True)
class Datasheet:
    """What NVIDIA states for a GPU: 10^9 bytes a second, and 10^12 operations a second without sparsity."""

    words: str
    """A regular expression for the words of the GPU's name."""
    source: str
    gbps: float
    tflops: dict[str, float] = field(default_factory=dict)
    boost_mhz: float | None = None
    """The clock that its matmuls are stated for; the GPU may be allowed a higher one."""


def _dense(
    half: float, *, tf32: float | None = None, fp32: float, fp8: float | None = None, fp64: float | None = None
) -> dict[str, float]:
    """Return rates by dtype: float16 and bfloat16 are equal wherever tensor cores know both."""
    rates = {"float16": half, "bfloat16": half, "tfloat32": tf32, "float32": fp32, "float64": fp64}
    rates |= {"float8_e4m3fn": fp8, "float8_e5m2": fp8}
    return {name: rate for name, rate in rates.items() if rate is not None}


_H100 = _dense(989.4, tf32=494.7, fp32=66.9, fp8=1978.9, fp64=66.9)
_H100_NVL = _dense(835, tf32=417.5, fp32=60, fp8=1671, fp64=60)
_A100 = _dense(312, tf32=156, fp32=19.5, fp64=19.5)

DATASHEETS = (
    Datasheet(
        r"B200",
        "HGX B200 datasheet, half of what it states with sparsity; memory: up to 8 TB/s, 7.7 in later issues",
        8000,
        _dense(2250, tf32=1125, fp32=75, fp8=4500, fp64=37),
        1860,
    ),
    Datasheet(r"H200 NVL", "H200 datasheet, NVL, half of what it states with sparsity", 4800, _H100_NVL, 1545),
    Datasheet(r"H200", "H200 datasheet, SXM, half of what it states with sparsity", 4800, _H100, 1830),
    Datasheet(r"H100 NVL", "H100 NVL product brief, half of what it states with sparsity", 3938, _H100_NVL, 1545),
    Datasheet(
        r"H100 PCIe",
        "H100 whitepaper, PCIe; memory: above 2 TB/s, 5120 bit at 3186 MT/s",
        2039,
        _dense(756, tf32=378, fp32=51.2, fp8=1513, fp64=51.2),
        1620,
    ),
    Datasheet(r"H100 80GB HBM3", "H100 whitepaper, SXM5; memory: 3.35 TB/s", 3352, _H100, 1830),
    Datasheet(r"A100-SXM4-80GB", "A100 datasheet, 80 GB SXM", 2039, _A100, 1410),
    Datasheet(r"A100 80GB PCIe", "A100 datasheet, 80 GB PCIe", 1935, _A100, 1410),
    Datasheet(r"A100-(SXM4|PCIE)-40GB", "A100 datasheet, 40 GB", 1555, _A100, 1410),
    Datasheet(r"L40S", "L40S datasheet", 864, _dense(366.5, tf32=183, fp32=91.6, fp8=733), 2520),
    Datasheet(
        r"L4",
        "L4 datasheet, half of what it states with sparsity",
        300,
        _dense(121, tf32=60, fp32=30.3, fp8=242.5),
        2040,
    ),
    Datasheet(r"A10", "A10 datasheet", 600, _dense(125, tf32=62.5, fp32=31.2), 1695),
    Datasheet(
        r"V100-SXM[23]-(16|32)GB(-LS)?",
        "V100 datasheet, SXM2",
        900,
        {"float16": 125, "float32": 15.7, "float64": 7.8},
        1530,
    ),
    Datasheet(r"V100-PCIE-(16|32)GB", "V100 datasheet, PCIe", 900, {"float16": 112, "float32": 14, "float64": 7}, 1380),
    Datasheet(
        r"GeForce RTX 4090(?! (Laptop|D))",
        "Ada whitepaper; float16 as accumulated in float16, float8 too; memory: 384 bit at 21 GT/s",
        1008,
        {
            "float16": 330.3,
            "bfloat16": 165.2,
            "tfloat32": 82.6,
            "float32": 82.6,
            "float8_e4m3fn": 660.6,
            "float8_e5m2": 660.6,
        },
        2520,
    ),
)
"""The first whose words the name has counts."""


def datasheet_of(facts: DeviceFacts) -> Datasheet | None:
    """Return what is stated for a GPU; None for one that is not known here, and for a part of one (MIG)."""
    if facts.mig or re.search(r"\bMIG\b", facts.name):
        return None
    return next((each for each in DATASHEETS if re.search(rf"(?<![\w-]){each.words}(?![\w-])", facts.name)), None)


def boost_of(sheet: Datasheet, facts: DeviceFacts) -> float:
    """Return the GPU's highest clock over the one that the datasheet counts with, at least 1."""
    if sheet.boost_mhz is None or facts.max_sm_clock_mhz is None:
        return 1.0
    return max(1.0, facts.max_sm_clock_mhz / sheet.boost_mhz)


# what this GPU reaches


def measured_peaks(device: Device, dtypes: Sequence[str] = ()) -> Peaks | None:
    """Return how fast this GPU moves memory, cold, and multiplies these dtypes; None on the CPU.

    dtypes: names as torch's, `bfloat16`. float32 is measured as torch is set now, and called `tfloat32` where torch
    rounds it; a dtype that cannot be multiplied is missing, and a remark says why. Each is measured once a process
    and GPU, in less than a second. Raises MeasurementError where the profiler cannot be used.
    """
    if device.type != "cuda":
        return None
    memory = measured_memory(device)
    matmuls = {name: measured_matmul(device, name) for name in named(device, dtypes)}
    sheet = datasheet_of(device.facts)
    remarks = [*memory.remarks, *(rate.remark for rate in matmuls.values() if rate.remark)]
    return Peaks(
        copy_gbps=memory.largest(0.5),
        read_gbps=memory.largest(1.0),
        matmul_tflops={name: rate.tflops for name, rate in matmuls.items() if rate.tflops is not None},
        datasheet_gbps=sheet.gbps if sheet else None,
        datasheet_tflops=sheet.tflops if sheet else {},
        datasheet=sheet.source if sheet else "",
        boost=boost_of(sheet, device.facts) if sheet else 1.0,
        memory=memory.points,
        cache_bytes=device.cache_bytes,
        remarks=tuple(remarks),
    )


def named(device: Device, dtypes: Sequence[str]) -> list[str]:
    """Return the names of these dtypes as they are multiplied now: `tfloat32` where torch rounds float32."""
    names = ["tfloat32" if name == "float32" and rounds_float32(device) else name for name in dtypes]
    return list(dict.fromkeys(names))


def rounds_float32(device: Device) -> bool:
    """Tell whether matmuls of float32 are computed in TF32: tried, as several settings and variables decide it."""
    import torch

    with plainly():
        probe = torch.full(
            (TF32_PROBE_SIDE, TF32_PROBE_SIDE), TF32_PROBE, device=device.torch_device, dtype=torch.float32
        )
        unit = torch.eye(TF32_PROBE_SIDE, device=device.torch_device, dtype=torch.float32)
        return float(torch.mm(probe, unit)[0, 0]) != TF32_PROBE


@contextmanager
def plainly() -> "Iterator[None]":
    """Compute as written, whatever the caller is in the middle of: no graph, no autocast."""
    import torch

    with ExitStack() as contexts:
        contexts.enter_context(torch.no_grad())
        contexts.enter_context(torch.autocast("cuda", enabled=False))
        yield


# memory


@dataclass(frozen=True)
class MeasuredMemory:
    """How fast memory was, by traffic and share of reads."""

    points: tuple[MemoryPeak, ...]
    remarks: tuple[str, ...]

    def largest(self, read_share: float) -> float | None:
        """Return the rate of the largest traffic of a kind; None where none was measured."""
        points = [point for point in self.points if point.read_share == read_share]
        return max(points, key=lambda point: point.moved_bytes).gbps if points else None


@cache
def measured_memory(device: Device) -> MeasuredMemory:
    """Measure copies, additions, readers and writers of several sizes; fewer without room, which a remark says."""
    import torch

    flush_buffer(device)  # first, so that it has room
    pool, remarks = make_pool(device), []
    if pool is None:
        return MeasuredMemory((), ("memory: not measured, there is no room for a copy",))
    if nbytes(pool) < SIZES_BYTES[-1]:
        remarks.append(f"memory: measured with {format_bytes(nbytes(pool))} at most, there was no room for more")
    sizes = [size for size in SIZES_BYTES if size <= nbytes(pool)]
    with plainly():
        trials = [trial for size in sizes for trial in trials_of(pool, size)]
        times_us, throttled = fastest_us(device, [trial.call for trial in trials], MEMORY_REPS)
    if throttled:
        remarks.append(f"memory: throttled by {', '.join(throttled)} while it was measured")
    best: dict[tuple[float, int], float] = {}
    for trial, time_us in zip(trials, times_us, strict=True):
        place = (trial.read_share, trial.moved_bytes)
        best[place] = max(best.get(place, 0.0), trial.moved_bytes / time_us / 1e3)
    del pool, trials
    torch.cuda.empty_cache()  # of so much memory others may have a use
    points = (MemoryPeak(read_share=share, moved_bytes=size, gbps=rate) for (share, size), rate in best.items())
    return MeasuredMemory(tuple(points), tuple(remarks))


def make_pool(device: Device) -> "torch.Tensor | None":
    """Return zeros to move, as many as fit of the largest size; None where the smallest does not fit."""
    import torch

    for size in reversed(SIZES_BYTES):
        try:
            return torch.zeros(size // 4, dtype=torch.float32, device=device.torch_device)
        except torch.OutOfMemoryError:
            continue
    return None


def nbytes(tensor: "torch.Tensor") -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


@dataclass(frozen=True)
class Trial:
    """One way to move memory."""

    call: Call
    read_share: float
    moved_bytes: int


def trials_of(pool: "torch.Tensor", size: int) -> list[Trial]:
    """Return the ways to move so many bytes within the pool."""
    import torch

    source, target = parts(pool, size, 2)
    first, second, out = parts(pool, size, 3)
    (whole,) = parts(pool, size, 1)
    ways: list[tuple[str, float, int, Callable[[], object]]] = [
        ("copy", 0.5, 2 * nbytes(source), lambda: target.copy_(source)),
        ("neg", 0.5, 2 * nbytes(source), lambda: torch.neg(source, out=target)),
        ("add", 2 / 3, 3 * nbytes(out), lambda: torch.add(first, second, out=out)),
        ("read", 1.0, nbytes(whole), reading(whole)),
        ("sum", 1.0, nbytes(whole), lambda: torch.sum(whole)),
        ("zero", 0.0, nbytes(whole), whole.zero_),
        ("fill", 0.0, nbytes(whole), lambda: whole.fill_(1.0)),
    ]
    return [Trial(call_of(f"{name} {size}", way), share, moved) for name, share, moved, way in ways]


def parts(pool: "torch.Tensor", size: int, number: int) -> "list[torch.Tensor]":
    """Return so many parts of the pool, aligned and of so many bytes together, or a little less."""
    step = ALIGNMENT_BYTES // pool.element_size()
    each = size // pool.element_size() // number // step * step
    return [pool[place * each : (place + 1) * each] for place in range(number)]


def reading(whole: "torch.Tensor") -> Callable[[], object]:
    """Return what reads a tensor with the kernel that flushes the cache."""
    import torch
    import triton

    from pytest_gpubench.timing import kernels

    numbers, out = whole.view(torch.int32), whole.new_zeros(1, dtype=torch.int32)
    elements = numbers.numel()
    launch: Any = kernels.gpu_bench_read_flush[(triton.cdiv(elements, kernels.FLUSH_BLOCK),)]
    return lambda: launch(numbers, out, elements, 1, BLOCK=kernels.FLUSH_BLOCK, num_warps=8)


# matmuls


@dataclass(frozen=True)
class MeasuredMatmul:
    """How fast a dtype is multiplied, and what is to be said of it."""

    tflops: float | None
    remark: str = ""


@cache
def measured_matmul(device: Device, name: str) -> MeasuredMatmul:
    """Return the fastest rate over several shapes and both layouts of the second factor, of normal random numbers.

    Products of zeros, or of few different numbers, take less power and can be faster.
    """
    import torch

    best, reasons = 0.0, dict[str, None]()
    try:
        for rows, columns, depth in shapes(device):
            flops = 2.0 * rows * columns * depth
            expected_us = flops / best / 1e6 if best else 0.0
            if expected_us > LONGEST_US:
                continue
            with plainly():
                calls = matmuls(device, name, rows, columns, depth)
                reps = reps_within(expected_us)
                times_us, throttled = fastest_us(device, calls, reps, IDLE_PER_BUSY * expected_us / 1e6)
            best = max(best, flops / min(times_us) / 1e6)
            reasons |= dict.fromkeys(throttled)
    except torch.OutOfMemoryError:
        remark = f"{name} matmuls: there was no room for {rows} x {columns} x {depth}"
        return MeasuredMatmul(best or None, remark)
    except MeasurementError:
        raise
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:  # torch, or this GPU, does not multiply it
        return MeasuredMatmul(best or None, f"{name} matmuls: not measured, {first_line(error)}")
    finally:
        torch.cuda.empty_cache()
    return MeasuredMatmul(
        best, f"{name} matmuls: throttled by {', '.join(reasons)} while they were measured" if reasons else ""
    )


def shapes(device: Device) -> list[tuple[int, int, int]]:
    """Return the rows, columns and depths to multiply, from small to large."""
    squares = [(side, side, side) for side in MATMUL_SIDES]
    multiprocessors = device.facts.multiprocessors
    even = [(EVEN_ROWS_PER_SM * multiprocessors, EVEN_COLUMNS, EVEN_DEPTH)] if multiprocessors else []
    return [*squares, *even]


def reps_within(expected_us: float) -> int:
    """Return how many reps of a call fit into the budget, idle time and all."""
    if not expected_us:
        return FEWEST_REPS
    return max(FEWEST_REPS, min(MOST_REPS, int(MATMUL_BUDGET_US / (1 + IDLE_PER_BUSY) / expected_us)))


def matmuls(device: Device, name: str, rows: int, columns: int, depth: int) -> list[Call]:
    """Return products of so many rows and columns, the second factor stored by rows and by columns."""
    import torch

    stored = getattr(torch, "float32" if name == "tfloat32" else name)
    first = normal(device, rows, depth, stored)
    second = normal(device, columns, depth, stored)
    if name.startswith("float8"):
        unit = torch.ones((), device=device.torch_device, dtype=torch.float32)
        multiply: Any = torch._scaled_mm

        def scaled() -> object:
            return multiply(
                first, second.t(), scale_a=unit, scale_b=unit, out_dtype=torch.bfloat16, use_fast_accum=True
            )

        return [call_of(f"{name} {rows}", scaled)]
    out = torch.empty(rows, columns, dtype=stored, device=device.torch_device)
    by_rows = second.t().contiguous()
    return [
        call_of(f"{name} {rows} by columns", lambda: torch.mm(first, second.t(), out=out)),
        call_of(f"{name} {rows} by rows", lambda: torch.mm(first, by_rows, out=out)),
    ]


def normal(device: Device, rows: int, columns: int, dtype: "torch.dtype") -> "torch.Tensor":
    """Return normal noise, always the same, without a draw from the generators of others."""
    import torch

    generator = torch.Generator(device.torch_device).manual_seed(0)
    drawn = torch.float32 if dtype.itemsize > 2 else torch.bfloat16
    noise = torch.empty(rows, columns, dtype=drawn, device=device.torch_device).normal_(generator=generator)
    return noise.to(dtype)


# taking reps


def call_of(label: str, function: Callable[[], object]) -> Call:
    """Return the call of a function that takes nothing."""
    return Call(label, lambda: function, function)


def fastest_us(
    device: Device, calls: Sequence[Call], reps: int, idle_s: float = 0.0
) -> tuple[list[float], tuple[str, ...]]:
    """Return the fastest cold rep of each call, in microseconds, and what throttled the GPU in all reps of one.

    Raises MeasurementError where the records stay incomplete.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton 3.9 warns, with each compilation, of a default of its own
        for call in calls:
            call.function()  # what is compiled, loaded or allocated once is none of the call's
    device.synchronize()
    taken, masks = take(device, calls, reps, idle_s)
    times_us, mask = [], 0
    for place in range(len(calls)):
        mine = slice(place * reps, (place + 1) * reps)
        clean = [rep.elapsed_us for rep, throttled in zip(taken[mine], masks[mine], strict=True) if not throttled]
        if not clean:
            mask |= min(masks[mine])
        times_us.append(min(clean or [rep.elapsed_us for rep in taken[mine]]))
    return times_us, reason_names(mask)


def take(device: Device, calls: Sequence[Call], reps: int, idle_s: float) -> tuple[Sequence[Rep], list[int]]:
    """Take so many cold reps of each call in turn, once more where the records are not complete."""
    watch = device.nvml.throttle_mask if device.nvml else lambda: 0
    timer = ProfilerTimer(device, "cold")
    for attempt in range(1, ATTEMPTS + 1):
        masks: list[int] = []
        with collection_off(), timer.session() as session:
            for call in calls:
                for _ in range(reps):
                    session.take(call, idle_s)
                    masks.append(watch())
        try:
            return session.reps(), masks
        except IncompleteRecords:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return next(iter(str(error).splitlines()), type(error).__name__)
