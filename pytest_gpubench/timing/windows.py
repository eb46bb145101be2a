"""From a session's records to its reps: proof that they are complete, or an error. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_gpubench.errors import IncompleteRecords, KernelsDiffer, NothingRecorded
from pytest_gpubench.timing.base import Call, Record
from pytest_gpubench.units import count

BEGIN = "gpu_bench_begin"
END = "gpu_bench_end"
FLUSHES = {"cold": "gpu_bench_read_flush", "dirty": "gpu_bench_write_flush"}
"""The kernel that flushes the cache before each rep, by the state that it leaves."""


def split_reps(
    records: Sequence[Record], calls: Sequence[Call], flush: str | None = None, producer: str = ""
) -> list[list[Record]]:
    """Return the records of each rep: those between its two sentinels.

    flush: the kernel that each rep needs once before it; None for a hot cache.
    producer: the name of what runs between that and the first sentinel; empty where nothing does.

    Raises IncompleteRecords where a sentinel or a flush is missing, a record has no length or lies across a sentinel,
    or work appears outside of every rep though nothing was prepared there; NothingRecorded where every rep of a call,
    or every run of the producer, is empty, KernelsDiffer where only some are, or where the producer launches others.
    """
    windows: list[list[Record]] = []
    outside: list[list[Record]] = [[]]
    produced: list[list[Record]] = []
    current: list[Record] | None = None
    done_ns = begun_ns = 0
    for record in records:
        if record.duration_ns <= 0:
            raise IncompleteRecords(f"the profiler gave {record.name} no length: it lost its timestamps")
        if record.name == BEGIN and current is None:
            if done_ns > record.start_ns:
                raise IncompleteRecords("a record from before a rep reaches into it")
            current, begun_ns = [], record.end_ns
            produced.append(_take_flush(outside[-1], flush, bool(producer)))
        elif record.name == END and current is not None:
            if any(inner.end_ns > record.start_ns for inner in current):
                raise IncompleteRecords("a record reaches beyond the end of its rep")
            windows.append(current)
            outside.append([])
            current = None
        elif record.name in (BEGIN, END):
            raise IncompleteRecords("a sentinel is missing: the profiler lost records")
        elif current is not None:
            if record.start_ns < begun_ns:
                raise IncompleteRecords("a record reaches back before the beginning of its rep")
            current.append(record)
        else:
            done_ns = max(done_ns, record.end_ns)
            outside[-1].append(record)
    if current is not None or len(windows) != len(calls):
        raise IncompleteRecords(f"{count(len(calls), 'rep')} taken, but {len(windows)} came back")
    _check_outside(outside, calls)
    if producer:
        _check_produced(produced, producer)
    _check_empty(windows, calls)
    return windows


def _take_flush(before: list[Record], flush: str | None, produces: bool) -> list[Record]:
    """Take a rep's flush from the records before it, and return what a producer did after it.

    One flush alone is taken, as a kernel of a call's may have the same name.
    """
    if flush is None:
        return []
    place = next((place for place, record in enumerate(before) if record.name == flush), None)
    if place is None:
        raise IncompleteRecords("the cache was not flushed before a rep, or the profiler lost the record of that")
    produced = before[place + 1 :] if produces else []
    del before[place : place + 1 + len(produced)]
    return produced


def _check_produced(produced: Sequence[Sequence[Record]], producer: str) -> None:
    """Raise unless a producer launched something before the reps, and the same before each of them."""
    lists = [kernel_list(records) for records in produced]
    if lists and not any(lists):
        raise NothingRecorded(f"{producer} launched nothing on the GPU: are its tensors on the GPU?")
    other = next((each for each in lists if each != lists[0]), None)
    if other is not None:
        raise KernelsDiffer(
            f"{producer} does not launch the same kernels before every rep: {describe_difference(lists[0], other)}"
        )


def _check_outside(outside: Sequence[Sequence[Record]], calls: Sequence[Call]) -> None:
    """Raise where work ran before a rep that prepares nothing, or after the last one: a call left it running."""
    for index, strays in enumerate(outside):
        if strays and not (index < len(calls) and calls[index].prepares_on_device):
            raise IncompleteRecords(
                f"work ran on the GPU outside of every rep ({strays[0].name}): another thread launches it, "
                "or a call goes on after it returned and the device was synchronised"
            )


def _check_empty(windows: Sequence[Sequence[Record]], calls: Sequence[Call]) -> None:
    empty = Counter(call.label for call, window in zip(calls, windows, strict=True) if not window)
    taken = Counter(call.label for call in calls)
    for label, number in empty.items():
        if number == taken[label]:
            raise NothingRecorded(
                f"{label!r} launched nothing on the GPU in {count(number, 'call')}: "
                "are its tensors on the GPU, and does it compute when it is called?"
            )
        raise KernelsDiffer(f"{label!r} launched nothing on the GPU in {number} of {count(taken[label], 'call')}")


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
