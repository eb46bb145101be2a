"""Compare what kernels take with what ncu says, and tell what asking costs.

resources agree     the kernels of 36 calls; ncu must be on the PATH
resources cost      the seconds of it in a run of the example suite that keeps them of every call

ncu says 16 registers where a kernel has fewer, and rounds waves to two places.
"""

import csv
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.on_gpu.study import resources_cost
from tests.on_gpu.study.harness import code_of, parser_of, print_head, print_row

ROOT = Path(__file__).parents[3]
LIMITS = ("blocks", "registers", "shared_mem", "warps")
"""What ncu says limits the blocks of a multiprocessor, each by itself."""
TAKEN = ("registers_per_thread", "shared_mem_per_block_static", "shared_mem_per_block_dynamic", "grid_size")
METRICS = [*TAKEN, "waves_per_multiprocessor", *(f"occupancy_limit_{each}" for each in LIMITS)]
LEAST_REGISTERS = 16
Row = tuple[str, tuple[int, ...], float]
"""A kernel: its name, its registers, static and dynamic shared bytes, blocks, blocks per multiprocessor; its waves."""


def calls() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each call with its name."""
    import torch

    from tests.on_gpu.resource_kernels import COLUMNS, LIBRARY, ROWS, TRITON

    x = torch.randn(ROWS, COLUMNS, device="cuda")
    yield from ((name, make()) for name, make in TRITON.items())
    yield from ((name, partial(function, x)) for name, function in LIBRARY.items())


def ours() -> list[Row]:
    """Return what the driver says of every kernel of all calls."""
    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.replay.driver import Launch, find_driver
    from pytest_gpubench.replay.resources import capture_read
    from pytest_gpubench.timing.calls import make_call

    device, cuda = find_device("cuda"), find_driver()
    assert cuda is not None
    found: list[Row] = []
    for name, function in calls():
        call, launches = make_call(function, label=name), list[Launch]()
        for _ in range(3):
            call.prepare()()

        def note(graph: int, found: list[Launch] = launches) -> None:
            found.extend(cuda.launches(graph))

        capture_read(call, device, cuda, note)
        for launch in launches:
            taken, blocks = cuda.resources(launch), launch.grid[0] * launch.grid[1] * launch.grid[2]
            shared = taken.static_shared_bytes, taken.dynamic_shared_bytes
            numbers = max(LEAST_REGISTERS, taken.registers), *shared, blocks, taken.blocks_per_sm
            found.append((f"{name}: {cuda.symbol(launch.function)[:60]}", numbers, taken.waves))
    return found


def call_for_ncu() -> None:
    """Call each function once where ncu listens."""
    import torch

    for _, function in calls():
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        function()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def ask_ncu() -> list[Row]:
    """Return what ncu says of the same kernels."""
    command = ["ncu", "--profile-from-start", "off", "--cache-control", "none", "--clock-control", "none"]
    command += ["--csv", "--page", "raw", "--metrics", ",".join(f"launch__{each}" for each in METRICS)]
    command += [sys.executable, "-c", code_of(call_for_ncu)]
    return rows_of(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


def rows_of(lines: Sequence[str]) -> list[Row]:
    """Return the kernels of ncu's raw page as CSV: a row of names, one of units, and one for each kernel."""
    first = next(index for index, line in enumerate(lines) if line.startswith('"ID"'))
    _, *kernels = csv.DictReader(lines[first:])
    return [_row_of(kernel) for kernel in kernels]


def _row_of(kernel: dict[str, str]) -> Row:
    def number(metric: str) -> float:
        return float(kernel[f"launch__{metric}"].replace(",", ""))

    per_sm = min(number(f"occupancy_limit_{each}") for each in LIMITS)
    return kernel["Kernel Name"][:60], (*map(int, map(number, TAKEN)), int(per_sm)), number("waves_per_multiprocessor")


def differing(found: Iterable[Row], said: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Return the kernels of which ncu says otherwise."""
    pairs = zip(found, said, strict=True)
    return [(one, other) for one, other in pairs if one[1] != other[1] or abs(one[2] - other[2]) > 0.0051]


def agree() -> None:
    """Print the kernels of which ncu says otherwise."""
    said, found = ask_ncu(), ours()
    wrong = differing(found, said)
    print_head("kernel | registers, static and dynamic shared bytes, blocks, blocks per SM; waves | by ncu")
    for one, other in wrong:
        print_row(f"{one[0]} | {one[1]}; {one[2]:.2f} | {other[1]}; {other[2]:.2f}")
    print(f"{len(found) - len(wrong)} of {len(found)} kernels as ncu says")


def cost() -> None:
    """Run the example suite, whose last line says what asking cost."""
    command = [sys.executable, "-m", "pytest", "example_suite", "-q", "-p", "no:cacheprovider", "-m", "perf"]
    with tempfile.TemporaryDirectory() as folder:
        kept = f"--gpu-bench-json={Path(folder) / 'run.json'}"
        subprocess.run([*command, kept, "-p", resources_cost.__name__], cwd=ROOT, check=False)


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("resources", __doc__)
    studies = {"agree": agree, "cost": cost}
    parser.add_argument("what", choices=studies)
    studies[parser.parse_args(arguments).what]()
