"""Measure published kernel changes again.

published FOLDER [NAME ...] [--all-shapes] [--budget-s SECONDS] [--check]

FOLDER holds what is compared, laid out as in the projects' repositories: `<folder of the change>/before` and `/after`,
each with the package of that commit (`liger_kernel`, `fast_llm`, `flash_attn`; `fused_softmax.py` for the tutorial).
Only the modules that are measured need to be there. `--check` compares outputs of tiny inputs on the CPU instead of
timing, with TRITON_INTERPRET=1 in the environment.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import triton

from pytest_gpubench import Comparison, bench
from pytest_gpubench.stats.summary import Interval
from tests.on_gpu.study.harness import parser_of, print_head, print_row, start_profiler
from tests.on_gpu.study.published_changes import CHANGES, Case, Change, Pair
from tests.on_gpu.study.published_sources import Side

ALLOWED = 0.02
"""How far a ratio may be from the one to be reproduced."""


@dataclass(frozen=True)
class Found:
    """The figures of a case, in the table's convention."""

    ratio: float
    interval: Interval | None
    quads: int
    rival: float
    before_us: float
    after_us: float
    took_s: float


def rival_call(function: Callable[..., Any], pair: Pair) -> tuple[Callable[[], object], list[torch.Tensor]]:
    """Return what do_bench times, and whose gradients it drops; it has no untimed setup, so that is timed too."""
    if pair.backward == "forward":
        return (lambda: function(*(pair.setup() if pair.setup else pair.args))), []
    upstream = torch.ones_like(function(*pair.args))
    leaves = [arg for arg in pair.args if isinstance(arg, torch.Tensor)]
    return lambda: function(*pair.args).backward(upstream), leaves


def time_by_rival(function: Callable[..., Any], pair: Pair) -> float:
    """Return do_bench's median in milliseconds."""
    call, leaves = rival_call(function, pair)
    return float(triton.testing.do_bench(call, grad_to_none=leaves or None, return_mode="median"))


def compare(pair: Pair, **options: Any) -> Comparison:
    """Compare as a test would."""
    return bench.compare(
        {"after": pair.candidate},
        pair.reference,
        pair.args,
        setup=pair.setup,
        backward=pair.backward,
        rtol=pair.rtol,
        atol=pair.atol,
        **options,
    )


def measure(pair: Pair, over_torch: bool, budget_s: float | None) -> Found:
    """Compare as a test would, and by do_bench."""
    began_s = time.perf_counter()
    comparison = compare(pair, device="cuda", budget_s=budget_s)
    took_s = time.perf_counter() - began_s
    speedup = comparison["after"].speedup
    assert speedup is not None
    rival = time_by_rival(pair.reference, pair) / time_by_rival(pair.candidate, pair)
    ratio, interval = speedup.ratio, speedup.interval
    if over_torch:
        ratio, rival = 1 / ratio, 1 / rival
        interval = interval and Interval(low=1 / interval.high, high=1 / interval.low)
    before_us, after_us = comparison.reference.median_us, comparison.timing.median_us
    return Found(ratio, interval, speedup.quads, rival, before_us, after_us, took_s)


def check(pair: Pair) -> str:
    """Compare outputs on the CPU, in Triton's interpreter; return how they differ."""
    return ", ".join(compare(pair, device="cpu", reps=20)["after"].differences)


def row_of(change: Change, case: Case, found: Found) -> str:
    off = found.ratio / change.table - 1
    interval = f"[{found.interval.low:.4f}, {found.interval.high:.4f}]" if found.interval else "[too few quads]"
    return (
        f"{change.name} | {case} | {found.ratio:.4f} {interval} | {found.quads} | {change.table:g} | {off:+.2%} "
        f"{'ok' if abs(off) <= ALLOWED else 'OFF'} | {found.rival:.3f} | {change.rival:g} | "
        f"{found.before_us:.2f} | {found.after_us:.2f} | {found.took_s:.2f}"
    )


def sides_of(folder: Path, change: Change) -> tuple[Side, Side]:
    """Return both commits; raise FileNotFoundError where nothing is laid out for this change."""
    root = (folder / change.folder).resolve()
    if not (root / "after").is_dir():
        raise FileNotFoundError(f"{root / 'after'} is not there: it must hold the package of that commit")
    return Side(root / "before"), Side(root / "after")


def run(folder: Path, changes: Sequence[Change], all_shapes: bool, budget_s: float | None) -> None:
    """Print a line for each case; a case that fails says so in its line."""
    device = start_profiler()
    print_head("change | on | ratio | quads | table | off by | do_bench | the table's | before us | after us | s")
    offs: dict[str, list[float]] = {change.name: [] for change in changes}
    for change in changes:
        for case in change.cases if all_shapes else change.cases[:1]:
            try:
                found = measure_case(folder, change, case, device.torch_device, budget_s)
                offs[change.name].append(abs(found.ratio / change.table - 1))
                print_row(row_of(change, case, found))
            except Exception as error:
                print_row(failed(change, case, error))
            gc.collect()
            torch.cuda.empty_cache()
    print()
    for change in changes:
        print(f"- {change.name}: {change.published}; shapes from {change.shapes_from}")
    within = sum(min(found, default=1.0) <= ALLOWED for found in offs.values())
    print(f"\n{within} of {len(changes)} changes within {ALLOWED:.0%} of the table, on the best of their shapes")
    known = [min(found) for found in offs.values() if found]
    if known:
        print(f"median distance {statistics.median(known):.2%}")


def measure_case(folder: Path, change: Change, case: Case, device: torch.device, budget_s: float | None) -> Found:
    """Measure a case; its tensors are gone when this returns."""
    return measure(change.make(*sides_of(folder, change), case, device), change.over_torch, budget_s)


def run_check(folder: Path, changes: Sequence[Change]) -> None:
    """Print how the outputs of tiny inputs differ."""
    for change in changes:
        for part in dict.fromkeys(case.part for case in change.cases):
            tiny = replace(change.tiny, part=part)
            try:
                pair = change.make(*sides_of(folder, change), tiny, torch.device("cpu"))
                print_row(f"{change.name} | {tiny} | {check(pair)}")
            except Exception as error:
                print_row(failed(change, tiny, error))


def failed(change: Change, case: Case, error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{change.name} | {case} | {type(error).__name__}: {text:.300}"


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("published", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(c.name for c in CHANGES)}")
    parser.add_argument("--all-shapes", action="store_true", help="all shapes that the claim may have been made on")
    parser.add_argument("--budget-s", type=float, help="seconds of a comparison; unset, as in a test without a limit")
    parser.add_argument("--check", action="store_true", help="compare outputs of tiny inputs on the CPU")
    chosen = parser.parse_intermixed_args(arguments)
    unknown = set(chosen.names) - {change.name for change in CHANGES}
    if unknown:
        parser.error(f"there is no change {', '.join(sorted(unknown))}")
    changes = [change for change in CHANGES if not chosen.names or change.name in chosen.names]
    if chosen.check:
        run_check(chosen.folder, changes)
    else:
        run(chosen.folder, changes, chosen.all_shapes, chosen.budget_s)
