"""Compare calls with themselves, outputs and all: how often is a verdict wrong, and what does one cost?

itself [--most N] [--budget SECONDS] [--out FILE] [--without KEYWORD] [--only REGEX] [--seed N]

Each call is judged at min_speedup=0.99, in turn with the others. --without: a keyword of compare, as vary, that is then
False.
"""

import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import torch
import torch.nn.functional as F

from pytest_gpubench import GpuBenchError, LimitBroken, WrongResult
from pytest_gpubench.verdict.limits import Limits
from tests.on_gpu.doubling import double
from tests.on_gpu.study.harness import Row, append, bench_of, items_parser, print_head, print_row, study_test_with
from tests.on_gpu.study.margins_planted import values

LIMIT = 0.99
BF16 = torch.bfloat16
Kind = tuple[Callable[..., object], tuple[torch.Tensor, ...], dict[str, Any]]
"""A function, its arguments and keywords of compare."""


def kinds(device: torch.device) -> dict[str, Callable[[], Kind]]:
    """Return calls of 2 to 230 us on an H200, which allocate their outputs."""

    def of(
        function: Callable[..., object], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, **more: Any
    ) -> Callable[[], Kind]:
        scale = 1 if device.type == "cuda" else 16

        def make() -> Kind:
            sizes = [tuple(max(each // scale, 1) for each in shape) for shape in shapes]
            tensors = [values(device, *shape, dtype=dtype, seed=seed) for seed, shape in enumerate(sizes)]
            return function, tuple(each.requires_grad_("backward" in more) for each in tensors), dict(more)

        return make

    return {
        "add 2 x 1 MiB": of(torch.add, (2**18,), (2**18,)),
        "multiply 1024x1024 by a column": of(torch.mul, (1024, 1024), (1024, 1)),
        "matmul 1024^3 bf16": of(torch.matmul, (1024, 1024), (1024, 1024), dtype=BF16),
        "double 4 MiB, Triton": of(double if device.type == "cuda" else torch.neg, (2**20,)),
        "add 2 x 64 MiB": of(torch.add, (2**24,), (2**24,)),
        "rms_norm 4096x4096": of(lambda x, w: F.rms_norm(x, w.shape, w), (4096, 4096), (4096,)),
        "softmax 4096x4096": of(lambda x: torch.softmax(x, -1), (4096, 4096)),
        "row sum 8192x8192": of(lambda x: x.sum(-1), (8192, 8192)),
        "layer_norm backward 4096x4096": of(lambda x: F.layer_norm(x, x.shape[1:]), (4096, 4096), backward="backward"),
        "convolution 32x64x56x56 bf16": of(
            lambda x, w: F.conv2d(x, w, padding=1), (32, 64, 56, 56), (64, 64, 3, 3), dtype=BF16
        ),
        "gelu written out 4096x2048": of(
            lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x))), (4096, 2048)
        ),
        "matmul 4096^3 bf16": of(torch.matmul, (4096, 4096), (4096, 4096), dtype=BF16),
    }


def verdict_on(
    candidate: Callable[..., object],
    reference: Callable[..., object],
    args: Sequence[torch.Tensor],
    seed: int,
    device: Literal["cuda", "cpu"] = "cuda",
    **more: Any,
) -> Row:
    """Compare as the fixture does; return the verdict and what it cost."""
    test = study_test_with(Limits(min_speedup=LIMIT), seed, device)
    began_s, row = time.perf_counter(), Row()
    try:
        with suppress(LimitBroken):
            bench_of(test).compare({"candidate": candidate}, reference, args, **more)
    except (GpuBenchError, WrongResult) as error:
        row = {"refused": type(error).__name__, "sentence": " ".join(str(error).split())[:300]}
    row["seconds"] = round(time.perf_counter() - began_s, 4)
    found = test.measurements[-1] if test.measurements else None
    verdicts = found.verdicts if found else ()
    row["outcome"] = "refused" if "refused" in row else verdicts[0].outcome.value if verdicts else "no verdict"
    if found is not None and found.speedup is not None:
        row |= {"ratio": found.speedup.ratio, "quads": found.speedup.quads, "us": found.timing.median_us}
    return row


def compare_with_itself(kind: Kind, seed: int) -> Row:
    function, args, more = kind
    on: Literal["cuda", "cpu"] = "cuda" if args[0].device.type == "cuda" else "cpu"
    return verdict_on(lambda *args: function(*args), lambda *args: function(*args), args, seed, on, **more)


def take_turns(
    made: dict[str, Kind], most: int, ends_s: float, seed: int, note: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Compare in turn, in a new order each time, until there are enough or the time is over."""
    rows, draw = list[Row](), random.Random(seed)
    while len(rows) < most and time.monotonic() < ends_s:
        for name in draw.sample(list(made), len(made)):
            if len(rows) >= most or time.monotonic() > ends_s:
                break
            rows.append({"name": name, **compare_with_itself(made[name], seed=1000 * seed + len(rows))})
            note(rows[-1])
    return rows


HEAD = "call | us | verdicts | pass | fail | inconclusive | other | quads | median s | ratio (sd)"


def print_verdicts(name: str, rows: Sequence[Row], more: str = "") -> None:
    """Print the row of one call in a table of verdicts."""
    counts = Counter(row["outcome"] for row in rows)
    other = len(rows) - sum(counts[each] for each in ("pass", "fail", "inconclusive"))
    ratios = [row["ratio"] for row in rows if "ratio" in row] or [float("nan")]
    print_row(
        f"{name} | {statistics.median([row['us'] for row in rows if 'us' in row] or [0.0]):.1f} | {len(rows)} | "
        f"{counts['pass']} | {counts['fail']} | {counts['inconclusive']} | {other} | "
        f"{statistics.median([row['quads'] for row in rows if 'quads' in row] or [0]):.0f} | "
        f"{statistics.median(row['seconds'] for row in rows):.3f} | "
        f"{statistics.median(ratios):.4f} ({statistics.pstdev(ratios):.2%}){more}"
    )


def summarise(rows: Sequence[Row]) -> None:
    print_head(HEAD)
    for name in dict.fromkeys(row["name"] for row in rows):
        print_verdicts(name, [row for row in rows if row["name"] == name])
    counts = Counter(row["outcome"] for row in rows)
    print(f"\n{len(rows)} verdicts: {dict(counts)}; median {statistics.median(row['seconds'] for row in rows):.4f} s")
    for row in [row for row in rows if row["outcome"] not in ("pass", "inconclusive")][:12]:
        print(f"- {row}")


def main(arguments: Sequence[str]) -> None:
    parser = items_parser("itself", __doc__, budget_s=240)
    parser.add_argument("--most", type=int, default=2000, help="comparisons")
    parser.add_argument("--without", action="append", default=[], help="a keyword of compare that is False")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("")
    ends_s = time.monotonic() + chosen.budget
    device = torch.device(chosen.device)
    made = {name: make() for name, make in kinds(device).items() if re.search(chosen.only, name)}
    for _, _, keywords in made.values():
        keywords.update(dict.fromkeys(chosen.without, False))
    first = take_turns(made, len(made), ends_s, 0)  # what starts and compiles
    print(f"first: {sum(row['seconds'] for row in first):.1f} s")
    rows = take_turns(made, chosen.most, ends_s, chosen.seed, lambda row: append(chosen.out, row))
    if rows:
        summarise(rows)
