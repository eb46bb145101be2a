"""Compare times with those of ncu, which must be on the PATH: `true [CALL ...]`.

A call is compared kernel by kernel, with ncu flushing the caches and leaving the clocks alone.
"""

import csv
import statistics
import subprocess
import sys
from collections.abc import Sequence

from pytest_gpubench import bench
from tests.on_gpu.study.harness import CACHE, code_of, in_fresh_process, parser_of, print_head, print_row
from tests.on_gpu.study.steady import measure_all
from tests.on_gpu.study.workloads import WORKLOADS, rms_norm_chain, rms_norm_steps

NCU_CALLS = 11
US_PER_UNIT = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3, "ms": 1e3, "msecond": 1e3}
TIME = "gpu__time_duration.sum"
LEFT_OUT = "matmul 8192^3 bf16"
"""ncu runs into the power cap."""


def print_steps() -> None:
    """Print the chain of six kernels kernel by kernel, each in a cold call of its own, as ncu flushes before each."""
    chain = bench.measure(rms_norm_chain())
    alone_us = [bench.measure(step).median_us for step in rms_norm_steps()]
    inside_us = [kernel.median_us for kernel in chain.kernels]
    print(
        f"rms_norm eager: in the chain {chain.median_us:.2f} us, its kernels each in a cold call {sum(alone_us):.2f} us"
    )
    print(
        "  in the chain:", ", ".join(f"{us:.2f} ({k.launches})" for us, k in zip(inside_us, chain.kernels, strict=True))
    )
    print("  each alone:  ", ", ".join(f"{us:.2f}" for us in alone_us))


def call_for_ncu(name: str) -> None:
    """Call a function where ncu listens, each time after a flush of ours, which ncu is told to leave out."""
    import torch

    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.timing.l2flush import make_flush

    function, flush = WORKLOADS[name](), make_flush(find_device("cuda"), CACHE)
    for _ in range(3):
        function()
    flush()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for _ in range(NCU_CALLS):
        flush()
        torch.cuda.synchronize()
        function()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def ask_ncu(name: str, cache_control: str) -> tuple[float, int]:
    """Return ncu's time of one call in microseconds, the median over calls of the sum over kernels, and the kernels.

    cache_control: "all" lets ncu flush before each kernel, "none" leaves it at our flush before each call.
    """
    command = ["ncu", "--cache-control", cache_control, "--clock-control", "none", "--profile-from-start", "off"]
    command += ["--csv", "--kernel-name", "regex:^(?!gpu_bench_).*", "--metrics", TIME]
    command += [sys.executable, "-c", code_of(call_for_ncu, name)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith('"ID"'))
    times_us = [
        float(row["Metric Value"].replace(",", "")) * US_PER_UNIT[row["Metric Unit"]]
        for row in csv.DictReader(lines[first:])
        if row["Metric Name"] == TIME
    ]
    kernels = len(times_us) // NCU_CALLS
    calls_us = [sum(times_us[index * kernels : (index + 1) * kernels]) for index in range(NCU_CALLS)]
    return statistics.median(calls_us), kernels


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("true", __doc__)
    parser.add_argument("calls", nargs="*", default=list(WORKLOADS), metavar="CALL")
    names = [name for name in parser.parse_args(arguments).calls if name != LEFT_OUT]
    print_steps()
    ours = in_fresh_process(measure_all, names)
    print_head(
        "call | kernels | gpu_bench us | ncu us | off by | allowed | do_bench us | off by | ncu, flushed once us"
    )
    for name in names:
        ncu_us, kernels = ask_ncu(name, "all")
        once = f"{ask_ncu(name, 'none')[0]:.2f}" if kernels > 1 else ""
        row, allowed_us = ours[name], 1.5 + 0.01 * ncu_us
        off_us, rival_us = row["ours_us"] - ncu_us, row["rival_us"] - ncu_us
        word = "ok" if abs(off_us) <= allowed_us else "MISSED"
        print_row(
            f"{name} | {kernels} | {row['ours_us']:.2f} | {ncu_us:.2f} | {off_us:+.2f} | {allowed_us:.2f} {word} | "
            f"{row['rival_us']:.2f} | {rival_us:+.2f} | {once}"
        )
