"""Measure the measuring on this machine's GPU: `python -m tests.on_gpu.study true|steady|startup|judge`.

Each study prints a Markdown table with the rival (Triton's do_bench) measured in the same run. `true` needs `ncu` on
the PATH; a workload is compared kernel by kernel with its caches flushed and its clocks left alone.
"""

import argparse
import csv
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_gpubench.results.model import Timing

NCU_CALLS = 11
FIXED_REPS = 200
PROCESSES = 10
STARTUPS = 2
RIVAL_TIMES = 5
OWN_WORK_S = 4.0
COOL_S = 0.5
"""The throttling that the rival brought about is none of the next measurement's cost."""


def time_call(function: Callable[[], object], label: str, reps: int | None = None, warmup: int | None = None) -> Timing:
    """Return our timing of a call, cold, by the profiler."""
    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.settings import LIMIT_TIME_S, PRECISION_TIME_S
    from pytest_gpubench.timing import make_timer
    from pytest_gpubench.timing.calls import make_call
    from pytest_gpubench.timing.measurement import Plan
    from pytest_gpubench.timing.measurement import measure as measure_call

    device = find_device("cuda")
    plan = Plan("cold", reps, warmup, 0.005, 5.0 if reps else LIMIT_TIME_S, 5.0 if reps else PRECISION_TIME_S)
    timer = make_timer("profiler", device, "cold")
    return measure_call(make_call(function, label=label), timer, device, plan, lambda _: True, lambda _: None)


def measure(name: str) -> dict[str, float]:
    """Return our median and do_bench's, and what each took on the host."""
    import triton

    from tests.on_gpu.workloads import WORKLOADS

    function = WORKLOADS[name]()
    function()
    time.sleep(COOL_S)
    timing = time_call(function, name)
    fixed = time_call(function, name, reps=FIXED_REPS, warmup=3)
    started_s = time.perf_counter()
    rival_ms = triton.testing.do_bench(function, return_mode="median")
    rival_s = time.perf_counter() - started_s
    interval = timing.median_interval_us
    return {
        "ours_us": timing.median_us,
        "ours_s": timing.elapsed_s,
        "reps": timing.reps,
        "rel_std": timing.rel_std,
        "rel_width": interval.width / timing.median_us if interval else float("nan"),
        "clock_mhz": timing.median_sm_clock_mhz or 0,
        "discarded": timing.discarded,
        "remeasured": timing.remeasured,
        "per_rep_ms": 1e3 * fixed.elapsed_s / (FIXED_REPS + 3),
        "fixed_us": fixed.median_us,
        "rival_us": 1e3 * rival_ms,
        "rival_s": rival_s,
    }


def measure_steps() -> None:
    """Print the chain of six kernels kernel by kernel, each in a cold call of its own, as ncu flushes before each."""
    from tests.on_gpu.workloads import rms_norm_chain, rms_norm_steps

    chain = time_call(rms_norm_chain(), "chain")
    alone_us = [time_call(step, "step").median_us for step in rms_norm_steps()]
    inside_us = [kernel.median_us for kernel in chain.kernels]
    print(
        f"rms_norm eager: in the chain {chain.median_us:.2f} us, its kernels each in a cold call {sum(alone_us):.2f} us"
    )
    print(
        "  in the chain:", ", ".join(f"{us:.2f} ({k.launches})" for us, k in zip(inside_us, chain.kernels, strict=True))
    )
    print("  each alone:  ", ", ".join(f"{us:.2f}" for us in alone_us))


def measure_all(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure each workload in this process, after the profiler's start."""
    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.timing.profiler import ProfilerTimer, self_test

    self_test(ProfilerTimer(find_device("cuda"), "cold"))
    return {name: measure(name) for name in names}


def call_for_ncu(name: str) -> None:
    """Call a workload where ncu listens, each time after a flush of ours, which ncu is told to leave out."""
    import torch

    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.timing.l2flush import make_flush
    from tests.on_gpu.workloads import WORKLOADS

    function, flush = WORKLOADS[name](), make_flush(find_device("cuda"), "cold")
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
    command = [
        "ncu",
        "--cache-control",
        cache_control,
        "--clock-control",
        "none",
        "--profile-from-start",
        "off",
        "--csv",
    ]
    command += ["--kernel-name", "regex:^(?!gpu_bench_).*"]
    command += ["--metrics", "gpu__time_duration.sum", sys.executable, "-m", __spec__.name, "call-for-ncu", name]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = output.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith('"ID"'))
    scale = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3, "ms": 1e3, "msecond": 1e3}
    times_us = [
        float(row["Metric Value"].replace(",", "")) * scale[row["Metric Unit"]]
        for row in csv.DictReader(lines[first:])
        if row["Metric Name"] == "gpu__time_duration.sum"
    ]
    kernels = len(times_us) // NCU_CALLS
    calls_us = [sum(times_us[index * kernels : (index + 1) * kernels]) for index in range(NCU_CALLS)]
    return statistics.median(calls_us), kernels


def in_fresh_process(arguments: Sequence[str]) -> dict[str, dict[str, float]]:
    """Run a study in a process of its own and return what it printed last."""
    command = [sys.executable, "-m", __spec__.name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout}\n{done.stderr}")
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def study_true(names: Sequence[str]) -> None:
    """Compare with ncu."""
    measure_steps()
    ours = in_fresh_process(["measure", *names])
    print("| call | kernels | gpu_bench us | ncu us | off by | allowed | do_bench us | off by | ncu, flushed once us |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        ncu_us, kernels = ask_ncu(name, "all")
        once = f"{ask_ncu(name, 'none')[0]:.2f}" if kernels > 1 else ""
        row, allowed_us = ours[name], 1.5 + 0.01 * ncu_us
        off_us, rival_us = row["ours_us"] - ncu_us, row["rival_us"] - ncu_us
        word = "ok" if abs(off_us) <= allowed_us else "MISSED"
        print(
            f"| {name} | {kernels} | {row['ours_us']:.2f} | {ncu_us:.2f} | {off_us:+.2f} | {allowed_us:.2f} {word} | "
            f"{row['rival_us']:.2f} | {rival_us:+.2f} | {once} |"
        )


def study_steady(names: Sequence[str], out: Path | None) -> None:
    """Compare medians of fresh processes, and what a measurement costs."""
    runs: list[dict[str, dict[str, float]]] = []
    for number in range(PROCESSES):
        started_s = time.perf_counter()
        runs.append(in_fresh_process(["measure", *names]))
        print(f"process {number + 1} of {PROCESSES}: {time.perf_counter() - started_s:.1f} s", file=sys.stderr)
        if out is not None:
            out.write_text(json.dumps(runs))
    print(
        "| kernel | gpu_bench us | spread | do_bench us | its spread | s a measurement | do_bench s | ms a rep | reps |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        ours, rival = column(runs, name, "ours_us"), column(runs, name, "rival_us")
        middle = {
            key: statistics.median(column(runs, name, key)) for key in ("ours_s", "rival_s", "per_rep_ms", "reps")
        }
        print(
            f"| {name} | {statistics.median(ours):.2f} | {spread(ours):.2%} | {statistics.median(rival):.2f} | "
            f"{spread(rival):.2%} | {middle['ours_s']:.3f} | {middle['rival_s']:.3f} | {middle['per_rep_ms']:.3f} | "
            f"{middle['reps']:.0f} |"
        )


def column(runs: Sequence[dict[str, dict[str, float]]], name: str, key: str) -> list[float]:
    """Return one figure of every process."""
    return [run[name][key] for run in runs]


def spread(values: Sequence[float]) -> float:
    """Return (max - min) / median."""
    return (max(values) - min(values)) / statistics.median(values)


def start_up(mode: str) -> None:
    """Print how long the first measurement took to come, with work of the test's own before it."""
    import torch

    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.timing.profiler import start_in_background
    from pytest_gpubench.timing.startup import wait_for_startup
    from tests.on_gpu.workloads import softmax

    device = find_device("cuda")
    torch.ones(1, device="cuda")
    marks_s = [time.perf_counter()]
    if mode == "background":
        start_in_background(device)
    marks_s.append(time.perf_counter())
    function = softmax()
    expected = torch.randn(1500, 1500, dtype=torch.float64)
    while time.perf_counter() - marks_s[-1] < OWN_WORK_S:  # a reference on the CPU, and launches
        expected = (expected @ expected).clamp(-1, 1)
        function()
    torch.cuda.synchronize()
    marks_s.append(time.perf_counter())
    wait_for_startup()
    marks_s.append(time.perf_counter())
    time_call(function, "softmax")
    marks_s.append(time.perf_counter())
    steps = ("begin", "work", "wait", "measure")
    took = dict(zip(steps, (after - before for before, after in itertools.pairwise(marks_s)), strict=True))
    print(json.dumps({"startup": {**took, "all": marks_s[-1] - marks_s[0]}}))


def study_startup() -> None:
    """Compare the profiler's start in the background with one that the first measurement has to wait for."""
    print("| start | begin s | the test's own work s | wait s | first measurement s | all s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for mode in ("background", "lazy") * STARTUPS:
        took = in_fresh_process(["start-up", mode])["startup"]
        cells = " | ".join(f"{took[name]:.2f}" for name in ("begin", "work", "wait", "measure", "all"))
        print(f"| {mode} | {cells} |")


def verdicts(
    candidate: Callable[[], object], reference: Callable[[], object], limit: float, most: int, most_s: float
) -> dict[str, float]:
    """Compare again and again, as the fixture does; return how often each verdict came, and what it cost."""
    from pytest_gpubench.errors import InvalidResult, LimitBroken
    from pytest_gpubench.limits import Limits
    from pytest_gpubench.results.model import Outcome
    from tests.on_gpu.harness import bench_of, silent, study_test_with

    outcomes: Counter[Outcome] = Counter()
    seconds: list[float] = []
    quads: list[int] = []
    ratios: list[float] = []
    started_s = time.perf_counter()
    while len(seconds) < most and time.perf_counter() - started_s < most_s:
        began_s = time.perf_counter()
        test = study_test_with(Limits(min_speedup=limit), seed=len(seconds))
        with suppress(LimitBroken, InvalidResult):
            bench_of(test).compare({"candidate": silent(candidate)}, silent(reference))
        seconds.append(time.perf_counter() - began_s)
        found = test.measurements[-1]
        outcomes[found.verdicts[0].outcome] += 1
        if found.speedup is None:
            continue
        quads.append(found.speedup.quads)
        ratios.append(found.speedup.ratio)
    return {
        "verdicts": len(seconds),
        **{outcome.value: outcomes[outcome] for outcome in Outcome},
        "quads": statistics.fmean(quads),
        "seconds": statistics.median(seconds),
        "ratio": statistics.median(ratios),
    }


def study_judge(most: int, most_s: float, names: Sequence[str]) -> None:
    """Count verdicts at min_speedup=0.99: of a call against itself, and against one with 2 % and 10 % more work."""
    from tests.on_gpu.workloads import planted

    print("| call | arms | verdicts | PASS | FAIL | INCONCLUSIVE | INVALID | quads | s each | two do_bench s | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, calls in planted().items():
        reference = calls["the same"]
        for arms in names or calls:
            row = verdicts(calls[arms], reference, 0.99, most, most_s)
            rival_s = seconds_of_do_bench(calls[arms], reference)
            print(
                f"| {name} | {arms} | {row['verdicts']} | {row['pass']} | {row['fail']} | {row['inconclusive']} | "
                f"{row['invalid']} | {row['quads']:.0f} | {row['seconds']:.3f} | {rival_s:.3f} | {row['ratio']:.4f} |"
            )


def seconds_of_do_bench(candidate: Callable[[], object], reference: Callable[[], object]) -> float:
    """Return what Triton's do_bench takes for both, the median of five times."""
    import triton

    seconds = []
    for _ in range(RIVAL_TIMES):
        started_s = time.perf_counter()
        for function in (candidate, reference):
            triton.testing.do_bench(function, return_mode="median")
        seconds.append(time.perf_counter() - started_s)
    time.sleep(COOL_S)
    return statistics.median(seconds)


def main() -> None:
    """Run the study that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=["true", "steady", "startup", "measure", "call-for-ncu", "start-up", "judge"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--most", type=int, default=500, help="verdicts of each pair")
    parser.add_argument("--most-s", type=float, default=3600, help="seconds for each pair")
    chosen = parser.parse_args()
    from tests.on_gpu.workloads import WORKLOADS

    names = chosen.names or list(WORKLOADS)
    if chosen.study == "true":
        study_true([name for name in names if name != "matmul 8192^3 bf16"])
    elif chosen.study == "steady":
        study_steady(names, chosen.out)
    elif chosen.study == "startup":
        study_startup()
    elif chosen.study == "judge":
        study_judge(chosen.most, chosen.most_s, chosen.names)
    elif chosen.study == "start-up":
        start_up(names[0])
    elif chosen.study == "call-for-ncu":
        call_for_ncu(names[0])
    else:
        print(json.dumps(measure_all(names)))


if __name__ == "__main__":
    main()
