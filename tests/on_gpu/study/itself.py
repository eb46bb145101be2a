"""Compare calls with themselves, outputs and all: how often is a verdict wrong, and what does one cost?

itself [--most N] [--budget SECONDS] [--out FILE] [--without KEYWORD] [--only REGEX] [--seed N]

Each call is judged at min_speedup=0.99, in turn with the others. --without: a keyword of compare, as vary, that is then
False.
"""

import argparse
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import torch

from pytest_gpubench import GpuBenchError, LimitBroken, WrongResult
from pytest_gpubench.verdict.limits import Limits
from tests.on_gpu.study.harness import Row, append, bench_of, items_parser, print_head, print_row, study_test_with
from tests.on_gpu.study.workloads import ITSELF, Kind

LIMIT = 0.99


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


def begin(chosen: argparse.Namespace) -> dict[str, Kind]:
    """Empty the file of JSON lines; return the calls that are chosen, made."""
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("")
    device = torch.device(chosen.device)
    made = {name: make(device) for name, make in ITSELF.items() if re.search(chosen.only, name)}
    return made or sys.exit(f"--only={chosen.only} matches none of {', '.join(ITSELF)}")


def main(arguments: Sequence[str]) -> None:
    parser = items_parser("itself", __doc__, budget_s=240)
    parser.add_argument("--most", type=int, default=2000, help="comparisons")
    parser.add_argument("--without", action="append", default=[], help="a keyword of compare that is False")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    made, ends_s = begin(chosen), time.monotonic() + chosen.budget
    for _, _, keywords in made.values():
        keywords.update(dict.fromkeys(chosen.without, False))
    first = take_turns(made, len(made), ends_s, 0)  # what starts and compiles
    print(f"first: {sum(row['seconds'] for row in first):.1f} s")
    rows = take_turns(made, chosen.most, ends_s, chosen.seed, lambda row: append(chosen.out, row))
    if rows:
        summarise(rows)
