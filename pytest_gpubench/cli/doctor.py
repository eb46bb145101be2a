"""`pytest-gpubench doctor`: what this machine can measure."""

import argparse
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpubench.cli.arguments import add_output
from pytest_gpubench.cli.counters import COUNTER_SECONDS, tell_counters
from pytest_gpubench.cli.noise import SECONDS, measure_noise
from pytest_gpubench.cli.output import write
from pytest_gpubench.errors import BadRequest, GpuBenchError
from pytest_gpubench.gpu.datasheets import datasheet_of
from pytest_gpubench.results.model import DeviceFacts
from pytest_gpubench.settings import LOCK_FOLDER_NAME, environment_name
from pytest_gpubench.units import count, format_share, printable

if TYPE_CHECKING:
    from pytest_gpubench.gpu.device import Device
    from pytest_gpubench.gpu.nvml import Nvml

ABOUT = "say what this machine can measure; exit 1 where that is nothing on a GPU"
EXAMPLES = "doctor\ndoctor --noise --json noise.json\ndoctor --counters"
LEAST_COPY_SHARE = 0.75
"""A copy that reaches a smaller part of what the datasheet states is called slow."""
WITHOUT_GPU = "tests measure on the CPU and show their limits; --gpu-bench-device=cpu enforces them"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="do not measure bandwidth")
    parser.add_argument(
        "--noise",
        action="store_true",
        help=f"only measure how small a slowdown is seen here, in fresh processes (about {SECONDS} s)",
    )
    parser.add_argument(
        "--counters",
        action="store_true",
        help=f"only take the counters of a dozen calls by ncu, and tell which repeat (about {COUNTER_SECONDS} s)",
    )
    add_output(parser, "--json", help="write what --noise finds as JSON")
    parser.add_argument(
        "--restore-clocks",
        action="store_true",
        help="only give back the clocks that runs with --gpu-bench-lock-clocks left locked when they died",
    )
    folder = environment_name("lock_folder")
    parser.add_argument(
        "--lock-folder",
        type=Path,
        metavar="FOLDER",
        default=os.environ.get(folder) or None,
        help=f"where those runs kept their locks (default: ${folder}, else {LOCK_FOLDER_NAME} of the temp folder)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the facts of this machine; 0 where it can measure, 1 where it cannot, or where clocks stay locked."""
    if arguments.restore_clocks:
        return _restore_clocks(arguments.lock_folder)
    if arguments.json and not arguments.noise:
        raise BadRequest("--json is for what --noise finds: give --noise too")
    _need_torch()
    if arguments.noise:
        measure_noise(arguments.json)
        return 0
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


def _need_torch() -> None:
    try:
        importlib.import_module("torch")
    except (ImportError, OSError) as error:
        why = printable(str(error))
        raise BadRequest(f"it needs torch, which cannot be imported ({why}): run it where your tests run") from None


def _restore_clocks(folder: Path | None) -> int:
    """Give back the clocks that dead runs left locked; return 0 if none stay locked, else 1."""
    from pytest_gpubench.gpu.clocks import restore_abandoned
    from pytest_gpubench.gpu.lock_file import lock_folder

    restored = restore_abandoned(lock_folder(folder))
    write("\n".join(printable(each.sentence) for each in restored) or "no clocks to give back")
    return 1 if any(each.left for each in restored) else 0


# readings


def state_lines(device: "Device") -> list[str]:
    """Return a GPU's state, a fact a line, without work on it and without a change to it."""
    from pytest_gpubench.gpu.nvml import reason_names

    nvml = device.nvml
    if nvml is None:
        return ["other processes, ECC, persistence: not known without NVML"]
    known = {
        "ECC": _ecc_words(nvml),
        "persistence mode": _persistence_words(nvml),
        "throttled now": ", ".join(reason_names(nvml.throttle_mask())) or None,
        "others on the GPU": others_words(nvml),
    }
    return [f"{name}: {words}" for name, words in known.items() if words is not None]


def _ecc_words(nvml: "Nvml") -> str | None:
    mode = nvml.ask("EccMode")
    if mode is None:
        return None
    if not mode[0]:
        return "off"
    kind = nvml.library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    errors = nvml.ask("TotalEccErrors", kind, nvml.library.NVML_VOLATILE_ECC)
    return "on" if errors is None else f"on, {count(int(errors), 'uncorrected error')} since the driver was loaded"


def _persistence_words(nvml: "Nvml") -> str | None:
    mode = nvml.ask("PersistenceMode")
    if mode is None:
        return None
    return "on" if mode else "off: every run begins with a cold GPU and a second of start (nvidia-smi -pm 1)"


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
    from pytest_gpubench.timing.bandwidth import copy_bandwidth
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
