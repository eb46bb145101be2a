"""The parts that studies share: measurements as a test takes them, the rival, fresh processes, tables, JSON lines."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pytest_gpubench import GpuBench
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.settings import Resolver, Settings
from pytest_gpubench.timing.base import Call, Rep, Timer, reps_of
from pytest_gpubench.timing.overhead import SETTLING_REPS
from pytest_gpubench.verdict.limits import Limits

T = TypeVar("T")
Row = dict[str, Any]
CACHE: Final = "cold"
COOL_S = 0.5
"""A pause after a rival, so that the throttling it caused costs the next measurement nothing."""


def study_test_with(limits: Limits, seed: int, device: Literal["cuda", "cpu"] = "cuda") -> CurrentTest:
    """Return a test that has these limits, and draws its orders from this seed."""
    settings = Settings(device=device, seed=seed, inconclusive="pass")
    return CurrentTest("study", settings, limits, phase="call")


def bench_of(test: CurrentTest) -> GpuBench:
    """Return the test's fixture, without pytest."""
    return GpuBench(lambda: test, Resolver(test.settings, frozenset()))


def do_bench_us(function: Callable[[], object]) -> float:
    import triton

    return 1e3 * float(triton.testing.do_bench(function, return_mode="median"))


def code_of(function: Callable[..., object], *arguments: object) -> str:
    """Return Python code that calls a module's function and prints what it returns, as JSON."""
    call = f"{function.__name__}(*json.loads({json.dumps(arguments)!r}))"
    return f"import json; from {function.__module__} import {function.__name__}; print(json.dumps({call}))"


def in_fresh_process(function: Callable[..., T], *arguments: object) -> T:
    """Call a module's function in a process of its own."""
    command = [sys.executable, "-c", code_of(function, *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout}\n{done.stderr}")
    found: T = json.loads(done.stdout.splitlines()[-1])
    return found


def print_head(columns: str) -> None:
    """Print the head of a Markdown table, whose columns are given as `call | us`."""
    print_row(columns)
    print_row(" | ".join("---" for _ in columns.split(" | ")))


def print_row(cells: str) -> None:
    """Print a row of a Markdown table, given as `softmax | 54.5`."""
    print(f"| {cells} |", flush=True)


def parser_of(name: str, text: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(name, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def items_parser(name: str, text: str | None, budget_s: float) -> argparse.ArgumentParser:
    parser = parser_of(name, text)
    parser.add_argument("--budget", type=float, default=budget_s, help="seconds after which no item is begun")
    parser.add_argument("--out", type=Path, default=Path(f"{name}.jsonl"), help="a file of JSON lines")
    parser.add_argument("--only", default="", help="a regular expression on names")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    return parser


def append(out: Path, row: Row) -> None:
    """Add a row to a file of JSON lines."""
    with out.open("a") as file:
        file.write(json.dumps(row, default=str) + "\n")


def take_reps(timer: Timer, call: Call, reps: int) -> Sequence[Rep]:
    """Return so many reps of a session, after a few that do not count."""
    return reps_of(timer.session(), call, SETTLING_REPS + reps)[SETTLING_REPS:]


def start_profiler() -> Any:
    """Start the profiler, so that its start is no measurement's cost; return the device."""
    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.timing.profiler import ProfilerTimer, take_reps_of_noop

    device = find_device("cuda")
    take_reps_of_noop(ProfilerTimer(device, CACHE))
    return device


def cool() -> None:
    time.sleep(COOL_S)
