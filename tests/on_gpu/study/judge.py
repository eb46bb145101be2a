"""Count verdicts at min_speedup=0.99: of a call against itself, and against one with 2 % and 10 % more work.

judge [--most N] [--most-s SECONDS] [ARMS ...]      ARMS: 'the same', '2 % more rows', '10 % more rows'
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from pytest_gpubench import InvalidResult, LimitBroken
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.verdict.limits import Limits
from tests.on_gpu.study.harness import bench_of, cool, do_bench_us, parser_of, print_head, print_row, study_test_with
from tests.on_gpu.study.workloads import Workload, planted

LIMIT = 0.99
RIVAL_TIMES = 5


def silent(function: Workload) -> Callable[[], int]:
    """Return the function without its result: pairs with different work have different outputs."""

    def run() -> int:
        function()
        return 0  # a comparison wants something to compare

    return run


def verdicts(candidate: Workload, reference: Workload, most: int, most_s: float) -> dict[str, float]:
    """Compare again and again, as the fixture does; return how often each verdict came, and what it cost."""
    outcomes: Counter[Outcome] = Counter()
    seconds: list[float] = []
    quads: list[int] = []
    ratios: list[float] = []
    started_s = time.perf_counter()
    while len(seconds) < most and time.perf_counter() - started_s < most_s:
        began_s = time.perf_counter()
        test = study_test_with(Limits(min_speedup=LIMIT), seed=len(seconds))
        with suppress(LimitBroken, InvalidResult):
            bench_of(test).compare({"candidate": silent(candidate)}, silent(reference))
        seconds.append(time.perf_counter() - began_s)
        found = test.measurements[-1]
        outcomes[found.verdicts[0].outcome] += 1
        if found.speedup is not None:
            quads.append(found.speedup.quads)
            ratios.append(found.speedup.ratio)
    return {
        "verdicts": len(seconds),
        **{outcome.value: outcomes[outcome] for outcome in Outcome},
        "quads": statistics.fmean(quads),
        "seconds": statistics.median(seconds),
        "ratio": statistics.median(ratios),
    }


def seconds_of_do_bench(candidate: Workload, reference: Workload) -> float:
    """Return how long do_bench takes for both, the median of five times."""
    seconds = []
    for _ in range(RIVAL_TIMES):
        started_s = time.perf_counter()
        for function in (candidate, reference):
            do_bench_us(function)
        seconds.append(time.perf_counter() - started_s)
    cool()
    return statistics.median(seconds)


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("judge", __doc__)
    parser.add_argument("arms", nargs="*", metavar="ARMS")
    parser.add_argument("--most", type=int, default=500, help="verdicts of each pair")
    parser.add_argument("--most-s", type=float, default=3600, help="seconds for each pair")
    chosen = parser.parse_args(arguments)
    print_head(
        "call | arms | verdicts | PASS | FAIL | INCONCLUSIVE | INVALID | quads | s each | two do_bench s | ratio"
    )
    for name, calls in planted().items():
        reference = calls["the same"]
        for arms in chosen.arms or calls:
            row = verdicts(calls[arms], reference, chosen.most, chosen.most_s)
            rival_s = seconds_of_do_bench(calls[arms], reference)
            print_row(
                f"{name} | {arms} | {row['verdicts']} | {row['pass']} | {row['fail']} | {row['inconclusive']} | "
                f"{row['invalid']} | {row['quads']:.0f} | {row['seconds']:.3f} | {rival_s:.3f} | {row['ratio']:.4f}"
            )
