"""This GPU's peaks, and its bandwidth alone, measured once a process with our own timer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from pytest_gpubench.errors import DeviceUnavailable, MeasurementError, first_line
from pytest_gpubench.gpu.datasheets import datasheet_of
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.nvml import reason_names
from pytest_gpubench.gpu.readings import NO_READING, Reading
from pytest_gpubench.results.model import MemoryPeak, Peaks
from pytest_gpubench.timing.base import Call, call_of, unwarned
from pytest_gpubench.timing.calls import normal_noise
from pytest_gpubench.timing.l2flush import flush_buffer
from pytest_gpubench.timing.pacing import IDLE_PER_BUSY, Pacing
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.rounds import Arm, Instrument, Interleaved, Sample, take_rounds
from pytest_gpubench.units import format_bytes

SIZES_BYTES = tuple(2**exponent for exponent in range(24, 32))
"""The traffic that memory is measured with, 16 MiB to 2 GiB: what the cache keeps of the writes shrinks with it."""
ALIGNMENT_BYTES = 512
MEMORY_REPS = 8
"""The fastest counts: half of the calls are faster than the median."""
MATMUL_SIDES = (2048, 4096, 8192)
EVEN_ROWS_PER_SM = 128
"""So many rows a multiprocessor, and 4096 columns, leave none of them idle with tiles of 128 x 128 or 128 x 256."""
EVEN_COLUMNS, EVEN_DEPTH = 4096, 8192
LONGEST_TRIAL_US = 25_000.0
"""A matmul that should take longer is not tried: it would cost a second, and hit the power cap."""
MATMUL_BUDGET_US = 100_000.0
FEWEST_REPS, MOST_REPS = 3, 10
LEAST_COPIED_BYTES = 2**28
BANDWIDTH_REPS = 20
TF32_PROBE_SIDE = 1024
TF32_PROBE = 1 + 2.0**-12
"""A float32 that TF32, with 10 bits behind the point, rounds to 1."""


# memory's bandwidth alone, which takes some milliseconds


def copy_bandwidth(device: Device) -> float | None:
    """Return the bytes that a large copy moves in a microsecond, read and written; None without room for one.

    The fastest of 20 cold copies of at least 256 MiB, or of four times the L2 cache if that is more. What the GPU moves
    while it is throttled is not kept.
    """
    try:
        return _bandwidths.get(device) or _measured_bandwidth(device)
    except torch.OutOfMemoryError:  # there may be room the next time
        return None


_bandwidths: dict[Device, float] = {}


def _measured_bandwidth(device: Device) -> float:
    flush_buffer(device)  # first, so that it has room
    copied_bytes = max(LEAST_COPIED_BYTES, 4 * device.cache_bytes)
    source = torch.zeros(copied_bytes // 4, dtype=torch.int32, device=device.torch_device)
    target = torch.empty_like(source)
    times_us, throttled = fastest_us(device, [call_of("copy", lambda: target.copy_(source))], BANDWIDTH_REPS)
    bandwidth = 2 * copied_bytes / times_us[0]
    if not throttled:
        _bandwidths[device] = bandwidth
    return bandwidth


# what this GPU reaches


def measured_peaks(device: Device, dtypes: Sequence[str] | None = ()) -> Peaks | None:
    """Return this GPU's rates of moving cold memory and of multiplying these dtypes; None on the CPU.

    dtypes: names as torch's, `bfloat16`; None is those that were measured before. float32 is measured as torch is set
    now, and called `tfloat32` where torch rounds it; what cannot be measured is missing, and a remark says why. Each
    is measured once a process and GPU, in less than a second; what lacked room or met an error is tried again.
    """
    if device.type != "cuda":
        return None
    try:
        points, of_memory = measured_memory(device)
    except Exception as error:  # without a peak the measured result is still worth having
        points, of_memory = (), (f"memory: not measured, {first_line(error)}",)
    known = {name: rate for (there, name), rate in _matmuls.items() if there == device}
    matmuls = known if dtypes is None else matmuls_or_remark(device, dtypes)
    sheet, clock_mhz = datasheet_of(device.facts), device.facts.max_sm_clock_mhz
    remarks = [*of_memory, *dict.fromkeys(rate.remark for rate in matmuls.values() if rate.remark)]
    largest_gbps = {point.read_share: point.gbps for point in points}  # the last are of the largest traffic
    return Peaks(
        copy_gbps=largest_gbps.get(0.5),
        read_gbps=largest_gbps.get(1.0),
        matmul_tflops={name: rate.tflops for name, rate in matmuls.items() if rate.tflops is not None},
        datasheet_gbps=sheet.gbps if sheet else None,
        datasheet_tflops=sheet.tflops if sheet else {},
        datasheet=str(sheet) if sheet else "",
        boost=max(1.0, clock_mhz / sheet.boost_mhz) if sheet and sheet.boost_mhz and clock_mhz else 1.0,
        memory=points,
        cache_bytes=device.cache_bytes,
        remarks=tuple(remarks),
    )


def matmuls_or_remark(device: Device, dtypes: Sequence[str]) -> "dict[str, MeasuredMatmul]":
    """Return the rates of multiplying dtypes, or remarks on why they are not known; of float32 as torch has it now."""
    found: dict[str, MeasuredMatmul] = {}
    try:
        for name in dtypes:
            now = "tfloat32" if name == "float32" and rounds_float32(device) else name
            known = _matmuls.get((device, now))
            found[now] = known if known and not known.lacked_room else measure_matmul(device, now)
            _matmuls[device, now] = found[now]
    except Exception as error:  # as above
        remark = f"matmuls: not measured, {first_line(error)}"
        found |= {name: MeasuredMatmul(None, remark) for name in dtypes if name not in found}
    return found


def rounds_float32(device: Device) -> bool:
    """Tell whether matmuls of float32 are computed in TF32: tried, as several settings and variables decide it."""
    with plainly():
        unit = torch.eye(TF32_PROBE_SIDE, device=device.torch_device, dtype=torch.float32)
        return float(torch.mm(torch.full_like(unit, TF32_PROBE), unit)[0, 0]) != TF32_PROBE


@contextmanager
def plainly() -> Iterator[None]:
    """Compute without gradients and autocast, whatever the caller has switched on."""
    with torch.no_grad(), torch.autocast("cuda", enabled=False):
        yield


# memory


@cache
def measured_memory(device: Device) -> tuple[tuple[MemoryPeak, ...], tuple[str, ...]]:
    """Measure copies, additions, readers and writers of several sizes; fewer without room, which a remark says.

    Returns the rates, those of the smallest traffic first, and remarks. Raises DeviceUnavailable without room for that.
    """
    flush_buffer(device)  # first, so that it has room
    pool, remarks = make_pool(device), []
    if pool.nbytes < SIZES_BYTES[-1]:
        remarks.append(f"memory: measured with {format_bytes(pool.nbytes)} at most, there was no room for more")
    sizes = [size for size in SIZES_BYTES if size <= pool.nbytes]
    with plainly():
        trials = [trial for size in sizes for trial in trials_of(pool, size)]
        times_us, throttled = fastest_us(device, [call for call, *_ in trials], MEMORY_REPS)
    if throttled:
        remarks.append(f"memory: throttled by {', '.join(throttled)} while it was measured")
    best: dict[tuple[float, int], float] = {}
    for (_, share, moved_bytes), time_us in zip(trials, times_us, strict=True):
        best[share, moved_bytes] = max(best.get((share, moved_bytes), 0.0), moved_bytes / time_us / 1e3)
    del pool, trials
    torch.cuda.empty_cache()  # of so much memory others may have a use
    points = (MemoryPeak(read_share=share, moved_bytes=size, gbps=rate) for (share, size), rate in best.items())
    return tuple(points), tuple(remarks)


def make_pool(device: Device) -> torch.Tensor:
    """Return zeros to move, as many as fit of the largest size; raise DeviceUnavailable where the smallest does not."""
    for size in reversed(SIZES_BYTES):
        with suppress(torch.OutOfMemoryError):
            return torch.zeros(size // 4, dtype=torch.float32, device=device.torch_device)
    raise DeviceUnavailable(f"there is no room for a copy of {format_bytes(SIZES_BYTES[0])}: free memory of the GPU")


def trials_of(pool: torch.Tensor, size: int) -> list[tuple[Call, float, int]]:
    """Return the ways to move so many bytes within the pool, each with its share of reads and its bytes."""
    from pytest_gpubench.timing import kernels

    source, target = parts(pool, size, 2)
    first, second, out = parts(pool, size, 3)
    (whole,) = parts(pool, size, 1)
    ways: list[tuple[str, float, int, Callable[[], object]]] = [
        ("copy", 0.5, 2 * source.nbytes, lambda: target.copy_(source)),
        ("neg", 0.5, 2 * source.nbytes, lambda: torch.neg(source, out=target)),
        ("add", 2 / 3, 3 * out.nbytes, lambda: torch.add(first, second, out=out)),
        ("read", 1.0, whole.nbytes, kernels.flush_of(whole.view(torch.int32), only_reads=True)),
        ("sum", 1.0, whole.nbytes, lambda: torch.sum(whole)),
        ("zero", 0.0, whole.nbytes, whole.zero_),
        ("fill", 0.0, whole.nbytes, lambda: whole.fill_(1.0)),
    ]
    return [(call_of(f"{name} {size}", way), share, moved) for name, share, moved, way in ways]


def parts(pool: torch.Tensor, size: int, number: int) -> list[torch.Tensor]:
    """Return so many parts of the pool, aligned and of so many bytes together, or a little less."""
    step = ALIGNMENT_BYTES // pool.element_size()
    each = size // pool.element_size() // number // step * step
    return [pool[place * each : (place + 1) * each] for place in range(number)]


# matmuls


@dataclass(frozen=True)
class MeasuredMatmul:
    """The measured rate of multiplying a dtype, and a remark on it."""

    tflops: float | None
    remark: str = ""
    lacked_room: bool = False
    """True if not all sizes were measured, for which there may be room the next time."""


_matmuls: dict[tuple[Device, str], MeasuredMatmul] = {}


def measure_matmul(device: Device, name: str) -> MeasuredMatmul:
    """Return the fastest rate over several shapes and both layouts of the second factor, of normal random numbers.

    Products of zeros, or of few different numbers, take less power and can be faster.
    """
    best, reasons = 0.0, dict[str, None]()
    sizes = [(side, side, side) for side in MATMUL_SIDES]
    if multiprocessors := device.facts.multiprocessors:
        sizes.append((EVEN_ROWS_PER_SM * multiprocessors, EVEN_COLUMNS, EVEN_DEPTH))
    try:
        for rows, columns, depth in sizes:
            flops = 2.0 * rows * columns * depth
            expected_us = flops / best / 1e6 if best else 0.0
            if expected_us > LONGEST_TRIAL_US:
                continue
            within = int(MATMUL_BUDGET_US / (1 + IDLE_PER_BUSY) / expected_us) if expected_us else FEWEST_REPS
            reps = max(FEWEST_REPS, min(MOST_REPS, within))
            with plainly():
                calls = matmuls(device, name, rows, columns, depth)
                times_us, throttled = fastest_us(device, calls, reps, IDLE_PER_BUSY * expected_us / 1e6)
            best = max(best, flops / min(times_us) / 1e6)
            reasons |= dict.fromkeys(throttled)
    except torch.OutOfMemoryError:
        no_room = f"{name} matmuls: there was no room for {rows} x {columns} x {depth}"
        return MeasuredMatmul(best or None, no_room, lacked_room=True)
    except (MeasurementError, DeviceUnavailable):
        raise
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:  # torch, or this GPU, does not multiply it
        lacked_room = "ALLOC_FAILED" in str(error)  # of a library of CUDA's
        return MeasuredMatmul(best or None, f"{name} matmuls: not measured, {first_line(error)}", lacked_room)
    finally:
        torch.cuda.empty_cache()
    throttled_by = f"{name} matmuls: throttled by {', '.join(reasons)} while they were measured"
    return MeasuredMatmul(best, throttled_by if reasons else "")


def matmuls(device: Device, name: str, rows: int, columns: int, depth: int) -> list[Call]:
    """Return products of so many rows and columns, the second factor stored by rows and by columns."""
    stored = getattr(torch, "float32" if name == "tfloat32" else name)
    first, second = (normal_noise((lines, depth), stored, device.torch_device, 0) for lines in (rows, columns))
    if name.startswith("float8"):
        unit = torch.ones((), device=device.torch_device, dtype=torch.float32)
        multiply: Any = torch._scaled_mm
        options = {"scale_a": unit, "scale_b": unit, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return [call_of(f"{name} {rows}", lambda: multiply(first, second.t(), **options))]
    out = torch.empty(rows, columns, dtype=stored, device=device.torch_device)
    by_rows = second.t().contiguous()
    return [
        call_of(f"{name} {rows} by columns", lambda: torch.mm(first, second.t(), out=out)),
        call_of(f"{name} {rows} by rows", lambda: torch.mm(first, by_rows, out=out)),
    ]


# taking reps


def fastest_us(
    device: Device, calls: Sequence[Call], reps: int, idle_s: float = 0.0
) -> tuple[list[float], tuple[str, ...]]:
    """Return the fastest cold rep of each call, in microseconds, and what throttled those without a clean rep.

    Raises MeasurementError where the records stay incomplete.
    """
    with unwarned():
        for call in calls:
            call.function()  # what is compiled, loaded or allocated once
    device.synchronize()
    timer, arms, nvml = ProfilerTimer(device, "cold"), {call.label: Arm(call, idle_s) for call in calls}, device.nvml
    instrument = Instrument(
        timer, lambda: NO_READING if nvml is None else Reading(throttle_mask=nvml.throttle_mask()), Pacing(None)
    )
    taken = Interleaved({label: Sample() for label in arms})
    take_rounds(instrument, arms, [tuple(arms)] * reps, taken, 0.0, interleave=False)
    times_us, mask = [], 0
    for sample in taken.samples.values():
        clean = [rep.elapsed_us for rep in sample.reps if not rep.reading.throttle_mask]
        if not clean:
            mask |= sample.throttle_mask
        times_us.append(min(clean or sample.samples_us))
    return times_us, reason_names(mask)
