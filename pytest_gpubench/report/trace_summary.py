"""The page beside the traces: the parts of each call's time, and the file of its trace."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from pytest_gpubench.report.markdown_text import code, table_head, table_row, text
from pytest_gpubench.results.files import ENDING, trace_name, write_text
from pytest_gpubench.results.kernels import breakdown
from pytest_gpubench.results.model import Measurement, TestRecord
from pytest_gpubench.units import count, format_share, format_time

SUMMARY_FILE = "summary.md"
VIEWER = "https://ui.perfetto.dev"
MOST_KERNELS_OF_TRACE = 30
"""Kernels of one call that are listed; the shortest of more are summed up."""


def write_summary(folder: Path, records: Iterable[TestRecord]) -> None:
    """Write the page of a folder of traces: every measured call's time by kernel, as Markdown; raise BadFile."""
    names = {path.name for path in folder.glob(f"*{ENDING}")}
    sections = [section for record in records if (section := "\n\n".join(_test_blocks(record, names)))]
    first = (
        f"# Traces of GPU calls\n\nOpen a trace at [{VIEWER.removeprefix('https://')}]({VIEWER}). It holds calls made "
        "after the timed ones, with the profiler's record of the host, which slows them; the times below are of the "
        "timed calls."
    )
    text = "\n\n".join([first, *(sections or ["Nothing was measured."])]) + "\n"
    write_text(text, folder / SUMMARY_FILE)


def _test_blocks(record: TestRecord, names: Container[str]) -> Iterator[str]:
    seen: Counter[tuple[str, str]] = Counter()
    for item in record.measurements:
        if item.timing.measured:
            if not seen:
                yield f"## {code(record.nodeid)}"
            key = item.timing.label, item.example
            seen[key] += 1
            name = trace_name(record.nodeid, item.timing.label, seen[key], item.example)
            yield from _call_blocks(item, f"[trace]({name})" if name in names else "No trace was taken here.")


def _call_blocks(item: Measurement, link: str) -> Iterator[str]:
    """Yield a call's title, how it was timed, and the table of its kernels; a sentence where the timer sees none."""
    timing = item.timing
    role, example = f"as the {item.role}" if item.role else "", f"at {code(item.example)}" if item.example else ""
    yield " ".join(filter(None, [f"### {code(timing.label)}", role, example]))
    launches = f", {count(timing.launches, 'launch')}" if timing.kernels else ""
    yield f"{format_time(timing.median_us)} ({text(timing.timer)}, {text(timing.cache)}{launches}). {link}"
    if not timing.kernels:
        yield f"The timer {text(timing.timer)} sees no kernels."
        return
    right = ["Launches", "Median", "Mean", "Share"]
    whole = [str(timing.launches), format_time(timing.median_us), format_time(timing.mean_us), format_share(1)]
    rows = []
    for share in breakdown(timing, MOST_KERNELS_OF_TRACE):
        mean = "-" if share.mean_us is None else format_time(share.mean_us)
        numbers = [str(share.launches), format_time(share.median_us), mean, format_share(share.share)]
        rows.append(table_row([code(share.name) if share.kernels == 1 else share.name, *numbers]))
    yield "\n".join([table_head(["Kernel", *right], right), *rows, table_row(["the call", *whole])])
