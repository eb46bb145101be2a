"""Compare calls with themselves: what do the checks of a comparison cost, step by step?

checks [--most N] [--budget SECONDS] [--out FILE] [--only REGEX] [--seed N]

The host's clock runs around each step; a step within another counts for the inner one alone.
"""

import functools
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.checked_rounds import CheckedRounds
from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.guarded import GuardedCall
from pytest_gpubench.bench.other_values import OtherValues
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.pace import Pace
from pytest_gpubench.correctness.inputs import InputMemory
from pytest_gpubench.correctness.margins import Moved
from pytest_gpubench.correctness.pool import PoisonedPool
from pytest_gpubench.timing.comparison import UncountedRounds
from pytest_gpubench.timing.profiler import ProfilerSession, ProfilerTimer
from tests.on_gpu.study.harness import Row, append, items_parser, print_head, print_row
from tests.on_gpu.study.itself import begin, take_turns
from tests.on_gpu.study.workloads import Kind

STEPS: dict[str, tuple[object, str]] = {
    "reference's first call": (Agreement, "run_reference"),
    "flat outputs": (Agreement, "refuse_flat"),
    "candidate's first call": (Agreement, "found"),
    "guarded call": (GuardedCall, "check"),
    "pool: reserve": (PoisonedPool, "reserve"),
    "checked rounds": (CheckedRounds, "check"),
    "other values": (OtherValues, "find"),
    "compare outputs": (Agreement, "compare"),
    "compare other outputs": (OutputRecorder, "check_other_values"),
    "floor": (CompareRequest, "_check_floors"),
}
"""The checks, by the function whose time they are."""
REPEATED: dict[str, tuple[object, str]] = {
    "between calls": (OutputRecorder, "_look_back"),
    "inputs put back": (InputMemory, "restore"),
    "hidden work": (ProfilerTimer, "cross_check"),
}
"""The steps of measuring alone, or of each rep: they are shown, and are no part of the share."""
PARTS: dict[str, tuple[object, str]] = {
    "pool: fill": (PoisonedPool, "fill"),
    "pool: written past": (PoisonedPool, "overwritten"),
    "margins": (Moved, "prepare"),
    "margins: written past": (Moved, "overwritten"),
    "calls": (UncountedRounds, "take"),
    "guarded: the call": (Agreement, "run_with"),
    "session: start": (ProfilerSession, "__enter__"),
    "session: stop": (ProfilerSession, "__exit__"),
    "session: records": (ProfilerSession, "reps"),
    "pace": (Pace, "check"),
}
"""Parts of checks, which count within them alone."""
MEANS = ("mean_ms", "mean_checks_ms")


@dataclass
class Stopwatch:
    """The seconds spent in each step of the comparisons so far."""

    spent_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    steps: list[str] = field(default_factory=list)
    """The steps that are going on, the innermost last."""
    since_s: float = 0.0

    def turn(self) -> None:
        """Give the time since the last turn to the innermost step."""
        now_s = time.perf_counter()
        if self.steps:
            self.spent_s[self.steps[-1]] += now_s - self.since_s
        self.since_s = now_s

    def around(self, name: str, function: Callable[..., Any], is_part: bool) -> Callable[..., Any]:
        """Return a function whose time goes to a step; as a part, only within another."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if is_part and not self.steps:
                return function(*args, **kwargs)
            self.turn()
            self.steps.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.turn()
                self.steps.pop()

        return timed

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as patches:
            for places, is_part in ((STEPS, False), (REPEATED, False), (PARTS, True)):
                for name, (owner, attribute) in places.items():
                    timed = self.around(name, getattr(owner, attribute), is_part)
                    patches.enter_context(patch.object(owner, attribute, timed))
            yield


def watched(name: str, kind: Kind, most: int, ends_s: float, seed: int) -> Row:
    """Return the medians over comparisons of one call: milliseconds in all, and in each step."""
    seconds, steps, outcomes = list[float](), list[dict[str, float]](), list[str]()
    while not seconds or (len(seconds) < most and time.monotonic() < ends_s):
        watch = Stopwatch()
        with watch.watching():
            row = take_turns({name: kind}, 1, math.inf, seed + len(seconds))[0]
        seconds.append(row["seconds"])
        outcomes.append(row["outcome"])
        steps.append(watch.spent_s)
    names = dict.fromkeys(step for each in steps for step in each)
    checks_s = [sum(spent_s for step, spent_s in each.items() if step not in REPEATED) for each in steps]
    return {
        "name": name,
        "comparisons": len(seconds),
        "outcomes": outcomes,
        "mean_ms": 1e3 * statistics.fmean(seconds),
        "mean_checks_ms": 1e3 * statistics.fmean(checks_s),
        "ms": 1e3 * statistics.median(seconds),
        "checks_ms": 1e3 * statistics.median(checks_s),
        "shares": [each_s / all_s for each_s, all_s in zip(checks_s, seconds, strict=True)],
        "steps_ms": {step: 1e3 * statistics.median(each[step] for each in steps) for step in names},
    }


def main(arguments: Sequence[str]) -> None:
    parser = items_parser("checks", __doc__, budget_s=60)
    parser.add_argument("--most", type=int, default=8, help="comparisons of each call")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    made, ends_s = begin(chosen), time.monotonic() + chosen.budget
    take_turns(made, len(made), ends_s, 0)  # what starts and compiles
    rows, left = list[Row](), len(made)
    print_head("call | comparisons | ms | checks ms | share")
    for name, kind in made.items():
        now_s = time.monotonic()
        rows.append(watched(name, kind, chosen.most, now_s + (ends_s - now_s) / left, chosen.seed))
        left -= 1
        append(chosen.out, rows[-1])
        row = rows[-1]
        share = statistics.median(row["shares"])
        print_row(f"{name} | {row['comparisons']} | {row['ms']:.1f} | {row['checks_ms']:.1f} | {share:.1%}")
    all_ms, checks_ms = (statistics.fmean(row[each] for row in rows) for each in MEANS)
    print(f"\nverdicts: {dict(Counter(outcome for row in rows for outcome in row['outcomes']))}")
    every_ms, every_checks_ms = (sum(row["comparisons"] * row[each] for row in rows) for each in MEANS)
    shares = [share for row in rows for share in row["shares"]]
    ms = statistics.median(row["ms"] for row in rows)
    print(f"each call counted once: {checks_ms / all_ms:.1%}, {checks_ms:.2f} of {all_ms:.1f} ms, median {ms:.1f} ms")
    print(
        f"all {len(shares)} comparisons: checks {every_checks_ms / every_ms:.1%} of the total, "
        f"{every_checks_ms:.0f} of {every_ms:.0f} ms; mean share {statistics.fmean(shares):.1%}, "
        f"median share {statistics.median(shares):.1%}\n"
    )
    print_head("step | mean ms | median | least | most")
    steps = dict.fromkeys(step for row in rows for step in row["steps_ms"])
    for step in sorted(steps, key=lambda each: -sum(row["steps_ms"].get(each, 0) for row in rows)):
        each = [row["steps_ms"].get(step, 0.0) for row in rows]
        middle = f"{statistics.fmean(each):.2f} | {statistics.median(each):.2f}"
        print_row(f"{step} | {middle} | {min(each):.2f} | {max(each):.2f}")
