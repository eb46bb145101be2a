"""Are reads and writes beyond a tensor found, and is nothing else taken for one?

margins [planted] [harmless] [honest] [--budget SECONDS] [--out FILE] [--only REGEX] [--device cuda]

planted: forty kernels of ours that read or write beyond a tensor; one that breaks the GPU is taken again as a test.
harmless: their like, right or with an over-read that no output shows. honest: a hundred calls of libraries against
themselves.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pytest_gpubench import GpuBenchError, WrongResult, bench
from tests.on_gpu.study.harness import Row, append, items_parser
from tests.on_gpu.study.margins_honest import HONEST
from tests.on_gpu.study.margins_planted import HARMLESS, PLANTED, Planted

BY_NAME = {each.name: each for each in (*PLANTED, *HARMLESS)}
PARTS = {"planted": [each.name for each in PLANTED], "harmless": [each.name for each in HARMLESS], "honest": [*HONEST]}
GRACE_S = 30
"""The longest that a call may take beyond the budget."""
BEYOND = re.compile(r"\b(reads|writes|overwrote|wrote) (past|before|beyond|behind|around)\b")


def compare(candidate: Callable[..., object], *given: Any, **chosen: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench.compare({"it": candidate}, *given, rtol=1e-3, atol=1e-3, **chosen)


def outcome_of(planted: Planted, sentence: str | None) -> str:
    """Return what a sentence makes of a defect: `named`, or what is wanting; None is a comparison that passed."""
    if not planted.verb:
        return "passed" if sentence is None else "flagged"
    if sentence is None:
        return "passed"
    if not BEYOND.search(sentence) or not any(
        re.search(rf"{re.escape(name)}(?!\w)", sentence) for name in planted.tensors
    ):
        return "not named"
    return "named" if f"{planted.verb} " in sentence else "other verb"


def judged(call: Callable[[], None]) -> tuple[str | None, Row]:
    """Return the sentence of a refusal, None for none; and the kind of error."""
    try:
        call()
    except (GpuBenchError, WrongResult) as error:
        return " ".join(str(error).split())[:500], {"kind": type(error).__name__}
    except Exception as error:
        return f"raised {type(error).__name__}: {' '.join(str(error).split())[:300]}", {"kind": "raised"}
    return None, {}


def sentence_of_test(name: str) -> str:
    """Return what a run of pytest says of a planted kernel."""
    tests = Path(__file__).with_name("margins_tests.py")
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    command = [sys.executable, "-m", "pytest", *options, f"{tests}::test_planted[{name}]"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.findall(r"^E +(?:[\w.]+\.)?([A-Z]\w+: .*)", run.stdout, re.MULTILINE)
    return found[-1] if found else run.stdout[-300:]


def take_planted(planted: Planted, device: torch.device) -> Row:
    candidate, reference, args = planted.make(device)
    flag = {"overwrites": planted.overwrites} if planted.overwrites else {}
    sentence, row = judged(lambda: compare(candidate, reference, args, device=device.type, vary=False, reps=12, **flag))
    if planted.may_fault and outcome_of(planted, sentence) != "named":  # it breaks the GPU, or would by chance
        sentence, row = sentence_of_test(planted.name), {"kind": "test", "raised": sentence}
    return {"outcome": outcome_of(planted, sentence), "sentence": sentence, "wanted": planted.tensors, **row}


def take_honest(name: str, device: torch.device) -> Row:
    function, args = HONEST[name](device)
    sentence, row = judged(lambda: compare(lambda *args: function(*args), function, args, device=device.type, reps=12))
    beyond = sentence is not None and BEYOND.search(sentence) is not None
    return {
        "outcome": "passed" if sentence is None else "flagged" if beyond else "refused",
        "sentence": sentence,
        **row,
    }


def take(name: str, device: torch.device) -> Row:
    return take_planted(BY_NAME[name], device) if name in BY_NAME else take_honest(name, device)


def rows_of(out: Path) -> list[Row]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def take_all(names: Sequence[str], chosen: argparse.Namespace) -> list[Row]:
    """Take the calls in a process that may die, after which another one goes on; return their rows."""
    ends_s, left = time.monotonic() + chosen.budget, list(names)
    while left and (left_s := ends_s - time.monotonic()) > 0:
        words = ["--out", str(chosen.out), "--device", chosen.device, "--budget", f"{left_s:.0f}"]
        command = [sys.executable, "-m", "tests.on_gpu.study", "margins", "--work", *words]
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


def work(chosen: argparse.Namespace) -> None:
    """Take the calls that are named on standard input; end this process where one has broken the GPU's context."""
    ends_s = time.monotonic() + chosen.budget
    for name in json.load(sys.stdin):
        if time.monotonic() > ends_s:
            return
        append(chosen.out, {"begun": name})
        began_s = time.perf_counter()
        row = {"name": name, **take(name, torch.device(chosen.device))}
        append(chosen.out, row | {"seconds": round(time.perf_counter() - began_s, 3)})
        try:
            if chosen.device == "cuda":
                torch.cuda.synchronize()
        except Exception:
            sys.exit(3)


def summarise(part: str, rows: Sequence[Row]) -> None:
    """Print how many were as they should be, and what was said of the others."""
    good = "named" if part == "planted" else "passed"
    counts = Counter(row["outcome"] for row in rows)
    print(f"\n{part}: {counts[good]} of {len(PARTS[part])} {good}; {dict(counts)}", end="")
    if seconds := [row["seconds"] for row in rows if "seconds" in row]:
        print(f"; median {statistics.median(seconds):.2f} s, all {sum(seconds):.0f} s", end="")
    print()
    for row in rows:
        if row["outcome"] != good:
            print(f"- {row['outcome']}: {row['name']}: {str(row.get('sentence') or row.get('status'))[:300]}")


def main(arguments: Sequence[str]) -> None:
    parser = items_parser("margins", __doc__, budget_s=120)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_intermixed_args(arguments)
    if chosen.work:
        return work(chosen)
    chosen.out.write_text("")
    parts = chosen.parts or list(PARTS)
    names = [name for part in parts for name in PARTS[part] if re.search(chosen.only, name)]
    names.sort(key=lambda name: name in BY_NAME and BY_NAME[name].may_fault)
    rows = take_all(names, chosen)
    for part in parts:
        summarise(part, [row for row in rows if row["name"] in PARTS[part]])
    print(f"\n{len(rows)} of {len(names)} taken; lines in {chosen.out}")
    return None
