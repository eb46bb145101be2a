"""`pytest-gpubench doctor`: what this machine can measure, and which counters ncu takes on it."""

import argparse
import importlib
import os
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpubench.cli import noise
from pytest_gpubench.cli.arguments import add_output
from pytest_gpubench.cli.output import say, table, write
from pytest_gpubench.counters import COUNTERS
from pytest_gpubench.errors import BadRequest, GpuBenchError
from pytest_gpubench.gpu.datasheets import datasheet_of
from pytest_gpubench.report.layout import Column
from pytest_gpubench.results.model import Counts, DeviceFacts, SavedRun
from pytest_gpubench.settings import LOCK_FOLDER_NAME, environment_name
from pytest_gpubench.units import count, format_share, printable
from pytest_gpubench.verdict.limits.counters import says_nothing, spread_of_captures

if TYPE_CHECKING:
    from pytest_gpubench.gpu.device import Device
    from pytest_gpubench.gpu.nvml import Nvml

ABOUT = "say what this machine can measure; exit 1 where that is nothing on a GPU"
EXAMPLES = "doctor\ndoctor --noise --json noise.json\ndoctor --counters"
LEAST_COPY_SHARE = 0.75
"""A copy that reaches a smaller part of what the datasheet states is called slow."""
COLD_START = "off: every run begins with a cold GPU and a second of start (nvidia-smi -pm 1)"
WITHOUT_GPU = "tests measure on the CPU and show their limits; --gpu-bench-device=cpu enforces them"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="do not measure bandwidth")
    help = f"only measure how small a slowdown is seen here, in fresh processes (about {noise.SECONDS} s)"
    parser.add_argument("--noise", action="store_true", help=help)
    help = f"only take the counters of a dozen calls by ncu, and tell which repeat (about {COUNTER_SECONDS} s)"
    parser.add_argument("--counters", action="store_true", help=help)
    add_output(parser, "--json", help="write what --noise finds as JSON")
    help = "only give back the clocks that runs with --gpu-bench-lock-clocks left locked when they died"
    parser.add_argument("--restore-clocks", action="store_true", help=help)
    folder = environment_name("lock_folder")
    help = f"where those runs kept their locks (default: ${folder}, else {LOCK_FOLDER_NAME} of the temp folder)"
    default = os.environ.get(folder) or None
    parser.add_argument("--lock-folder", type=Path, metavar="FOLDER", default=default, help=help)


def run(arguments: argparse.Namespace) -> int:
    """Print the facts of this machine; 0 where it can measure, 1 where it cannot, or where clocks stay locked."""
    if arguments.restore_clocks:
        from pytest_gpubench.gpu.clocks import restore_abandoned
        from pytest_gpubench.gpu.lock_file import lock_folder

        restored = restore_abandoned(lock_folder(arguments.lock_folder))
        write("\n".join(printable(each.sentence) for each in restored) or "no clocks to give back")
        return int(any(each.left for each in restored))
    if arguments.json and not arguments.noise:
        raise BadRequest("--json is for what --noise finds: give --noise too")
    try:
        importlib.import_module("torch")
    except (ImportError, OSError) as error:
        why = printable(str(error))
        raise BadRequest(f"it needs torch, which cannot be imported ({why}): run it where your tests run") from None
    if arguments.noise:
        return noise.run(arguments)
    if arguments.counters:
        return tell_counters()
    from pytest_gpubench.gpu.device import find_device, why_no_gpu
    from pytest_gpubench.report.facts import device_facts

    device = find_device("auto")
    facts = {"name": device.facts.name} | device_facts(device.facts)
    write("\n".join(printable(f"{name}: {value}") for name, value in facts.items()))
    if device.type == "cpu":
        write(f"GPU: none, {why_no_gpu()}")
        write(WITHOUT_GPU)
        return 1
    for line in state_lines(device):
        write(line)
    try:
        for line in _measured_lines(device, arguments.quick):
            write(line)
    except GpuBenchError as error:
        write(f"profiler (CUPTI): NOT usable: {error}")
        return 1
    return 0


# readings


def state_lines(device: "Device") -> list[str]:
    """Return a GPU's state, a fact a line, without work on it and without a change to it."""
    from pytest_gpubench.gpu.nvml import reason_names

    nvml = device.nvml
    if nvml is None:
        return ["other processes, ECC, persistence: not known without NVML"]
    mode, kind = nvml.ask("EccMode"), nvml.library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    errors = nvml.ask("TotalEccErrors", kind, nvml.library.NVML_VOLATILE_ECC)
    since = "" if errors is None else f", {count(int(errors), 'uncorrected error')} since the driver was loaded"
    known = {
        "ECC": mode and (f"on{since}" if mode[0] else "off"),
        "persistence mode": {0: COLD_START, 1: "on"}.get(nvml.ask("PersistenceMode")),
        "throttled now": ", ".join(reason_names(nvml.throttle_mask())) or None,
        "others on the GPU": others_words(nvml),
    }
    return [f"{name}: {words}" for name, words in known.items() if words is not None]


def others_words(nvml: "Nvml") -> str:
    """Return which other processes compute on the GPU."""
    from pytest_gpubench.gpu.foreign import apply_busy_policy, find_foreign, read_gpu
    from pytest_gpubench.gpu.processes import family

    ours = family([os.getpid()])
    found = apply_busy_policy(
        "warn", lambda: find_foreign(read_gpu(nvml), ours, uses_gpu=True), 0.0, lambda sentence: None
    )
    return found.sentence if found else "nobody seen"


# measurements


def _measured_lines(device: "Device", quick: bool) -> Iterator[str]:
    """Yield a line for each measurement; raise GpuBenchError if this GPU cannot be measured."""
    from pytest_gpubench.timing.peaks import copy_bandwidth
    from pytest_gpubench.timing.profiler import ProfilerTimer, take_reps_of_noop

    reps = take_reps_of_noop(ProfilerTimer(device, "cold"))
    shortest = f"{min(rep.elapsed_us for rep in reps):.2f} us"
    yield f"profiler (CUPTI): usable, {count(len(reps), 'rep')} complete, the shortest kernel takes {shortest}"
    if not quick:
        yield bandwidth_line(device.facts, copy_bandwidth(device))


def bandwidth_line(facts: DeviceFacts, bytes_per_us: float | None) -> str:
    """Return the rate of a large copy, and its share of the datasheet's."""
    if bytes_per_us is None:
        return "copy bandwidth: not measured, there is no room for a copy"
    gbps = bytes_per_us / 1e3
    line = f"copy bandwidth, cold: {gbps:.0f} GB/s"
    sheet = datasheet_of(facts)
    if sheet is None:
        is_part = facts.mig or "MIG" in facts.name
        why = "an instance of MIG has a part of the GPU's" if is_part else "no datasheet is known here"
        return f"{line} ({why})"
    share = gbps / sheet.gbps
    low = "; less than expected: is another process on it, or the memory clock low?" if share < LEAST_COPY_SHARE else ""
    source = "; ".join(filter(None, [sheet.source, sheet.on_memory]))
    return f"{line}, {format_share(share)} of {sheet.gbps:g} GB/s ({source}){low}"


# counters: two processes run the same tests as a user's, and each takes the counters in a further one under ncu

COUNTER_PROCESSES = 2
COUNTER_SECONDS = 110
COUNTER_OPTIONS = ("--gpu-bench-counters=all", "--gpu-bench-reps=12", "--gpu-bench-resources=limits")
SPREAD_LEGEND = (
    "Spread: the largest less the smallest of all captures of a call, over the largest. A limit on a change that is "
    "smaller than the spread of its counter cannot be decided. Reads from memory are those of calls that read more "
    "than the cache holds."
)


def tell_counters() -> int:
    """Take the counters, and print a table; return 0 if ncu takes them here, else 1."""
    why = _why_never()
    runs: list[SavedRun] = []
    if not why:
        say(f"{COUNTER_PROCESSES} processes take the counters of a dozen calls by ncu (about {COUNTER_SECONDS} s)")
        for run in noise.take_runs("test_counted", COUNTER_PROCESSES, *COUNTER_OPTIONS):
            runs.append(run)
            found = [each for counts in counts_by_call(runs).values() for each in counts]
            if not any(each.captures for each in found):
                why = next((each.untaken or each.wrong for each in found), "counters are taken on a GPU, by ncu")
                break
    write("\n".join([f"counters (ncu): NOT taken: {printable(why)}"] if why else spread_lines(counts_by_call(runs))))
    return int(bool(why))


def _why_never() -> str:
    """Return why no counters can be taken, as far as that is known at once; empty where they may."""
    from pytest_gpubench.gpu.device import find_device, why_no_gpu
    from pytest_gpubench.structure.ncu import NeverCounted, find_ncu

    if find_device("auto").type == "cpu":
        return f"there is no GPU: {why_no_gpu()}"
    try:
        find_ncu()
    except NeverCounted as error:
        return str(error)
    return ""


def counts_by_call(runs: Iterable[SavedRun]) -> dict[str, list[Counts]]:
    """Return the counters of each call, of each process that timed it."""
    found: dict[str, list[Counts]] = {}
    for run in runs:
        for record in run.records:
            for item in record.measurements:
                if item.timing.counts is not None:
                    found.setdefault(item.timing.label, []).append(item.timing.counts)
    return found


def spread_lines(calls: dict[str, list[Counts]]) -> list[str]:
    """Return a table of counters, with the spread over all captures of each call, and what it means."""
    rows = {
        counter.name: {
            call: spread_of_captures([value for each in of for value in each.captures[counter.name]])
            for call, of in calls.items()
            if all(counter.name in each.captures and not says_nothing(each, counter.name) for each in of)
        }
        for counter in COUNTERS
    }
    columns = [
        Column("Counter", list(rows)),
        Column("Same in", [f"{list(of.values()).count(0.0)} of {len(of)} calls" for of in rows.values()], right=True),
        Column("Spread", [format_share(max(of.values(), default=0.0)) for of in rows.values()], right=True),
        Column("of", [max(of, key=lambda name: of[name], default="-") for of in rows.values()]),
        Column("", [each.help for each in COUNTERS]),
    ]
    wrong = [f"{name}: {each.wrong or each.untaken}" for name, of in calls.items() for each in of if not each.captures]
    return [*table(columns), "", textwrap.fill(SPREAD_LEGEND, noise.TEXT_WIDTH), *map(printable, dict.fromkeys(wrong))]
