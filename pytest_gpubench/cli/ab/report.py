"""Output of a comparison of two commits: lines for a terminal, Markdown for a comment, JSON, and a page."""

import argparse
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pytest_gpubench.cli import INTERRUPTED
from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.cli.ab.comparison import CommitComparison
from pytest_gpubench.cli.compare import change_values
from pytest_gpubench.cli.output import table, write
from pytest_gpubench.report.html.page import html_page
from pytest_gpubench.report.layout import Column
from pytest_gpubench.report.markdown import CROSS, TICK, WARNING, Part, fit, found_cell
from pytest_gpubench.report.markdown_text import code, table_head, table_row, text
from pytest_gpubench.results.counterpart import FactChange, by_test
from pytest_gpubench.results.files import write_text
from pytest_gpubench.results.model import WORST_FIRST, Measurement, Outcome, Verdict
from pytest_gpubench.units import count, printable, ratio_text
from pytest_gpubench.verdict.limits import worst_first
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.rounds import COMMIT_ARMS, CommitArm
from pytest_gpubench.verdict.saved_runs import with_change

SIGNS = {Outcome.FAIL: CROSS, Outcome.INVALID: CROSS, Outcome.INCONCLUSIVE: WARNING, Outcome.PASS: TICK}
TITLE = "## Performance of HEAD against BASE"
COMMENT_BYTES = 60_000
"""A comment on GitHub has at most 65,536 characters."""


def write_report(
    found: CommitComparison, checkouts: Mapping[CommitArm, Checkout], arguments: argparse.Namespace
) -> None:
    """Write the comparison to the terminal, and to the files that the arguments name."""
    packages = list(zip(*_differing_packages(checkouts), strict=True))
    columns = [Column(name, cells) for name, cells in zip(("Package", "BASE", "HEAD"), packages, strict=False)]
    write("\n".join([*([*table(columns), ""] if columns else []), *report_lines(found.changes)]))
    for path, form in (
        (arguments.markdown, markdown_text),
        (arguments.json, _findings_json),
        (arguments.html, _page_text),
    ):
        if path:
            write_text(form(found, checkouts), Path(path))


def _differing_packages(checkouts: Mapping[CommitArm, Checkout]) -> list[FactChange]:
    """Return the packages that differ between the environments of two checkouts."""
    base, head = checkouts["BASE"].packages, checkouts["HEAD"].packages
    return [(name, was, head[name]) for name, was in base.items()]


def exit_status(changes: Sequence[Change]) -> int:
    """Return 1 where something failed, 2 where nothing was compared, 1 where something is INVALID, else 0."""
    outcomes = {each.outcome for each in changes}
    if Outcome.FAIL in outcomes:
        return 1
    return int(Outcome.INVALID in outcomes) if any(each.estimate is not None for each in changes) else 2


def report_lines(changes: Sequence[Change]) -> list[str]:
    """Return a line for each change, the worst first, and a line of how many there are of each."""
    width = max(len(outcome.value) for outcome in WORST_FIRST)
    lines = []
    for each in _worst_first(changes):
        label = f" [{each.label}]" if each.label else ""
        first, *others = each.lines
        lines.append(printable(f"{each.outcome.value.upper():{width}}  {each.nodeid}{label}: {first}"))
        lines += [printable(f"{'':{width}}  {other}") for other in others]
    return [*lines, f"gpu_bench: {_counts(changes)}"]


def _worst_first(changes: Sequence[Change]) -> list[Change]:
    return sorted(changes, key=lambda each: (-each.outcome.badness, -each.estimate.ratio if each.estimate else 0.0))


def _counts(changes: Sequence[Change]) -> str:
    compared = sum(each.estimate is not None for each in changes)
    if not compared:
        return "nothing was compared: no measurement is in both versions"
    numbers = Counter(each.outcome for each in changes)
    told = ", ".join(f"{numbers[outcome]} {outcome.value}" for outcome in WORST_FIRST if numbers[outcome])
    return f"{count(compared, 'measurement')} compared: {told}"


# Markdown


def markdown_text(found: CommitComparison, checkouts: Mapping[CommitArm, Checkout]) -> str:
    """Return the comparison as GitHub Flavored Markdown, short enough for a comment."""
    status = INTERRUPTED if found.interrupted else exit_status(found.changes)
    first = [
        f"{TITLE}: {CROSS if status else TICK}{_counts(found.changes)}",
        "",
        *(f"- {arm}: {text(checkout.title)}" for arm, checkout in checkouts.items()),
        f"- tolerance {found.plan.tolerance}, alpha {found.plan.alpha:g}, {count(found.rounds, 'round')}",
        *(f"- {words}" for words in [found.noise_words(found.rounds)] if words),
        *([f"- {found.interrupted_words}"] if found.interrupted else []),
    ]
    head = table_head(["Package", *COMMIT_ARMS])
    packages = [(1, table_row([code(name), text(was), text(now)])) for name, was, now in _differing_packages(checkouts)]
    changes = _worst_first(found.changes)
    trouble = [each for each in changes if each.outcome in WORST_FIRST[:3]]
    unjudged = [each for each in changes if each.outcome is Outcome.NOT_JUDGED]
    parts = [
        _sentences("What to look at", trouble, 1),
        Part(f"Packages that differ ({len(packages):,})", head, packages, "packages", folded=True),
        _sentences("Does not count", unjudged, 2),
        _table(changes),
    ]
    return fit("\n".join(first), [part for part in parts if part.lines], COMMENT_BYTES)


def _sentences(title: str, changes: Sequence[Change], rank: int) -> Part:
    head = table_head(["Verdict", "Test", "Function", "What was found"])
    cells = ([_outcome_word(each), code(each.nodeid), code(each.label), found_cell(each.lines)] for each in changes)
    return Part(title, head, [(rank, table_row(row)) for row in cells], "findings")


def _table(changes: Sequence[Change]) -> Part:
    rows = [
        [
            _outcome_word(each),
            code(each.nodeid),
            code(each.label),
            *change_values(estimate),
            ratio_text(estimate.ratio, estimate.interval),
        ]
        for each in changes
        if (estimate := each.estimate) is not None
    ]
    right = ["BASE", "HEAD", "Slowdown"]
    head = table_head(["Verdict", "Test", "Function", *right], right)
    title = f"All measurements ({len(rows):,})"
    return Part(title, head, [(3, table_row(row)) for row in rows], "measurements", folded=True)


def _outcome_word(change: Change) -> str:
    return SIGNS.get(change.outcome, "") + change.outcome.value.upper()


# JSON, and the page


def _findings_json(found: CommitComparison, checkouts: Mapping[CommitArm, Checkout]) -> str:
    """Return the comparison as JSON."""
    noise = found.noise
    content = {
        "exit_status": INTERRUPTED if found.interrupted else exit_status(found.changes),
        "interrupted": found.interrupted,
        "runs": len(found.runs),
        "base": checkouts["BASE"].title,
        "head": checkouts["HEAD"].title,
        "packages": [{"name": name, "base": was, "head": now} for name, was, now in _differing_packages(checkouts)],
        "tolerance": str(found.plan.tolerance),
        "alpha": found.plan.alpha,
        "rounds": found.rounds,
        "spread_between_runs": noise and noise.spread,
        "smallest_change": noise and found.smallest_change(noise, found.rounds),
        "findings": [_json_of(each) for each in _worst_first(found.changes)],
    }
    return json.dumps(content, indent=1) + "\n"


def _json_of(change: Change) -> dict[str, object]:
    estimate = change.estimate
    content: dict[str, object] = {
        "test": change.nodeid,
        "function": change.label,
        "outcome": change.outcome.value,
        "sentence": change.sentence,
        "reasons": list(change.reasons),
    }
    if estimate is None:
        return content
    slowdown, *ends = (each if math.isfinite(each) else None for each in (estimate.ratio, *(estimate.interval or ())))
    numbers = {"metric": estimate.metric, "base": estimate.old, "head": estimate.new, "slowdown": slowdown}
    return content | numbers | {"interval": ends or None}


def _page_text(found: CommitComparison, checkouts: Mapping[CommitArm, Checkout]) -> str:
    """Return a page of each test's last run of HEAD with the verdicts of the comparison, beside its last of BASE."""
    judged = {id(each.new): each for each in found.changes if each.new is not None}

    def with_verdict(item: Measurement) -> Measurement:
        change = judged.get(id(item))
        if change is None:
            return item
        own = Verdict(
            kind="compare_fail",
            asked=str(found.plan.tolerance),
            outcome=change.outcome,
            sentence=change.sentence,
            reasons=change.reasons,
        )
        return worst_first(msgspec.structs.replace(with_change(item, change, "BASE"), verdicts=(*item.verdicts, own)))

    shown = []
    for arm, checkout in checkouts.items():
        runs = [each.run for each in found.runs if each.arm == arm]
        last = {key: taken for run in runs for key, taken in by_test(run.records).items()}
        records = tuple(
            msgspec.structs.replace(record, measurements=tuple(map(with_verdict, record.measurements)))
            for taken in last.values()
            for record in taken
        )
        shown.append(msgspec.structs.replace(runs[-1], records=records, name=checkout.title))
    base, head = shown
    return html_page(head, base)
