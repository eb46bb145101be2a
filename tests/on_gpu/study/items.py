"""Items of a study, each a line of JSON, taken in a process that may die: another one goes on after it."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.on_gpu.study.harness import parser_of

Row = dict[str, Any]
Take = Callable[[str], Row]
GRACE_S = 30
"""The longest that an item may take beyond the budget."""


def items_parser(name: str, text: str | None, budget_s: float) -> argparse.ArgumentParser:
    parser = parser_of(name, text)
    parser.add_argument("--budget", type=float, default=budget_s, help="seconds after which no item is begun")
    parser.add_argument("--out", type=Path, default=Path(f"{name}.jsonl"), help="a file of JSON lines")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    return parser


def append(out: Path, row: Row) -> None:
    with out.open("a") as file:
        file.write(json.dumps(row, default=str) + "\n")


def rows_of(out: Path) -> list[Row]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def take_all(arguments: Sequence[str], names: Sequence[str], chosen: argparse.Namespace) -> list[Row]:
    """Take the items in processes of their own, one after the other; return their rows."""
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("")
    ends_s, left = time.monotonic() + chosen.budget, list(names)
    while left and (left_s := ends_s - time.monotonic()) > 0:
        command = [sys.executable, "-m", "tests.on_gpu.study", *arguments, "--work", "--budget", f"{left_s:.0f}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        try:
            process.communicate(json.dumps(left), timeout=left_s + GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        rows = rows_of(chosen.out)
        if rows and "begun" in rows[-1]:
            append(chosen.out, {"name": rows[-1]["begun"], "outcome": "died", "status": process.returncode})
        taken = {row["name"] for row in rows_of(chosen.out) if "name" in row}
        if process.returncode == 0 or not taken.intersection(left):
            break
        left = [name for name in left if name not in taken]
    return [row for row in rows_of(chosen.out) if "name" in row]


def work(take: Take, chosen: argparse.Namespace) -> None:
    """Take the items that are named on standard input; end this process where an item has broken the GPU's context."""
    ends_s = time.monotonic() + chosen.budget
    for name in json.load(sys.stdin):
        if time.monotonic() > ends_s:
            return
        append(chosen.out, {"begun": name})
        began_s = time.perf_counter()
        row = {"name": name, **take(name)}
        append(chosen.out, row | {"seconds": round(time.perf_counter() - began_s, 3)})
        if chosen.device == "cuda" and is_broken():
            sys.exit(3)


def is_broken() -> bool:
    """Return whether the GPU's context is of no use any more."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False
