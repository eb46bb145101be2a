"""A run as Markdown, for the summary of a CI job and for comments: what failed first, then every number."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpubench.metrics import BY_NAME
from pytest_gpubench.report.facts import run_facts
from pytest_gpubench.report.markdown_text import code, one_line, table_head, table_row, text
from pytest_gpubench.report.rows import (
    Row,
    against_title,
    outcome_text,
    reference_text,
    resources_text,
    rows_of,
    speedup_text,
    times_us,
    variant_text,
)
from pytest_gpubench.results.baseline import toolchain
from pytest_gpubench.results.kernels import breakdown
from pytest_gpubench.results.model import SAME_CODE, Outcome, PastChange, SavedRun, TestRecord, Verdict
from pytest_gpubench.units import bracketed, choose_time_unit, first_few, format_share, format_time, ratio_text
from pytest_gpubench.verdict.ending import judged_limits, limit_judged

SUMMARY_BYTES = 1_000_000
"""A step of GitHub Actions may write 1 MiB: "Workflow commands for GitHub Actions" in GitHub's documentation, section
"Step isolation and limits"."""
LONGEST_SENTENCE = 600
LONGEST_FACT = 60
MOST_DEVICES = 2
"""GPU models that the first line names."""
MOST_KERNELS_OF_FAILED = 10
"""Kernels of one call that are shown; the shortest of more are summed up."""
MOST_SETTINGS = 5

CROSS, WARNING, TICK = "❌ ", "⚠️ ", "✅ "
STANDINGS = {
    "invalid": CROSS,
    "failed": CROSS,
    "bad but not enforced": WARNING,
    "inconclusive": WARNING,
    "not judged": WARNING,
    "passed": TICK,
    "without a limit": "",
    "not measured": "",
}
"""The results that a test can have, the worst first, each with its sign."""
TROUBLES = tuple(STANDINGS)[:5]


@dataclass(frozen=True)
class Part:
    """A table or a list with what comes before it."""

    title: str
    head: str
    """The head of the table; empty for a list."""
    lines: Sequence[tuple[int, str]]
    """Each with its rank: those of the highest are left out first."""
    noun: str
    folded: bool = False

    def text(self, kept: Sequence[str], limit_bytes: int) -> str:
        """Return the part with the lines that are kept, and how many are not."""
        left_out = len(self.lines) - len(kept)
        table = "\n".join([*filter(None, [self.head]), *kept]) if kept else ""
        note = f"{left_out:,} of {len(self.lines):,} {self.noun} left out, to stay below {limit_bytes:,} bytes."
        title = f"<details>\n<summary>{self.title}</summary>" if self.folded else f"### {self.title}"
        return "\n\n".join(filter(None, [title, table, note if left_out else "", "</details>" * self.folded]))


def markdown_summary(
    run: SavedRun, failures: Mapping[str, str] | None = None, silent: Mapping[str, str] | None = None
) -> str:
    """Return a run as GitHub Flavored Markdown: what failed, all measurements, the failures' kernels, the machine.

    failures: by node id, a sentence for each test that failed; it is told unless it holds that of one of the test's
    verdicts. silent: by node id, why a test with limits was skipped or xfailed. The summary, encoded as UTF-8, stays
    below SUMMARY_BYTES by leaving out what passed first. No text of a run becomes markup, a link or a mention.
    """
    told = failures or {}
    standings = _standings(run.records, told, silent or {})
    shown = [row for record in run.records for row in rows_of(record)]
    parts = [
        _trouble_part(shown, told, silent or {}),
        _measurement_part([row for row in shown if row.shown], standings),
        _kernel_part([row for row in shown if standings[row.record.nodeid] in ("failed", "invalid")]),
        _machine_part(run),
    ]
    return fit(_headline(run.records, standings), [part for part in parts if part.lines], SUMMARY_BYTES)


def fit(first: str, parts: Sequence[Part], limit_bytes: int) -> str:
    """Return the parts with as many of their lines as there is room for, the most important first."""
    ordered = sorted((rank, nth, at) for nth, part in enumerate(parts) for at, (rank, _) in enumerate(part.lines))

    def with_lines(number: int) -> str:
        kept = {(nth, at) for _, nth, at in ordered[:number]}
        lines = [
            [line for at, (_, line) in enumerate(part.lines) if (nth, at) in kept] for nth, part in enumerate(parts)
        ]
        texts = map(lambda part, own: part.text(own, limit_bytes), parts, lines)
        return "\n\n".join([first, *texts]) + "\n"

    def size(number: int) -> int:
        return len(with_lines(number).encode())

    return with_lines(max(bisect_right(range(len(ordered) + 1), limit_bytes, key=size) - 1, 0))


def _standings(records: Iterable[TestRecord], failures: Mapping[str, str], silent: Mapping[str, str]) -> dict[str, str]:
    order = list(STANDINGS)
    found = dict.fromkeys(silent, "not judged") | dict.fromkeys(failures, "failed")
    for record in records:
        verdicts = [verdict for item in record.measurements for verdict in item.verdicts]
        judged = judged_limits(verdicts)
        counting = (one for one in verdicts if one.outcome is not Outcome.NOT_JUDGED or limit_judged(one) not in judged)
        own = [_standing(one) for one in counting]
        measured = any(item.timing.measured for item in record.measurements)
        own.append("without a limit" if measured else "not measured")
        worst = min([*own, found.get(record.nodeid, order[-1])], key=order.index)
        found[record.nodeid] = worst
    return found


def _standing(verdict: Verdict) -> str:
    if verdict.outcome in (Outcome.FAIL, Outcome.INVALID) and not verdict.enforced:
        return "bad but not enforced"
    words = {Outcome.FAIL: "failed", Outcome.INVALID: "invalid", Outcome.INCONCLUSIVE: "inconclusive"}
    passed = "passed" if verdict.outcome is Outcome.PASS and verdict.enforced else "not judged"
    return words.get(verdict.outcome, passed)


def _headline(records: Sequence[TestRecord], standings: Mapping[str, str]) -> str:
    numbers = Counter(standings.values())
    words = [f"{sign}{numbers[name]} {name}" for name, sign in STANDINGS.items() if numbers[name]]
    devices = dict.fromkeys(record.device for record in records)
    models = [*dict.fromkeys(("the CPU, " * (each.type == "cpu")) + text(each.name, LONGEST_FACT) for each in devices)]
    more = [f"{len(models) - MOST_DEVICES} more"] if len(models) > MOST_DEVICES else []
    where = f" on {' and '.join(models[:MOST_DEVICES] + more)}" if models else ""
    return f"## GPU benchmarks: {', '.join(words) or 'nothing was measured'}{where}"


def _trouble_part(rows: Sequence[Row], failures: Mapping[str, str], silent: Mapping[str, str]) -> Part:
    """Return the INVALID verdicts, then FAIL, INCONCLUSIVE and NOT JUDGED, each with its sentence."""
    judged = [
        (_standing(verdict), _verdict_cell(verdict), row.record.nodeid, variant_text(row), verdict.lines)
        for row in rows
        for verdict in row.measurement.verdicts
        if _standing(verdict) in TROUBLES
    ]
    said: dict[str, list[str]] = {}
    for _, _, nodeid, _, sentences in judged:
        said.setdefault(nodeid, []).append(one_line(sentences[0]))
    told = {nodeid: one_line(sentence) for nodeid, sentence in failures.items()}
    found = [
        ("failed", f"{CROSS}FAIL", nodeid, "", [sentence])
        for nodeid, sentence in told.items()
        if not any(known and known in sentence for known in said.get(nodeid, ()))
    ]
    found += [("not judged", f"{WARNING}NOT JUDGED", nodeid, "", [why]) for nodeid, why in silent.items()]
    lines = [
        (1 + TROUBLES.index(name), table_row([sign, code(nodeid), code(variant), found_cell(why)]))
        for name, sign, nodeid, variant, why in sorted([*found, *judged], key=lambda each: TROUBLES.index(each[0]))
    ]
    return Part("What to look at", table_head(["Verdict", "Test", "Function", "What was found"]), lines, "verdicts")


def _measurement_part(rows: Sequence[Row], standings: Mapping[str, str]) -> Part:
    unit, median = choose_time_unit(times_us(rows)), BY_NAME["median"]
    devices, files = {row.record.device.name for row in rows}, {row.record.nodeid.split("::", 1)[0] for row in rows}
    changes = [row.measurement.change for row in rows]
    against = text(against_title([row.measurement for row in rows]), LONGEST_FACT)
    columns = {
        "Test": [code(row.name if len(files) == 1 else row.record.nodeid) for row in rows],
        "Function": [code(variant_text(row)) for row in rows],
        "Device": [text(row.record.device.name, LONGEST_FACT) for row in rows],
        f"Time ({unit})": [
            median.text(row.measurement, unit)
            + bracketed(median.written(end, unit) for end in median.interval(row.measurement) or ())
            for row in rows
        ],
        f"Reference ({unit})": [reference_text(row, unit, code) for row in rows],
        "Speedup": [speedup_text(row.measurement.speedup) for row in rows],
        against: [_change_text(change) for change in changes],
        "Limit": ["<br>".join(code(verdict.limit) for verdict in row.measurement.verdicts) for row in rows],
        "Verdict": ["<br>".join(map(_verdict_cell, row.measurement.verdicts)) for row in rows],
    }
    left_out = {"Device": len(devices) < 2, against: not any(changes)}
    wanted = {name: cells for name, cells in columns.items() if not left_out.get(name)}
    ranks = [5 if standings[row.record.nodeid] in TROUBLES else 7 for row in rows]
    lines = list(zip(ranks, map(table_row, zip(*wanted.values(), strict=True)), strict=True))
    right = [name for name in wanted if name.startswith(("Time", "Speedup"))]
    title = f"All measurements ({len(rows):,})"
    return Part(title, table_head(list(wanted), right), lines, "measurements", folded=True)


def _kernel_part(rows: Iterable[Row]) -> Part:
    """Return the kernels of failed functions and their references; the first row of each has its name."""
    headers = ["Test", "Function", "Kernel", "Launches", "Time", "Share"]
    arms = [(row, timing) for row in rows for timing in row.arms]
    known = any(kernel.resources for _, timing in arms for kernel in timing.kernels)
    headers += ["Resources"] if known else []
    lines, last = [], ""
    for row, timing in arms:
        for number, each in enumerate(breakdown(timing, MOST_KERNELS_OF_FAILED)):
            nodeid, label = row.record.nodeid, "" if number else timing.label
            name = code(each.name) if each.kernels == 1 else each.name
            whole = [code("" if nodeid == last else nodeid), code(label), name, str(each.launches)]
            whole += [format_time(each.median_us), format_share(each.share), resources_text(each.resources)]
            lines.append((6, table_row(whole[: len(headers)])))
            last = nodeid
    head = table_head(headers, ["Launches", "Time", "Share"])
    return Part("Kernels of what failed", head, lines, "kernels", folded=True)


def _machine_part(run: SavedRun) -> Part:
    python = run.machine_info.get("python_version")
    options = [code(f"{name}={value}", LONGEST_FACT) for name, value in run.settings.items()]
    facts = {name: text(", ".join(values), 2 * LONGEST_FACT) for name, values in run_facts(run).items()} | {
        **{name: text(version, LONGEST_FACT) for name, version in toolchain(run.machine_info).items()},
        "Python": text(python, LONGEST_FACT) if isinstance(python, str) else "",
        "Options": first_few(options, MOST_SETTINGS),
        "Commit": _commit_text(run),
        "Measured": code(run.datetime, LONGEST_FACT),
        "pytest-gpubench": text(run.version, LONGEST_FACT),
    }
    lines = [(0, f"- {name}: {value}") for name, value in facts.items() if value]
    return Part("Machine and commit", "", lines, "facts")


def _commit_text(run: SavedRun) -> str:
    """Return the commit, which GitHub makes a link of, its branch, and whether files differed from it."""
    commit = run.commit_info
    if commit.id is None:
        return f"not known: {text(one_line(commit.error), 2 * LONGEST_FACT)}" if commit.error else ""
    known = re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", commit.id)
    branch = f"on {code(commit.branch, LONGEST_FACT)}" if commit.branch else ""
    dirty = "with changes that are not committed" if commit.dirty else ""
    return " ".join(filter(None, [commit.id if known else code(commit.id, LONGEST_FACT), branch, dirty]))


def found_cell(sentences: Sequence[str]) -> str:
    """Return what was found and its reasons, a line each."""
    return "<br>".join(text(one_line(each), LONGEST_SENTENCE) for each in sentences)


def _verdict_cell(verdict: Verdict) -> str:
    return STANDINGS[_standing(verdict)] + outcome_text(verdict)


def _change_text(change: PastChange | None) -> str:
    """Return the change since an older measurement: above 1 is slower."""
    if change is None:
        return ""
    if change.metric == SAME_CODE:
        return SAME_CODE
    whose = "relative time" if change.metric == "speedup" else text(change.metric, LONGEST_FACT)
    return f"{ratio_text(change.ratio, change.interval)} of its {whose}, was {format_time(change.old_us)}"
