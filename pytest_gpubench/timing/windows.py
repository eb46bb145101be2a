"""The kernels that bound reps, and what the records between them add up to. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_gpubench.timing.base import Record

BEGIN = "gpu_bench_begin"
END = "gpu_bench_end"
FLUSHES = {"cold": ("gpu_bench_read_flush", "gpu_bench_demote"), "dirty": ("gpu_bench_write_flush",)}
"""The kernels that flush the cache before each rep, in turn, by the state that they leave."""


def busy_ns(records: Iterable[Record]) -> int:
    """Return for how long at least one record was running."""
    total = covered_until = 0
    for record in sorted(records, key=lambda record: record.start_ns):
        begin = max(record.start_ns, covered_until)
        if record.end_ns > begin:
            total += record.end_ns - begin
            covered_until = record.end_ns
    return total


def span_ns(records: Sequence[Record]) -> int:
    """Return the time from the first start to the last end; 0 for no records."""
    if not records:
        return 0
    return max(record.end_ns for record in records) - min(record.start_ns for record in records)


def kernel_list(records: Iterable[Record]) -> Counter[str]:
    """Return how often each kernel, copy and memset was launched."""
    return Counter(record.name for record in records)


def describe_difference(
    first: Counter[str], second: Counter[str], where: tuple[str, str] = ("in one", "in the other")
) -> str:
    """Return in words which launches two kernel lists do not share."""
    parts = [f"{number} x {name} only {where[0]}" for name, number in (first - second).items()]
    parts += [f"{number} x {name} only {where[1]}" for name, number in (second - first).items()]
    return "; ".join(parts[:4]) + ("; ..." if len(parts) > 4 else "")
