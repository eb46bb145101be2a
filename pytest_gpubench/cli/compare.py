"""`pytest-gpubench compare`: what became slower from one saved run to another, and how certain that is."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpubench.cli.arguments import chance, checked
from pytest_gpubench.cli.output import table, write
from pytest_gpubench.cli.saved import RUN_HELP, add_parser, add_storage, find_paths, run_title
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.units import count, format_time, printable, round_to_digits

if TYPE_CHECKING:
    from pytest_gpubench.report.layout import Column
    from pytest_gpubench.results.model import SavedRun
    from pytest_gpubench.stats.tolerance import RegressionTolerance
    from pytest_gpubench.verdict.saved_runs import Finding

EXAMPLES = """compare main latest
compare old.json new.json --fail-slower 5% --sort --only-changes
compare main latest --metric speedup --fail-slower 1% --inconclusive=fail"""
METRICS = ("median", "speedup", "mean", "q1", "q3")
SPEEDUP_RATIO = "Slowdown"
"""The ratio's header where speedups are compared: of them it is old / new, of times new / old."""
WORDS = {"no test": "new", "renamed": "renamed", "parameters": "other parameters", "source": "test changed"}
MOST_LINES = 20
"""Sentences of one kind that are written without --verbose."""
STYLES = {"FAIL": "bold red", "INVALID": "bold red", "INCONCLUSIVE": "yellow"}


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = add_parser(commands, "compare", "compare two saved runs; exit 1 where the new one is slower", EXAMPLES)
    parser.add_argument("old", metavar="OLD", help=RUN_HELP)
    parser.add_argument("new", metavar="NEW", help="likewise")
    parser.add_argument(
        "--fail-slower", metavar="SHARE", default="3%", help="how much slower is too slow: 3%%, 5us (default: 3%%)"
    )
    parser.add_argument("--metric", choices=METRICS, default="median", help="what is compared (default: median)")
    parser.add_argument(
        "--alpha",
        type=checked(chance),
        default=0.001,
        metavar="FRACTION",
        help="the chance of a wrong FAIL (default: 0.001)",
    )
    parser.add_argument("--sort", action="store_true", help="the slowest first, not in the order of the new run")
    parser.add_argument("--only-changes", action="store_true", help="leave out what is not known to have changed")
    parser.add_argument("--verbose", action="store_true", help="all notes, and what was not judged")
    parser.add_argument(
        "--inconclusive", choices=("fail", "warn"), default="warn", help="what a comparison without a decision does"
    )
    parser.add_argument(
        "--host-mismatch",
        choices=("error", "warn", "ignore"),
        default="error",
        help="what a GPU that only one run has, or a test that was measured with another timer, does (default: error)",
    )
    add_storage(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write what became of each measurement; 1 for a regression, or where nothing could be compared."""
    from pytest_gpubench.results.baseline import slimmed
    from pytest_gpubench.results.store import read_run
    from pytest_gpubench.stats.tolerance import parse_tolerance
    from pytest_gpubench.verdict.saved_runs import compare_runs

    tolerance = parse_tolerance(f"{arguments.metric}:{arguments.fail_slower}")
    old_paths, new_paths = find_paths(arguments.old, arguments), find_paths(arguments.new, arguments)
    pairs = pair(old_paths, new_paths)
    refuse_other_devices(unpaired(old_paths, pairs), unpaired(new_paths, pairs), arguments.host_mismatch)
    statuses = []
    for old_path, new_path in pairs:
        old, new = slimmed(read_run(old_path)), slimmed(read_run(new_path))
        names = (old.name or old_path.name, new.name or new_path.name)
        findings = compare_runs(old, new, tolerance, arguments.alpha, *names)
        refuse_other_hosts(findings, arguments.host_mismatch)
        refuse_other_devices(lost_devices(old, new), (), arguments.host_mismatch)
        write("\n".join(report(findings, titles((old_path, old), (new_path, new)), tolerance, arguments)))
        statuses.append(status_of(findings, arguments))
    return max(statuses)


def pair(old: Sequence[Path], new: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return which old file each new one is compared with: that of the same device where there are several.

    Raises BadRequest where there are several and none are of one device.
    """
    if len(old) == len(new) == 1:
        return [(old[0], new[0])]
    folders = {path.parent.name: path for path in old}
    pairs = [(folders[path.parent.name], path) for path in new if path.parent.name in folders]
    if not pairs:
        there = [", ".join(path.parent.name for path in paths) for paths in (old, new)]
        raise BadRequest(f"the old run is of {there[0]}, the new one of {there[1]}: name two files of one device")
    return pairs


def unpaired(paths: Iterable[Path], pairs: Iterable[tuple[Path, Path]]) -> list[str]:
    """Return the devices of the files that are in no pair."""
    paired = {path for both in pairs for path in both}
    return [path.parent.name for path in paths if path not in paired]


def lost_devices(old: "SavedRun", new: "SavedRun") -> list[str]:
    """Return the devices that the new run lacks; none where they share none, which the findings tell."""
    before, now = ({record.device.name for record in run.records} for run in (old, new))
    return sorted(before - now) if before & now else []


def refuse_other_devices(old: Sequence[str], new: Sequence[str], what_to_do: str) -> None:
    """Say which devices only the old or only the new run has, or raise BadRequest."""
    words = [f"only the {which} run has {', '.join(names)}" for which, names in (("old", old), ("new", new)) if names]
    if words:
        sentence = f"{' and '.join(words)}: what was measured there is not compared"
        tell_or_refuse(printable(sentence), what_to_do)


def refuse_other_hosts(findings: "Iterable[Finding]", what_to_do: str) -> None:
    """Say that tests were measured in ways that cannot be compared, or raise BadRequest."""
    found = [each for each in findings if each.missing is not None and each.missing.kind == "host"]
    if found:
        tests = count(len({each.nodeid for each in found}), "test")
        first = f"{printable(found[0].nodeid)} first: {found[0].sentence}"
        tell_or_refuse(f"{tests} cannot be compared, {first}", what_to_do)


def tell_or_refuse(sentence: str, what_to_do: str) -> None:
    """Say what is not compared on standard error, or raise BadRequest; nothing is said where it is to be ignored."""
    if what_to_do == "error":
        raise BadRequest(f"{sentence} (--host-mismatch=warn compares the others)")
    if what_to_do == "warn":
        print(f"pytest-gpubench compare: {sentence}", file=sys.stderr)


def status_of(findings: "Iterable[Finding]", arguments: argparse.Namespace) -> int:
    """Return 1 where something failed, or nothing was compared; else 0."""
    from pytest_gpubench.results.model import Outcome

    bad = {Outcome.FAIL, Outcome.INVALID} | ({Outcome.INCONCLUSIVE} if arguments.inconclusive == "fail" else set())
    compared = [each for each in findings if each.change is not None]
    return int(not compared or any(each.outcome in bad for each in findings))


def titles(*runs: "tuple[Path, SavedRun]") -> list[str]:
    """Return a line for each run."""
    return [f"{which}: {run_title(*run)}" for which, run in zip(("old", "new"), runs, strict=True)]


def report(
    findings: "Sequence[Finding]", head: Sequence[str], tolerance: "RegressionTolerance", arguments: argparse.Namespace
) -> list[str]:
    """Return the lines of a comparison: runs, table, what to mind, and the counts last."""
    shown = [each for each in findings if is_shown(each, arguments)]
    if arguments.sort:
        shown.sort(key=lambda each: -each.change.ratio if each.change is not None else 0.0)
    lines = table(columns_of(shown, arguments.metric)) if shown else ["nothing to show"]
    notes = note_lines(findings, None if arguments.verbose else MOST_LINES)
    return [*map(printable, head), "", *lines, "", *notes, total(findings, tolerance, arguments.alpha)]


def is_shown(finding: "Finding", arguments: argparse.Namespace) -> bool:
    """Tell whether a finding has a row; a reference has one where it has changed itself."""
    from pytest_gpubench.results.model import Outcome

    has_changed = is_known_to_differ(finding)
    if is_reference(finding) and finding.change is not None:
        return has_changed or bool(arguments.verbose)
    if word_of(finding) == "not measured":
        return bool(arguments.verbose)
    return not arguments.only_changes or has_changed or finding.outcome is not Outcome.PASS


def is_known_to_differ(finding: "Finding") -> bool:
    """Tell whether the interval of the ratio leaves 1 out."""
    interval = finding.change.interval if finding.change is not None else None
    return interval is not None and not interval.low <= 1 <= interval.high


def is_reference(finding: "Finding") -> bool:
    """Tell whether a measurement is a reference, which is not judged."""
    measurement = finding.new or finding.old
    return measurement is not None and measurement.role == "reference"


def columns_of(shown: "Sequence[Finding]", metric: str) -> "list[Column]":
    """Return the columns of the table, every row in the colour of its verdict."""
    from pytest_gpubench.report.layout import Column

    words = list(map(word_of, shown))
    styles = [STYLES.get(word, "") for word in words]
    functions = [f"{each.label}{example_of(each)}" for each in shown]
    old, new = zip(*map(values_of, shown), strict=True)
    ratio = SPEEDUP_RATIO if metric == "speedup" else "New / old"
    brief = Column(ratio, [ratio_of(each, brief=True) for each in shown], styles)
    return [
        Column("Verdict", words, styles),
        Column("Test", [each.nodeid for each in shown], styles, least=16),
        Column("Function", functions, styles, least=8),
        Column("Old", old, styles, right=True, rank=2),
        Column("New", new, styles, right=True, rank=1),
        Column(ratio, [ratio_of(each) for each in shown], styles, rank=3, short=brief),
    ]


def example_of(finding: "Finding") -> str:
    """Return which example of hypothesis a measurement is of; empty where it is of none."""
    measurement = finding.new or finding.old
    return f" at {measurement.example}" if measurement is not None and measurement.example else ""


def values_of(finding: "Finding") -> tuple[str, str]:
    """Return the old and the new statistic; the medians where they were not compared."""
    change = finding.change
    if change is not None and change.metric == "speedup":
        return f"{round_to_digits(change.old, 4)}x", f"{round_to_digits(change.new, 4)}x"
    if change is not None:
        return format_time(change.old), format_time(change.new)
    old, new = (
        format_time(each.timing.median_us) if each is not None and each.timing.measured else "-"
        for each in (finding.old, finding.new)
    )
    return old, new


def ratio_of(finding: "Finding", brief: bool = False) -> str:
    """Return the ratio with its interval, unless brief."""
    from pytest_gpubench.report.cells import ratio_text

    change = finding.change
    return "-" if change is None else ratio_text(change.ratio, None if brief else change.interval)


def word_of(finding: "Finding") -> str:
    """Return the verdict, or why there is none."""
    from pytest_gpubench.results.model import Outcome

    if finding.outcome is not Outcome.NOT_JUDGED:
        return str(finding.outcome.value).upper()
    if finding.missing is not None:
        return WORDS.get(finding.missing.kind, "not alike")
    if finding.new is None:
        return "gone"
    return "reference" if finding.change is not None else "not measured"


def note_lines(findings: "Iterable[Finding]", most: int | None) -> list[str]:
    """Return what to mind: the sentences of what was not compared, failed or could not be told, and all notes.

    most: sentences of one kind; None is all.
    """
    kinds: dict[str, Counter[str]] = {}
    for finding in findings:
        word = word_of(finding)
        if word not in ("PASS", "reference"):
            sentence = (
                finding.sentence if finding.nodeid in finding.sentence else f"{finding.nodeid}: {finding.sentence}"
            )
            kinds.setdefault(word, Counter())[sentence] += 1
        for note in finding.notes:
            stale = note.startswith("baseline stale")
            text = f"{finding.nodeid}: {note}" if stale else note
            kinds.setdefault("note", Counter())[text] += 1
    return [line for kind, sentences in kinds.items() for line in few_lines(kind, sentences, most)]


def few_lines(kind: str, sentences: Counter[str], most: int | None) -> list[str]:
    """Return the sentences of a kind, so many at most, and how many more there are."""
    told = list(sentences.items())[:most]
    lines = [f"{kind}: {text}" + (f" ({times} times)" if times > 1 else "") for text, times in told]
    more = len(sentences) - len(told)
    return [*map(printable, lines), *([f"{kind}: {more} more (--verbose tells all)"] if more else [])]


def total(findings: "Iterable[Finding]", tolerance: "RegressionTolerance", alpha: float) -> str:
    """Return how many measurements were judged how."""
    words = Counter(word_of(finding) for finding in findings)
    first = [word for word in ("FAIL", "INVALID", "INCONCLUSIVE", "PASS") if word in words]
    ordered = [*first, *(word for word in words if word not in first)]
    counts = ", ".join(f"{words[word]} {word}" for word in ordered) or "nothing to compare"
    return f"{counts} ({tolerance}, alpha {alpha:g})"
