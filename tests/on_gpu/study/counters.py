"""Take counters by ncu, and judge by them.

counters captures     25 calls in several processes, each judged against every other one as a saved run
counters times        gates on times beside processes that keep the GPU busy in several ways
counters doctor       `pytest-gpubench doctor --counters`
counters gate         a gate of pytest's: the same code, 1 % more rows, limits, reasons, beside a busy process
counters ab           `ab` by instructions
counters bisect       `bisect` over 64 commits

Of captures, no process may fail beside another. In one more process each call has 1 % more rows, and has to fail, and
--busy of them take their captures beside a process that keeps the GPU busy. --earlier judges them together with those
of an earlier start of the machine, which --json wrote; --several takes the second group of counters too.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pytest_gpubench import Measurement, Timing
from pytest_gpubench.counted import counts_of, groups_of
from pytest_gpubench.plugin.counting import ncu_command
from pytest_gpubench.results.model import Counts, Outcome
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.structure.ncu import find_ncu, read_captures
from pytest_gpubench.verdict.counters import compare_counters
from pytest_gpubench.verdict.limits.counters import says_nothing, spread_of_captures
from pytest_gpubench.verdict.regression import Change
from tests.on_gpu.study import counted_runs, timed_runs
from tests.on_gpu.study.harness import code_of, parser_of, print_head, print_row
from tests.on_gpu.study.neighbour import NEIGHBOURS, neighbour

ROWS, COLUMNS = 8192, 8192
MORE = 1.01
WHOLE_RUNS = {
    "doctor": counted_runs.doctor,
    "gate": counted_runs.gate,
    "ab": counted_runs.compare,
}
GATES = ("instructions:0.1%", "dram_read_bytes:1%", "dram_read_bytes:0.5%")
Process = Mapping[str, Counts]
"""The counters of each call in one process."""


class Taken(NamedTuple):
    """The counters of processes that run the same code, of those with more rows, and of those beside a busy one."""

    same: list[Process]
    more: list[Process]
    busy: list[Process]

    def single_captures(self) -> list[Process]:
        """Return each capture of the same code as if a process had taken it alone."""
        return [
            {call: msgspec.structs.replace(counts, captures=_nth(counts, place)) for call, counts in process.items()}
            for process in self.same
            for place in range(min(len(each) for counts in process.values() for each in counts.captures.values()))
        ]


def _nth(counts: Counts, place: int) -> dict[str, tuple[float, ...]]:
    return {name: (values[place],) for name, values in counts.captures.items()}


def calls(rows: float) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield 25 calls with their names, on so many times as many rows."""
    import torch

    from tests.on_gpu.resource_kernels import softmax_kernel
    from tests.on_gpu.study.workloads import normal, rms_norm

    functional = torch.nn.functional
    number = round(ROWS * rows)
    x, half, row = normal(number, COLUMNS), normal(number // 2, COLUMNS // 2), normal(COLUMNS)
    out = torch.empty_like(x)
    a, b = normal(number // 2, 4096, dtype=torch.bfloat16), normal(4096, 4096, dtype=torch.bfloat16)
    heads = normal(round(100 * rows), 16, 512, 64, dtype=torch.bfloat16)
    images, weight = normal(round(100 * rows), 64, 64, 64), normal(64, 64, 3, 3)
    generator = torch.Generator("cuda").manual_seed(1)
    index = torch.randint(0, ROWS, (number,), device="cuda", generator=generator)
    yield "add", lambda: torch.add(x, x, out=out)
    yield "add small", lambda: torch.add(x[: number // 16, :64], 1)
    yield "multiply by a row", lambda: torch.mul(x, row, out=out)
    yield "softmax", lambda: torch.softmax(x, -1)
    yield "log softmax", lambda: torch.log_softmax(x, -1)
    yield "layer norm", lambda: functional.layer_norm(x, (COLUMNS,))
    yield "rms norm fused", lambda: functional.rms_norm(x, (COLUMNS,), row, 1e-6)
    yield "rms norm eager", lambda: rms_norm(x)
    yield "rms norm, silu", lambda: functional.silu(rms_norm(x))
    yield "gelu", lambda: functional.gelu(x)
    yield "sum of rows", lambda: x.sum(-1)
    yield "sum of columns", lambda: x.sum(0)
    yield "arg max", lambda: x.argmax(-1)
    yield "cumsum", lambda: x.cumsum(-1)
    yield "transpose", lambda: x.t().contiguous()
    yield "cast", lambda: x.bfloat16()
    yield "embedding", lambda: functional.embedding(index, x)
    yield "top 32", lambda: torch.topk(half, 32)
    yield "sort", lambda: torch.sort(half, -1)
    yield "matmul bf16", lambda: a @ b
    yield "matmul fp32", lambda: half @ half[:4096, :4096]
    yield "attention", lambda: functional.scaled_dot_product_attention(heads, heads, heads)
    yield "convolution", lambda: functional.conv2d(images, weight)
    yield "Triton softmax", lambda: softmax_kernel[(number,)](x, out, COLUMNS, BLOCK=COLUMNS, num_warps=8)
    yield "Triton softmax spills", lambda: softmax_kernel[(number,)](x, out, COLUMNS, BLOCK=COLUMNS, num_warps=1)


def call_for_ncu(rows: float, notes: str) -> int | None:
    """Take captures of each call, noting its name; return the size of the cache."""
    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.structure.ncu import take_captures
    from pytest_gpubench.timing.calls import make_call

    device = find_device("cuda")
    with open(notes, "w") as file:
        for name, function in calls(rows):
            take_captures(make_call(function, label=name), device, "cold", lambda name=name: print(name, file=file))  # type: ignore[misc]
    return device.facts.cache_bytes


def take(group: Sequence[str], rows: float = 1.0) -> Process:
    """Return the counters of each call from a process under ncu."""
    with tempfile.TemporaryDirectory() as name:
        table, notes = Path(name) / "table.csv", Path(name) / "notes"
        command = [
            *ncu_command(find_ncu(), group, table),
            sys.executable,
            "-c",
            code_of(call_for_ncu, rows, str(notes)),
        ]
        began_s = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{done.stdout}\n{done.stderr}\n{table.read_text()[-2000:] if table.exists() else ''}")
        captures, names = read_captures(table.read_text()), notes.read_text().splitlines()
        print(f"{len(group)} counters: {time.perf_counter() - began_s:.1f} s, {len(captures)} captures", flush=True)
    taken: dict[str, list[Any]] = {}
    for each, capture in zip(names, captures, strict=True):
        taken.setdefault(each, []).append(capture)
    cache_bytes = json.loads(done.stdout.splitlines()[-1])
    found = {each: counts_of(of, group, ()) for each, of in taken.items()}
    return {each: msgspec.structs.replace(counts, cache_bytes=cache_bytes) for each, counts in found.items()}


def item_of(name: str, counts: Counts) -> Measurement:
    timing = Timing(label=name, timer="profiler", cache="cold", device="", counts=counts)
    return Measurement(timing=timing)


def outcome(gate: str, name: str, old: Process, new: Process) -> Change:
    """Return the change of a call from one process to another; no second one has to confirm a FAIL."""
    found = Change("", name, Outcome.NOT_JUDGED, "")
    olds, news = ([item_of(name, each[name])] for each in (old, new))
    return compare_counters(found, parse_tolerance(gate), 0.001, "the saved run", olds, news, least=1)


def print_spreads(processes: Sequence[Process]) -> None:
    for name in next(iter(processes[0].values())).captures:
        spreads = {call: spread_of_captures(list(_all(processes, call, name))) for call in processes[0]}
        worst = sorted(spreads, key=lambda call: -spreads[call])[:3]
        told = ", ".join(f"{call} {100 * spreads[call]:.4f} %" for call in worst if spreads[call])
        small = sum(bool(says_nothing(each, name)) for each in processes[0].values())
        ordered = sorted(spreads.values())
        print_row(
            f"{name} | {ordered.count(0.0)} of {len(ordered)} | {100 * ordered[len(ordered) // 2]:.4f} % | "
            f"{told or '-'} | {small or '-'}"
        )


def _all(processes: Iterable[Process], call: str, name: str) -> Iterator[float]:
    for each in processes:
        yield from each[call].captures[name]


def print_gate(gate: str, taken: Taken) -> None:
    """Print the verdicts of a gate on all ordered pairs, before a second process confirms a FAIL."""
    pairs = {
        "the same code, two processes": list(permutations(taken.same, 2)),
        "the same code, two captures": list(permutations(taken.single_captures(), 2)),
        "the same code beside a busy process": list(product(taken.same, taken.busy)),
        "1 % more rows": list(product(taken.same, taken.more)),
    }
    for title, of in pairs.items():
        judged = [outcome(gate, name, old, new) for old, new in of for name in old]
        print_row(f"{gate} | {title} | {_counted(judged)}")
        wanted = (Outcome.FAIL,) if "more" in title else (Outcome.PASS, Outcome.NOT_JUDGED)
        for sentence in dict.fromkeys(each.sentence for each in judged if each.outcome not in wanted):
            print(f"  {sentence}")


def _counted(changes: Sequence[Change]) -> str:
    outcomes = [each.outcome for each in changes]
    return ", ".join(f"{outcomes.count(each)} {each.value}" for each in Outcome if each in outcomes)


def take_all(quiet: int, busy: int, more: int, json_path: Path | None) -> Taken:
    """Return the counters of each call from so many processes; more: of how many each call has more rows.

    Those taken so far are written after each process.
    """
    (group,) = groups_of(["instructions"])
    taken = Taken([], [], [])

    def add(processes: list[Process], number: int, rows: float = 1.0) -> None:
        for _ in range(number):
            processes.append(take(group, rows))
            if json_path:
                json_path.write_bytes(msgspec.json.encode(taken))

    add(taken.same, quiet)
    add(taken.more, more, MORE)
    with neighbour() if busy else nullcontext():
        add(taken.busy, busy)
    return taken


def captures(processes: int, busy: int, several: bool, json_path: Path | None, earlier: Sequence[Path]) -> None:
    before = [msgspec.json.decode(path.read_bytes(), type=Taken) for path in earlier]
    now = take_all(processes - busy, busy, not any(each.more for each in before), json_path)
    taken = Taken(*([process for each in (*before, now) for process in each[part]] for part in range(3)))
    head = "counter | the same in all captures of | median spread | largest | reads less than the cache"
    print_head(head)
    print_spreads(taken.same)
    print_head("gate | judged | verdicts")
    for gate in GATES:
        print_gate(gate, taken)
    if several:
        print_head(head)
        print_spreads([take(groups_of(["atomics"])[0])])


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("counters", __doc__)
    parser.add_argument("what", choices=("captures", *WHOLE_RUNS, "times", "bisect"))
    parser.add_argument("--processes", type=int, default=4, help="processes of the same code")
    parser.add_argument("--busy", type=int, default=1, help="how many of them run beside a busy one")
    parser.add_argument("--json", type=Path, help="write the counts that are taken")
    parser.add_argument("--earlier", type=Path, nargs="+", default=[], help="counts of earlier runs, as --json wrote")
    parser.add_argument("--several", action="store_true", help="take what needs several passes, too")
    parser.add_argument("--by", nargs="+", choices=("instructions", "time"), default=["instructions", "time"])
    parser.add_argument("--beside", nargs="+", choices=NEIGHBOURS, default=list(NEIGHBOURS), help="of times")
    chosen = parser.parse_args(arguments)
    if chosen.what == "captures":
        captures(chosen.processes, chosen.busy, chosen.several, chosen.json, chosen.earlier)
    elif chosen.what == "times":
        timed_runs.gate(chosen.beside)
    elif chosen.what == "bisect":
        counted_runs.search(chosen.by)
    else:
        WHOLE_RUNS[chosen.what]()
