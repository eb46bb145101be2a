"""Hold five calls at three sizes against this GPU's measured peaks, its datasheet and Triton's: `peaks`.

Each call is measured cold, as a test measures it. The status is 1 where a fraction of a measured peak is above 100 %, a
timing is called impossible, or the largest copy is below 95 %.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import torch

from pytest_gpubench import Timing, bench
from pytest_gpubench.correctness import moved_bytes
from pytest_gpubench.correctness.flops import counted
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import Peaks
from pytest_gpubench.timing.peaks import measured_peaks
from pytest_gpubench.units import grouped
from pytest_gpubench.verdict.limits.rate import peak_fraction, too_fast
from tests.on_gpu.study.harness import CACHE, cool, parser_of, print_head, print_row, start_profiler
from tests.on_gpu.study.workloads import normal

LEAST_COPY = 0.95
DTYPES = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn")
COLUMNS = "call | median | bytes | GB/s | TFLOP/s | of measured | bound by | of datasheet | of Triton's peak | flags"


def copy(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(x)


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.add(x, y, out=out)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight)


def matmul(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b, out=out)


@dataclass(frozen=True)
class Case:
    """A call and its arguments, those that it writes to last."""

    name: str
    function: Callable[..., torch.Tensor]
    args: tuple[torch.Tensor, ...]


def cases() -> Iterator[Case]:
    """Yield every call at every size, and make its tensors then."""
    for megabytes in (16, 64, 1024):
        x = normal(megabytes * 2**18)
        yield Case(f"copy {megabytes} MiB", copy, (x, torch.empty_like(x)))
    for megabytes in (16, 64, 512):
        x = normal(megabytes * 2**18)
        yield Case(f"add 3 x {megabytes} MiB", add, (x, x.flip(0), torch.empty_like(x)))
    for rows in (1024, 4096, 65536):
        yield Case(f"softmax {rows}x4096 fp32", softmax, (normal(rows, 4096),))
    for rows in (1024, 4096, 65536):
        yield Case(f"rms_norm {rows}x4096 fp32", rms_norm, (normal(rows, 4096), normal(4096)))
    for side in (1024, 4096, 8192):
        a, b = (normal(side, side, dtype=torch.bfloat16) for _ in range(2))
        yield Case(f"matmul {side}^3 bf16", matmul, (a, b, torch.empty_like(a)))


def triton_gbps() -> float | None:
    """Return the memory's peak that Triton states; None where this version cannot say."""
    import triton.testing

    try:
        return float(triton.testing.get_dram_gbps())
    except Exception as error:
        print(f"triton.testing.get_dram_gbps: {type(error).__name__}: {error}")
        return None


def triton_tflops(device: Device) -> float | None:
    """Return the peak of bfloat16 at the highest clock that Triton states; None where it cannot say.

    Its formula knows the tensor cores of compute capability 8.0, half as fast as those of 9.0.
    """
    import triton.testing

    clock_mhz = device.facts.max_sm_clock_mhz
    if clock_mhz is None:
        return None
    try:
        return float(triton.testing.get_max_tensorcore_tflops(torch.bfloat16, clock_mhz * 1e3))
    except Exception as error:
        print(f"triton.testing.get_max_tensorcore_tflops: {type(error).__name__}: {error}")
        return None


def timed(case: Case) -> tuple[Timing, str | None, float]:
    """Return a measurement as a test takes it, the dtype that is multiplied, and the share of reads."""
    cool()
    timing = bench.measure(case.function, *case.args, label=case.name)
    returned = case.function(*case.args)
    moved = moved_bytes(case.args, {}, returned)
    written = moved_bytes((), {}, returned)
    work = counted(case.function, case.args)
    known = msgspec.structs.replace(timing, moved_bytes=moved, flops=work.flops)
    return known, work.dtype, 1 - written / moved


def share(rate: float | None, peak: float | None) -> str:
    """Return a rate over a peak, in per cent."""
    return "-" if rate is None or not peak else f"{100 * rate / peak:.1f} %"


def row(
    case: Case, peaks: Peaks, stated_gbps: float | None, stated_tflops: float | None
) -> tuple[list[str], float | None, str | None]:
    """Return a row of the table, its fraction of the measured peak, and why it is impossible, if it is."""
    timing, dtype, read_share = timed(case)
    found = peak_fraction(timing, peaks, dtype, read_share)
    by_memory = found is None or found.bound == "memory"
    rate = timing.gbps if by_memory else timing.tflops
    datasheet = peaks.datasheet_gbps if by_memory else peaks.datasheet_tflops.get(dtype or "")
    cells = [
        case.name,
        f"{timing.median_us:.2f} us",
        f"{(timing.moved_bytes or 0) / 1e6:.1f} MB",
        grouped(timing.gbps or 0),
        "-" if timing.tflops is None else grouped(timing.tflops),
        "-" if found is None else f"{100 * found.value:.1f} %",
        "-" if found is None else f"{found.bound}, {grouped(found.peak)} {found.unit}",
        share(rate, datasheet),
        share(rate, stated_gbps if by_memory else stated_tflops),
        ", ".join((*timing.flags, *timing.throttle_reasons)) or "-",
    ]
    return cells, found.value if found else None, too_fast(timing, peaks, dtype)


def print_peaks(device: Device, peaks: Peaks) -> None:
    """Print what was measured, and what the datasheet states."""
    copy_gbps, read_gbps = (grouped(rate) if rate else "-" for rate in (peaks.copy_gbps, peaks.read_gbps))
    print(f"copy {copy_gbps} GB/s, read {read_gbps} GB/s; {peaks.datasheet_gbps} GB/s in: {peaks.datasheet}")
    for name, rate in peaks.matmul_tflops.items():
        print(f"{name} matmuls {grouped(rate)} TFLOP/s; datasheet {peaks.datasheet_tflops.get(name)}")
    for share_read in sorted({point.read_share for point in peaks.memory}):
        points = sorted((point.moved_bytes, point.gbps) for point in peaks.memory if point.read_share == share_read)
        print(f"  {share_read:.2f} read: {', '.join(f'{size / 1e6:.0f} MB {rate:.0f}' for size, rate in points)} GB/s")
    print(f"highest clock {peaks.boost:.3f} of the datasheet's, L2 {device.cache_bytes / 2**20:.0f} MiB")
    for remark in peaks.remarks:
        print(f"remark: {remark}")


def main(arguments: Sequence[str]) -> int:
    parser_of("peaks", __doc__).parse_args(arguments)
    device = start_profiler()
    print(f"{device.facts.name}, torch {torch.__version__}, cache {CACHE}")
    for dtypes in ((), *((name,) for name in DTYPES)):
        began_s = time.perf_counter()
        measured_peaks(device, dtypes)
        print(f"measuring {' '.join(dtypes) or 'memory'}: {time.perf_counter() - began_s:.2f} s")
    peaks = measured_peaks(device, DTYPES)
    assert peaks is not None
    print_peaks(device, peaks)
    stated_gbps, stated_tflops = triton_gbps(), triton_tflops(device)
    print(f"triton.testing: {stated_gbps} GB/s, {stated_tflops} TFLOP/s in bfloat16\n")
    print_head(COLUMNS)
    findings, largest_copy = [], None
    for case in cases():
        cells, fraction, impossible = row(case, peaks, stated_gbps, stated_tflops)
        print_row(" | ".join(cells))
        if fraction is not None and fraction > 1:
            findings.append(f"{case.name}: {100 * fraction:.2f} % of the measured peak")
        if impossible is not None:
            findings.append(impossible)
        if case.function is copy:
            largest_copy = fraction
        del case
        torch.cuda.empty_cache()
    if largest_copy is None or largest_copy < LEAST_COPY:
        findings.append(f"the largest copy reached {largest_copy} of the peak, wanted {LEAST_COPY}")
    summary = "\n".join(f"FOUND: {finding}" for finding in findings)
    print(f"\n{summary or 'none above 100 %, the largest copy near it'}")
    return 1 if findings else 0
