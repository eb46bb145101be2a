"""Count verdicts at min_speedup=0.99: of a call against itself, and against one with 2 % and 10 % more work.

judge [--most N] [--most-s SECONDS] [ARMS ...]      ARMS: 'the same', '2 % more rows', '10 % more rows'
"""

import statistics
import time
from collections.abc import Callable, Sequence

from tests.on_gpu.study.harness import Row, cool, do_bench_us, parser_of, print_head
from tests.on_gpu.study.itself import HEAD, print_verdicts, verdict_on
from tests.on_gpu.study.workloads import Workload, planted

RIVAL_TIMES = 5


def silent(function: Workload) -> Callable[[], int]:
    """Return the function without its result: pairs with different work have different outputs."""

    def run() -> int:
        function()
        return 0  # a comparison wants something to compare

    return run


def verdicts(candidate: Workload, reference: Workload, most: int, most_s: float) -> list[Row]:
    """Compare again and again, each time with another seed."""
    rows, ends_s = list[Row](), time.perf_counter() + most_s
    while len(rows) < most and time.perf_counter() < ends_s:
        rows.append(verdict_on(silent(candidate), silent(reference), (), len(rows)))
    return rows


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
    print_head(f"{HEAD} | two do_bench s")
    for name, calls in planted().items():
        for arms in chosen.arms or calls:
            rows = verdicts(calls[arms], calls["the same"], chosen.most, chosen.most_s)
            print_verdicts(f"{name}, {arms}", rows, f" | {seconds_of_do_bench(calls[arms], calls['the same']):.3f}")
