"""Does a candidate pass that leaves out a part of its work once it is warm, in memory with a history?

half [--budget SECONDS] [--out FILE] [--most N] [--seed N] [--device cuda]

Before each comparison blocks of random sizes are allocated and freed, some of which hold the right output. One
comparison in ten is of an honest candidate, which has to pass.
"""

import random
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_gpubench import GpuBenchError, WrongResult, bench
from tests.on_gpu.doubling import double_into, torch_double
from tests.on_gpu.study.items import Row, append, items_parser

SIZES = (2**14, 2**16 + 96, 2**18, 2**20, 3 * 2**20 + 1024, 2**22)
BLOCK = 1024
PARTS: dict[str, Callable[[int], tuple[int, int]]] = {
    "all": lambda count: (0, count),
    "the first half": lambda count: (0, count // 2),
    "the second half": lambda count: (count // 2, count),
    "an eighth": lambda count: (0, count // 8),
    "all but the last block": lambda count: (0, count - BLOCK),
    "all but the first block": lambda count: (BLOCK, count),
}
RIGHT_CALLS = (1, 2, 3, 5, 10, 20)
MOST_HELD = 60
HOLD_BYTES = 2**31
"""The most that the history holds at a time."""


@dataclass
class History:
    """Allocations and frees at random, in torch's caching allocator."""

    device: torch.device
    random: random.Random
    held: list[torch.Tensor] = field(default_factory=list)

    def go_on(self, right: torch.Tensor) -> str:
        """Allocate and free blocks, of which some hold `right`; say what was done."""
        steps = self.random.choice((0, 3, 20, 60))
        kind = self.random.choice(("right outputs", "random sizes", "both", "views kept"))
        for _ in range(steps):
            self.held.append(self._block(right, kind))
            while len(self.held) > MOST_HELD or sum(each.nbytes for each in self.held) > HOLD_BYTES:
                self._free_one()
            if self.random.random() < 0.5:
                self._free_one()
        if self.random.random() < 0.5:  # the blocks that the candidate gets next may hold the right output
            for _ in range(self.random.choice((1, 4, 30))):
                right.clone()
            several = [right.clone() for _ in range(self.random.choice((2, 8, 70)))]
            self.random.shuffle(several)
        if self.device.type == "cuda" and self.random.random() < 0.05:
            torch.cuda.empty_cache()
        return f"{steps} steps, {kind}"

    def _block(self, right: torch.Tensor, kind: str) -> torch.Tensor:
        if kind == "right outputs" or (kind == "both" and self.random.random() < 0.5):
            return right.clone()
        if kind == "views kept":  # a block is split, and its middle is kept
            return right.repeat(2)[right.numel() // 2 : -7].clone()
        size = int(2 ** self.random.uniform(6, 22 if self.device.type == "cuda" else 16))
        return torch.full((size,), self.random.random(), device=self.device)

    def _free_one(self) -> None:
        if self.held:
            self.held.pop(self.random.randrange(len(self.held)))


def double_part(out: torch.Tensor, x: torch.Tensor, begin: int, end: int) -> None:
    """Write 2 * x to a part of the output; by Triton on a GPU."""
    if x.device.type == "cuda":
        double_into(out[begin:end], x[begin:end])
    else:
        torch.mul(x[begin:end], 2, out=out[begin:end])


def compare_once(x: torch.Tensor, part: str, right: int) -> Row:
    """Compare a candidate that does a part of its work after `right` calls; return what was said of it."""
    calls: list[int] = []

    def tiring(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        out = torch.empty_like(x)
        double_part(out, x, *PARTS["all" if len(calls) <= right else part](x.numel()))
        return out

    found: Row = {"outcome": "pass"}
    try:
        comparison = bench.compare({"tiring": tiring}, torch_double, (x,), device=x.device.type, reps=20)
        found |= {"differences": comparison["tiring"].differences, "us": comparison.timing.median_us}
    except (GpuBenchError, WrongResult) as error:
        found = {"outcome": type(error).__name__, "sentence": " ".join(str(error).split())[:200]}
    return found | {"calls": len(calls)}


def summarise(rows: Sequence[Row]) -> None:
    tired = [row for row in rows if row["part"] != "all" and row["calls"] > row["right"]]
    honest = [row for row in rows if row["part"] == "all"]
    passed = [row for row in tired if row["outcome"] == "pass"]
    print(
        f"\n{len(passed)} of {len(tired)} with a part of the work passed: {dict(Counter(r['outcome'] for r in tired))}"
    )
    for part in PARTS:
        of_part = [row for row in tired if row["part"] == part]
        if of_part:
            print(f"  {part}: {sum(row['outcome'] == 'pass' for row in of_part)} of {len(of_part)}")
    for row in passed[:20]:
        print(f"- passed: {row}")
    lost = [row for row in honest if row["outcome"] != "pass"]
    print(f"honest: {len(honest) - len(lost)} of {len(honest)} passed")
    for row in lost[:10]:
        print(f"- lost: {row}")
    odd = [row for row in tired if row["outcome"] not in ("pass", "WrongResult", "InvalidResult")]
    for row in odd[:10]:
        print(f"- otherwise: {row['outcome']}: {row['part']}: {row['sentence']}")
    if rows:
        print(f"median {statistics.median(row['seconds'] for row in rows):.3f} s")


def main(arguments: Sequence[str]) -> None:
    parser = items_parser("half", __doc__, budget_s=150)
    parser.add_argument("--most", type=int, default=560, help="comparisons")
    parser.add_argument("--seed", type=int, default=0)
    chosen: Any = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    device, draw = torch.device(chosen.device), random.Random(chosen.seed)
    sizes = SIZES if device.type == "cuda" else SIZES[:2]
    inputs = [torch.randn(size, device=device) for size in sizes]
    history = History(device, draw)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("")
    ends_s, rows = time.monotonic() + chosen.budget, list[Row]()
    while len(rows) < chosen.most and time.monotonic() < ends_s:
        x, right = draw.choice(inputs), draw.choice(RIGHT_CALLS)
        part = "all" if len(rows) % 10 == 9 else draw.choice([name for name in PARTS if name != "all"])
        began_s = time.perf_counter()
        row = {"size": x.numel(), "part": part, "right": right, "history": history.go_on(torch_double(x))}
        row |= compare_once(x, part, right)
        rows.append(row | {"seconds": round(time.perf_counter() - began_s, 4)})
        append(chosen.out, rows[-1])
    summarise(rows)
