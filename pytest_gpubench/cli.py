"""The command `pytest-gpubench`."""

import argparse
from collections.abc import Sequence

from pytest_gpubench import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="pytest-gpubench", description="Companion of the pytest plugin gpu_bench.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="say what this machine can measure")
    doctor.set_defaults(run=_doctor)
    options = commands.add_parser("options", help="print the table of all options as Markdown")
    options.set_defaults(run=_options)
    chosen = parser.parse_args(arguments)
    return int(chosen.run())


def _doctor() -> int:
    from pytest_gpubench.errors import GpuBenchError
    from pytest_gpubench.gpu.device import find_device, why_no_gpu
    from pytest_gpubench.report.terminal import device_lines

    device = find_device("auto")
    print("\n".join(device_lines(device.facts)))
    if device.type == "cpu":
        print(f"GPU: none, {why_no_gpu()}")
        return 1
    from pytest_gpubench.timing.profiler import ProfilerTimer, self_test

    others = device.nvml.other_processes() if device.nvml else ()
    print(f"other processes on the GPU: {', '.join(map(str, others)) or 'none seen'}")
    try:
        print(f"profiler: {self_test(ProfilerTimer(device, 'cold'))}")
    except GpuBenchError as error:
        print(f"profiler: NOT usable: {error}")
        return 1
    return 0


def _options() -> int:
    from pytest_gpubench.options import markdown_table

    print(markdown_table())
    return 0
