import functools
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_gpubench import Measurement, PastChange
from pytest_gpubench.report.markdown import markdown_summary
from pytest_gpubench.results.model import CommitInfo, Outcome, SavedRun, TestRecord
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import printable
from tests.results.hostile import hostile_run
from tests.results.measured import BARE_GPU as GPU
from tests.results.measured import arms, clocked, record, resources, unmeasured, verdict
from tests.results.measured import kernel as kernel_of
from tests.results.measured import run as run_of
from tests.results.saved import make_run

MOST_KERNELS = 10

RENDERER = MarkdownIt("commonmark", {"html": True}).enable("table")
OURS = {"code", "br", "span", "details", "summary"}
MADE = {"h2", "h3", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "p"}
ATTACKS = [
    "a|b",
    "`code` `",
    "``` a ` b",
    "<script>alert(1)</script>",
    "</details></td></table>",
    "<!-- ",
    "&lt;b&gt; &#60; &amp;",
    "[x](javascript:alert(1))",
    "![x](https://example.com/x.png)",
    "https://example.com www.example.com me@example.com",
    "@octocat @org/team",
    "#123 org/repo#12 GH-12 !7 ~label %1 :rocket: a::b::c",
    "*a* **b** _c_ __d__ ~~e~~ a_b_c",
    "one\ntwo\r\n\n## three",
    "back\\slash \\| \\\\| \\`",
    "$a$ $$b$$ costs $5",
    "\u202eright to left\u2066",
    "\ud800 \x00 \x1b[31m",
    "- [ ] a task",
    "a  b ",
    "--- | ---",
    "\u200b",
]


def judged(nodeid: str, *outcomes: Outcome, enforced: bool = True) -> TestRecord:
    verdicts = [verdict(f"limit{number}", outcome, enforced=enforced) for number, outcome in enumerate(outcomes)]
    return record(*arms(clocked("mine", 90.0), clocked("torch", 180.0), *verdicts), nodeid=nodeid)


PASSED = judged("t.py::passed", Outcome.PASS)
FAILED = judged("t.py::failed", Outcome.PASS, Outcome.FAIL)
OPEN = judged("t.py::open", Outcome.INCONCLUSIVE)
LOOSE = judged("t.py::loose", Outcome.FAIL, enforced=False)
WRONG = record(
    *arms(unmeasured("mine", "it is wrong"), clocked("torch", 180.0), verdict("limit", Outcome.INVALID)),
    nodeid="t.py::wrong",
)
PARTS = verdict("forbid='sync'", Outcome.NOT_JUDGED), verdict("forbid='memcpy'", Outcome.PASS)
PARTLY = record(Measurement(timing=clocked("mine", 90.0), verdicts=PARTS), nodeid="t.py::partly")
WHOLLY = record(
    Measurement(timing=clocked("mine", 90.0), verdicts=(*PARTS, verdict("forbid='sync'", Outcome.PASS))),
    nodeid="t.py::wholly",
)
FREE = record(Measurement(timing=clocked("mine", 90.0)), nodeid="t.py::free")
IDLE = record(Measurement(timing=unmeasured("mine", "switched off")), nodeid="t.py::idle")


def table_lines(summary: str) -> Iterator[str]:
    return (line for line in summary.splitlines() if line.startswith("|"))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def section(summary: str, title: str) -> list[list[str]]:
    """Return the cells of the table under a title, its header first."""
    after = summary.split(title, 1)[1].split("###")[0].split("<details>")[0]
    header, _, *rows = table_lines(after)
    return [cells(header), *map(cells, rows)]


class Reader(HTMLParser):
    """Read a page's elements, and its text by table cell."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.cells: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


@pytest.mark.parametrize(
    ("records", "failures", "line"),
    [
        ((), {}, "nothing was measured"),
        ((), {"t.py::a": "no"}, "❌ 1 failed"),
        ((PASSED,), {}, "✅ 1 passed on NVIDIA H200"),
        ((PASSED, FAILED, OPEN, WRONG), {}, "❌ 1 invalid, ❌ 1 failed, ⚠️ 1 inconclusive, ✅ 1 passed on NVIDIA H200"),
        ((PASSED,), {"t.py::passed": "an assert", "t.py::b": "no"}, "❌ 2 failed on NVIDIA H200"),
        ((FAILED,), {"t.py::failed": "no"}, "❌ 1 failed on NVIDIA H200"),
        ((LOOSE, FREE, IDLE), {}, "⚠️ 1 bad but not enforced, 1 without a limit, 1 not measured on NVIDIA H200"),
        ((judged("t.py::a", Outcome.NOT_JUDGED),), {}, "⚠️ 1 not judged on NVIDIA H200"),
        ((PARTLY,), {}, "⚠️ 1 not judged on NVIDIA H200"),
        ((WHOLLY,), {}, "✅ 1 passed on NVIDIA H200"),
        ((PASSED, judged("t.py::passed", Outcome.INCONCLUSIVE)), {}, "⚠️ 1 inconclusive on NVIDIA H200"),
        ((judged("t.py::a", Outcome.INCONCLUSIVE, Outcome.INVALID, Outcome.PASS),), {}, "❌ 1 invalid on NVIDIA H200"),
    ],
)
def test_the_first_line_counts_tests(records: tuple[TestRecord, ...], failures: Mapping[str, str], line: str) -> None:
    assert markdown_summary(run_of(*records), failures).splitlines()[0] == f"## GPU benchmarks: {line}"


@pytest.mark.parametrize(
    ("names", "where"),
    [(["A"], "A"), (["A", "A"], "A"), (["A", "B"], "A and B"), (["A", "B", "C", "B", "D"], "A and B and 2 more")],
)
def test_the_first_line_names_the_gpus(names: list[str], where: str) -> None:
    records = [
        msgspec.structs.replace(PASSED, nodeid=f"t.py::{number}", device=msgspec.structs.replace(GPU, name=name))
        for number, name in enumerate(names)
    ]
    summary = markdown_summary(run_of(*records))
    assert summary.splitlines()[0].endswith(f" passed on {where}")
    assert ("Device" in section(summary, "All measurements")[0]) is (len(set(names)) > 1)
    on_cpu = msgspec.structs.replace(PASSED, device=msgspec.structs.replace(GPU, type="cpu", name="EPYC"))
    assert markdown_summary(run_of(on_cpu)).splitlines()[0].endswith("on the CPU, EPYC")


def test_what_failed_comes_first_each_with_its_sentence() -> None:
    summary = markdown_summary(run_of(PASSED, OPEN, LOOSE, WRONG, FAILED, FREE), {"t.py::other": "assert\n 1 ==  2"})
    assert section(summary, "### What to look at") == [
        ["Verdict", "Test", "Function", "What was found"],
        ["❌ INVALID", "<code>t.py::wrong</code>", "<code>mine</code>", "a sentence about limit"],
        ["❌ FAIL", "<code>t.py::other</code>", "", "assert 1 == 2"],
        ["❌ FAIL", "<code>t.py::failed</code>", "<code>mine</code>", "a sentence about limit1"],
        ["⚠️ FAIL (not enforced)", "<code>t.py::loose</code>", "<code>mine</code>", "a sentence about limit0"],
        ["⚠️ INCONCLUSIVE", "<code>t.py::open</code>", "<code>mine</code>", "a sentence about limit0"],
    ]
    order = [summary.index(each) for each in ("What to look", "All meas", "Kernels of", "### Machine")]
    assert order == sorted(order)
    quiet = markdown_summary(run_of(PASSED, FREE, IDLE))
    assert not any(each in quiet for each in ("What to look at", "Kernels of", "idle"))


def test_a_failure_that_a_verdict_tells_is_not_told_twice() -> None:
    told = {"t.py::failed": "LimitBroken: a sentence\nabout limit1", "t.py::open": "assert False"}
    rows = section(markdown_summary(run_of(FAILED, OPEN), told), "### What to look at")
    assert [row[3] for row in rows[1:]] == ["assert False", "a sentence about limit1", "a sentence about limit0"]


def test_the_table_prints_the_numbers_of_the_run() -> None:
    slow = judged("t.py::a[1-2]", Outcome.PASS, Outcome.FAIL)
    header, first, second, third = section(markdown_summary(run_of(slow, FREE, WRONG)), "All measurements (3)")
    assert header == ["Test", "Function", "Time (us)", "Reference (us)", "Speedup", "Limit", "Verdict"]
    assert first == [
        r"<code>a\[1-2\]</code>",
        "<code>mine</code>",
        "90.00 [89.73, 90.27]",
        "180.0 <code>torch</code>",
        "2.000x [1.980, 2.020]",
        "<code>limit0</code><br><code>limit1</code>",
        "✅ PASS<br>❌ FAIL",
    ]
    assert second == ["<code>free</code>", "<code>mine</code>", "90.00 [89.73, 90.27]", "", "", "", ""]
    assert third[2:5] == ["-", "180.0 <code>torch</code>", ""]
    without = arms(unmeasured("mine", "off"), unmeasured("torch", "off"), verdict("limit", Outcome.NOT_JUDGED))
    summary = markdown_summary(run_of(PASSED, IDLE, record(*without, nodeid="t.py::silent")))
    assert [row[0] for row in section(summary, "All measurements")] == ["Test", "<code>passed</code>"]  # with numbers


def test_tests_of_several_files_have_their_file() -> None:
    summary = markdown_summary(run_of(PASSED, msgspec.structs.replace(FREE, nodeid="a/u.py::free")))
    names = [row[0] for row in section(summary, "All measurements")]
    assert names == ["Test", "<code>t.py::passed</code>", "<code>a/u.py::free</code>"]


def test_only_what_failed_shows_its_kernels_and_those_of_its_reference() -> None:
    kernels = tuple(kernel_of(f"k{number}<T>", number, float(number)) for number in range(1, 13))
    mine = clocked("mine", 78.0, kernels=kernels)
    bad = record(*arms(mine, clocked("torch", 180.0), verdict("limit", Outcome.FAIL)), nodeid="t.py::bad")
    rows = section(markdown_summary(run_of(PASSED, bad, OPEN)), "Kernels of what failed")
    assert rows[1] == ["<code>t.py::bad</code>", "<code>mine</code>", "<code>k12</code>", "12", "12.00 us", "15 %"]
    assert rows[MOST_KERNELS - 1] == ["", "", "<code>k4</code>", "4", "4.000 us", "5.1 %"]
    assert rows[MOST_KERNELS] == ["", "", "3 more", "6", "6.000 us", "7.7 %"]
    assert rows[MOST_KERNELS + 1] == ["", "<code>torch</code>", r"<code>torch_kernel</code>", "2", "180.0 us", "100 %"]
    assert len(rows) == MOST_KERNELS + 2


def test_what_kernels_take_has_a_column_where_it_is_known() -> None:
    known = kernel_of("k", resources=(resources(registers=72),))
    arm = arms(clocked("mine", 78.0, kernels=(known,)), clocked("torch", 180.0), verdict("limit", Outcome.FAIL))
    head, mine, reference = section(markdown_summary(run_of(record(*arm))), "Kernels of what failed")
    assert [row[6] for row in (head, mine, reference)] == ["Resources", "72 registers, 1 block per SM, 2.00 waves", ""]


def changed(test: TestRecord, **change: object) -> TestRecord:
    """Return a test whose last measurement was compared with a saved run."""
    known: dict[str, object] = {"baseline": "main", "metric": "median", "ratio": 1.031, "old_us": 87.3}
    past = PastChange(**{"interval": Interval(1.028, 1.034), **known, **change})  # type: ignore[arg-type]
    *others, last = test.measurements
    return msgspec.structs.replace(test, measurements=(*others, msgspec.structs.replace(last, change=past)))


@pytest.mark.parametrize(
    ("tests", "name", "cells_below"),
    [
        ((changed(PASSED), FREE), "Against main", ["1.031x [1.028, 1.034] of its median, was 87.30 us", ""]),
        ((changed(PASSED, metric="same code", interval=None),), "Against main", ["same code"]),
        (
            (changed(PASSED, interval=None), changed(FREE, baseline="a|b", metric="speedup", interval=None)),
            "Against baselines",
            ["1.031x of its median, was 87.30 us", "1.031x of its relative time, was 87.30 us"],
        ),
    ],
)
def test_changes_since_runs_have_a_column(tests: tuple[TestRecord, ...], name: str, cells_below: list[str]) -> None:
    header, *rows = section(markdown_summary(run_of(*tests)), "All measurements")
    assert [row[header.index(name)] for row in rows] == cells_below
    assert "Against" not in markdown_summary(run_of(PASSED, FREE))


def test_the_machine_and_the_commit_end_it() -> None:
    run = make_run(tests=7)
    end = markdown_summary(run).split("### Machine and commit")[1].strip().splitlines()
    assert end == [
        "- Device: NVIDIA H200",
        "- Driver: 570.86.15",
        "- CUDA: 12.8",
        "- Host: gpu-host-3",
        "- Timer: profiler",
        "- Cache: cold",
        "- torch: 2.9.0",
        "- Python: 3.12.4",
        "- Options: <code>reps=40</code>",
        "- Commit: 0123456789abcdef0123456789abcdef01234567 on <code>main</code>",
        "- Measured: <code>2026-03-01T12:30:45.123456+00:00</code>",
        "- pytest-gpubench: 0.1.0",
    ]


@pytest.mark.parametrize(
    ("commit", "line"),
    [
        (CommitInfo(id="a" * 40, dirty=True), f"- Commit: {'a' * 40} with changes that are not committed"),
        (CommitInfo(id="a" * 39), f"- Commit: <code>{'a' * 39}</code>"),
        (CommitInfo(id="@me"), "- Commit: <code>@&#8203;me</code>"),
        (CommitInfo(error="no git | here"), "- Commit: not known: no git &#124; here"),
        (CommitInfo(error="x" * 121), f"- Commit: not known: {'x' * 79}…{'x' * 40}"),
    ],
)
def test_the_commit_is_told(commit: CommitInfo, line: str) -> None:
    assert line in markdown_summary(run_of(PASSED, commit_info=commit)).splitlines()
    bare = markdown_summary(run_of(PASSED, settings={f"o{number}": "1" for number in range(7)}))
    assert "- Commit" not in bare
    assert "<code>o4=1</code> and 2 more\n" in bare


@functools.cache
def big_run() -> SavedRun:
    run = make_run(tests=700, reps=12)
    slow = make_run(tests=40, reps=12, slower=1.4)
    moved = (msgspec.structs.replace(each, nodeid=f"z{each.nodeid}") for each in slow.records)
    return msgspec.structs.replace(run, records=(*run.records, *moved))


def summary_within(limit_bytes: int, run: SavedRun) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_gpubench.report.markdown.SUMMARY_BYTES", limit_bytes)
        return markdown_summary(run)


@pytest.mark.parametrize("limit_bytes", [30_000, 65_536, 200_000])
def test_it_stays_below_the_limit_and_says_what_is_left_out(limit_bytes: int) -> None:
    run = big_run()
    summary = summary_within(limit_bytes, run)
    assert len(summary.encode()) <= limit_bytes
    everything = summary_within(10_000_000, run)
    assert "left out" not in everything
    nouns = {"### What to look": "verdicts", "All measurements": "measurements", "Kernels of": "kernels"}
    for title, noun in nouns.items():
        total = len(section(everything, title)) - 1
        after = summary.split(title, 1)[1].split("<details>")[0].split("###")[0]
        shown = max(0, sum(1 for _ in table_lines(after)) - 2)
        note = f"{total - shown:,} of {total:,} {noun} left out, to stay below {limit_bytes:,} bytes."
        assert (note in after) is (shown < total)
    assert "### Machine and commit\n\n- Device: NVIDIA H200" in summary
    assert summary.count("<details>") == summary.count("</details>") == 2


def test_every_line_is_there_or_counted_wherever_the_limit_falls() -> None:
    """Long lines and a long header, so that there is no slack; the limits cut between any two of the last ones."""
    tests = (judged(f"t.py::{'x' * 900}{number}", Outcome.INCONCLUSIVE) for number in range(40))
    run = run_of(*(changed(test, baseline="$" * 60) for test in tests))
    full = len(markdown_summary(run).encode())
    for limit_bytes in (*range(full - 2500, full, 101), full - 1, full):
        summary = summary_within(limit_bytes, run)
        assert limit_bytes - 1300 < len(summary.encode()) <= limit_bytes
        shown = len(section(summary, "All measurements")) - 1
        note = re.search(r"(\d+) of 40 measurements left out", summary)
        assert shown + (int(note[1]) if note else 0) == 40
    assert note is None


def test_a_step_of_github_may_write_as_much() -> None:
    run = run_of(*(judged(f"t.py::{'x' * 900}{number}", Outcome.INCONCLUSIVE) for number in range(1500)))
    assert 0.9 * 2**20 < len(markdown_summary(run, {"t.py::other": "y" * 10**6}).encode()) < 2**20


def test_what_passed_is_left_out_first() -> None:
    run = big_run()
    full = len(summary_within(10_000_000, run).encode())
    summary = summary_within(full - 50_000, run)
    assert "measurements left out" in summary
    assert "verdicts left out" not in summary
    assert "kernels left out" not in summary
    rows = section(summary, "All measurements")[1:]
    assert sum("❌" in row[-1] for row in rows) == len(section(summary, "### What to look at")) - 1 == 29
    assert full - 50_000 - len(summary.encode()) < 2_000


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_shown_as_text(attack: str) -> None:
    check_shown_as_text(attack)


def check_shown_as_text(attack: str) -> None:
    """Assert that a summary has no element and no cell that is not its own, and that texts are read as they were."""
    summary = markdown_summary(hostile_run(attack), {f"{attack}3": attack})
    for table in re.split(r"\n(?!\|)", summary):
        assert len({line.count("|") for line in table_lines(table)}) <= 1
    assert {tag.strip("</>") for tag in re.findall("<[^>]*>?", summary)} <= OURS
    reader = Reader(RENDERER.render(summary))
    assert {tag for tag, _ in reader.elements} <= OURS | MADE
    assert {name for _, names in reader.elements for name in names} <= {"style"}, "only a cell's alignment"
    assert not re.search(r"@\w|(?<![&\w])#\w|://|www\.", summary)
    texts = f"{attack}nodeid{attack}", f"{attack}label{attack}", f"{attack}3"
    assert {one_space(printable(each)) for each in texts} <= {one_space(cell) for cell in reader.cells}


def one_space(value: str) -> str:
    return " ".join(value.replace("\u200b", "").split())


hostile = st.lists(
    st.sampled_from(ATTACKS)
    | st.sampled_from([*"|`<>[]()\\*_~#@:!$&;/\n\r\t -=", "<!--", "]]>", "://"])
    | st.text(max_size=5),
    max_size=6,
).map(lambda parts: "".join(parts)[:140])  # twice that is not shortened


@given(hostile)
@example("\\")
@example("|")
@example("<code>\n\n</code>")
def test_any_text_is_read_as_it_was_written(words: str) -> None:
    check_shown_as_text(words)
