"""`pytest-gpubench compare`: what became slower from one saved run to another, and how certain that is."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from pytest_gpubench.cli.arguments import RUN_HELP, add_alpha, add_storage
from pytest_gpubench.cli.output import complain, table, write
from pytest_gpubench.cli.saved import find_baselines, run_title, storage_of
from pytest_gpubench.counters import COUNTER_BY_NAME, is_counter
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.metrics import BY_NAME
from pytest_gpubench.report.layout import WIDE, Column
from pytest_gpubench.report.rows import STYLES
from pytest_gpubench.results.baseline import Baseline, toolchain
from pytest_gpubench.results.counterpart import Missing, PastTest, by_key, by_test, keys_of
from pytest_gpubench.results.model import WORST_FIRST, Measurement, Outcome, SavedRun, TestRecord, Timing
from pytest_gpubench.results.store import read_run
from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.tolerance import COMPARED_METRICS, RegressionTolerance, tolerance_of
from pytest_gpubench.units import count, printable, ratio_text, safe_line
from pytest_gpubench.verdict.limits.counters import number_text
from pytest_gpubench.verdict.reasons import explained_change
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.saved_runs import invalidated
from pytest_gpubench.verdict.sessions import compare_with_saved
from pytest_gpubench.verdict.throttling import what_slowed

ABOUT = "compare two saved runs; exit 1 where the new one is slower"
EXAMPLES = """compare main latest
compare old.json new.json --fail-slower 5% --sort --only-changes
compare main latest --metric speedup --fail-slower 1% --inconclusive=fail"""
MISSING_WORDS = {"no test": "new", "renamed": "renamed", "parameters": "other parameters", "source": "test changed"}
BAD = {Outcome.FAIL, Outcome.INVALID}
UNCOLOURED = (Outcome.PASS, Outcome.NOT_JUDGED)
MOST_SENTENCES = 20
"""Sentences of one kind that are written without --verbose."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help=RUN_HELP)
    parser.add_argument("new", metavar="NEW", help="likewise")
    parser.add_argument(
        "--fail-slower", metavar="SHARE", default="3%", help="how much slower is too slow: 3%%, 5us (default: 3%%)"
    )
    help = "what is compared: a statistic of times, or a counter that both runs have (default: median)"
    parser.add_argument("--metric", choices=(*COMPARED_METRICS, *COUNTER_BY_NAME), default="median", help=help)
    add_alpha(parser, 0.001, "the chance of a wrong FAIL")
    parser.add_argument("--sort", action="store_true", help="the slowest first, not in the order of the new run")
    parser.add_argument("--only-changes", action="store_true", help="leave out what is not known to have changed")
    parser.add_argument("--verbose", action="store_true", help="all notes, and what was not judged")
    parser.add_argument(
        "--inconclusive", choices=("fail", "warn"), default="warn", help="what a comparison without a decision does"
    )
    help = "what a GPU that only one run has, or a test that was measured with another timer, does (default: error)"
    parser.add_argument("--host-mismatch", choices=("error", "warn", "ignore"), default="error", help=help)
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the change of each measurement; 1 for a regression, or where nothing could be compared."""
    tolerance = tolerance_of(arguments.metric, arguments.fail_slower)
    mismatch = arguments.host_mismatch
    statuses = []
    errors: list[str] = []
    olds = find_baselines(arguments.old, arguments, errors)
    complain("compare", errors)
    for path, new_path in _pair([*olds], storage_of(arguments).find(arguments.new), mismatch):
        *older, old = olds[path]
        new = read_run(new_path)
        new = structs.replace(new, name=new.name or new_path.name)
        changes = compare_runs(old, new, tolerance, arguments.alpha, older)
        unlike = [each for each in changes if each.missing is not None and each.missing.kind == "host"]
        if unlike:
            tests = count(len({each.nodeid for each in unlike}), "test")
            first = f"{printable(unlike[0].nodeid)} first: {unlike[0].sentence}"
            _warn_or_refuse(f"{tests} cannot be compared, {first}", mismatch)
        before = {record.device.name for run in olds[path] for record in run.records}
        now = {record.device.name for record in new.records}
        if shared := before & now:  # where they share none, the changes tell it
            _refuse_other_devices(sorted(before), sorted(shared), mismatch)
        added = f"; {count(sum(len(run.records) for run in older), 'test')} of older runs" if older else ""
        known = {record.nodeid for run in olds[path] for record in run.records}
        names = [name for name in new.left_out if name in known]
        left_out = f"; {count(len(names), 'test')} not measured, {names[0]} first" if names else ""
        head = [f"old: {run_title(path, old)}{added}", f"new: {run_title(new_path, new)}{left_out}"]
        write("\n".join([*map(safe_line, head), "", *_report(changes, tolerance, arguments)]))
        outcomes = {each.outcome for each in changes}
        is_bad = outcomes & BAD or (arguments.inconclusive == "fail" and Outcome.INCONCLUSIVE in outcomes)
        statuses.append(int(bool(is_bad) or all(each.estimate is None for each in changes)))
    return max(statuses)


# pairs of runs


def _pair(old: Sequence[Path], new: Sequence[Path], mismatch: str) -> list[tuple[Path, Path]]:
    """Return which old file each new one is compared with: that of the same device where there are several.

    Raises BadRequest where there are several and none are of one device.
    """
    if len(old) == len(new) == 1:
        return [(old[0], new[0])]
    olds, news = ({path.parent.name: path for path in paths} for paths in (old, new))
    if not olds.keys() & news.keys():
        there = f"the old run is of {', '.join(olds)}, the new one of {', '.join(news)}"
        raise BadRequest(f"{there}: name two files of one device")
    _refuse_other_devices(list(olds), list(news), mismatch)
    return [(olds[name], path) for name, path in news.items() if name in olds]


def _refuse_other_devices(old: Sequence[str], new: Sequence[str], mismatch: str) -> None:
    both = ("old", [name for name in old if name not in new]), ("new", [name for name in new if name not in old])
    words = [f"only the {which} run has {', '.join(names)}" for which, names in both if names]
    if words:
        _warn_or_refuse(printable(f"{' and '.join(words)}: what was measured there is not compared"), mismatch)


def _warn_or_refuse(sentence: str, mismatch: str) -> None:
    if mismatch == "error":
        raise BadRequest(f"{sentence} (--host-mismatch=warn compares the others)")
    if mismatch == "warn":
        complain("compare", [sentence])


# output


def _report(changes: Sequence[Change], tolerance: RegressionTolerance, arguments: argparse.Namespace) -> list[str]:
    shown = [each for each in changes if _is_shown(each, arguments)]
    if arguments.sort:
        shown.sort(key=lambda each: -each.estimate.ratio if each.estimate is not None else 0.0)
    lines = table(_change_columns(shown, arguments.metric)) if shown else ["nothing to show"]
    notes = _note_lines(changes, None if arguments.verbose else MOST_SENTENCES)
    words = Counter(map(_word, changes))
    ordered = dict.fromkeys([*(outcome.value.upper() for outcome in WORST_FIRST), *words])
    counts = ", ".join(f"{words[word]} {word}" for word in ordered if words[word]) or "nothing to compare"
    return [*lines, "", *notes, f"{counts} ({tolerance}, alpha {arguments.alpha:g})"]


def _is_shown(change: Change, arguments: argparse.Namespace) -> bool:
    """Tell whether a change has a row; a reference has one where it has changed itself."""
    interval = change.estimate.interval if change.estimate is not None else None
    has_changed = interval is not None and not interval.low <= 1 <= interval.high
    word = _word(change)
    if word in ("reference", "not measured"):
        return arguments.verbose or (word == "reference" and has_changed)
    return not arguments.only_changes or has_changed or change.outcome is not Outcome.PASS


def _change_columns(shown: Sequence[Change], metric: str) -> list[Column]:
    """Return the columns of the table, every row in the colour of its verdict."""
    words = list(map(_word, shown))
    styles = ["" if each.outcome in UNCOLOURED else STYLES[each.outcome] for each in shown]
    median = BY_NAME["median"]
    old, new = zip(
        *(
            change_values(each.estimate)
            if each.estimate
            else [median.told(item and median.value(item)) for item in (each.old, each.new)]
            for each in shown
        ),
        strict=True,
    )
    ratio = "Slowdown" if metric == "speedup" else "New / old"  # of speedups it is old / new
    estimates = [each.estimate for each in shown]
    long = [ratio_text(each.ratio, each.interval) if each else "-" for each in estimates]
    short = [ratio_text(each.ratio) if each else "-" for each in estimates]
    tests = Column("Test", [each.nodeid for each in shown], styles)
    measured = [each.new or each.old for each in shown]
    examples = [f" at {item.example}" if item is not None and item.example else "" for item in measured]
    functions = [f"{each.label}{example}" for each, example in zip(shown, examples, strict=True)]
    labels = Column("Function", functions, styles)
    return [
        Column("Verdict", words, styles),
        replace(tests, rank=6, short=tests.moved(may_wrap=False)),
        replace(labels, rank=5, short=labels.moved(WIDE, rank=4, short=labels.moved())),
        Column("Old", old, styles, right=True, rank=2),
        Column("New", new, styles, right=True, rank=1),
        Column(ratio, long, styles, rank=3, short=Column(ratio, short, styles)),
    ]


def change_values(estimate: ChangeEstimate) -> tuple[str, str]:
    """Return the old and the new statistic of a change."""
    if is_counter(estimate.metric):
        return number_text(estimate.metric, estimate.old), number_text(estimate.metric, estimate.new)
    metric = BY_NAME[estimate.metric]
    return metric.told(estimate.old), metric.told(estimate.new)


def _word(change: Change) -> str:
    if change.outcome is not Outcome.NOT_JUDGED:
        return str(change.outcome.value).upper()
    if change.missing is not None:
        return MISSING_WORDS.get(change.missing.kind, "not alike")
    if change.new is None:
        return "gone"
    return "reference" if change.estimate is not None else "not measured"


def _note_lines(changes: Iterable[Change], most: int | None) -> list[str]:
    """Return the sentences about what was not compared, failed or is INCONCLUSIVE, and all notes; most: of one kind."""
    kinds: dict[str, Counter[str]] = {outcome.value.upper(): Counter() for outcome in WORST_FIRST}
    for change in changes:
        word, sentence = _word(change), "; ".join(change.lines)
        if word not in ("PASS", "reference"):
            told = sentence if change.nodeid in sentence else f"{change.nodeid}: {sentence}"
            kinds.setdefault(word, Counter())[told] += 1
        for note in change.notes:
            stale = note.startswith("baseline stale")
            kinds.setdefault("note", Counter())[f"{change.nodeid}: {note}" if stale else note] += 1
    lines = []
    for kind, found in kinds.items():
        first = list(found.items())[:most]
        lines += [f"{kind}: {text}" + (f" ({times} times)" if times > 1 else "") for text, times in first]
        lines += [f"{kind}: {len(found) - len(first)} more (--verbose tells all)"] if len(found) > len(first) else []
    return list(map(printable, lines))


def compare_runs(
    old: SavedRun, new: SavedRun, tolerance: RegressionTolerance, alpha: float, older: Sequence[SavedRun] = ()
) -> list[Change]:
    """Return the change of every measurement, in the order of the new run; what is gone comes last.

    Tests that the new run left out are not gone. older: runs with the tests that the old one left out. Each FAIL is
    wrong with probability at most alpha. Nothing is raised for runs of different GPUs: their changes say so
    (`Change.missing`).
    """
    others = {record.nodeid for record in new.records}
    baseline = Baseline([(each.name, each) for each in (*older, old)], others)
    installed = toolchain(new.machine_info)
    changes: list[Change] = []
    renamed: set[str] = set()
    earlier = by_test(new.earlier)
    for record in new.records:
        past = baseline.find(record.nodeid, record.source, record.device, record.params, installed)
        if isinstance(past, Missing):
            if past.kind == "renamed" and past.nodeids[0] not in renamed:  # tests of the same content share them
                renamed.update(past.nodeids)
            unjudged = Change(record.nodeid, "", Outcome.NOT_JUDGED, past.sentence, missing=past)
            changes += [replace(unjudged, label=each.timing.label, new=each) for each in record.measurements]
        else:
            changes += _with_past(record, past, tolerance, alpha, earlier.get(record.key, ()))
            there = set(keys_of(record.measurements))
            changes += [_gone(past, item, new.name) for key, item in past.by_key.items() if key not in there]
    there_still = others.union(renamed, new.left_out)
    gone = (past for past in baseline.tests() if past.nodeid not in there_still)
    return changes + [_gone(past, item, new.name) for past in gone for item in past.measurements]


def _with_past(
    record: TestRecord,
    past: PastTest,
    tolerance: RegressionTolerance,
    alpha: float,
    earlier: Sequence[TestRecord],
) -> Iterator[Change]:
    sessions = [by_key(each.measurements) for each in earlier]
    references: dict[tuple[str, str], Timing] = {}
    drifts: dict[tuple[str, str], str] = {}
    """The sentence that a reference is slower too, by its label and example."""
    for key, item in by_key(record.measurements).items():
        before = [session[key] for session in sessions if key in session]
        change = compare_with_saved(record.nodeid, key, item, past, tolerance, alpha, before, can_confirm=False)
        if key.role == "reference":
            references[key.label, key.example] = item.timing
            estimate = change.estimate
            if estimate is not None and estimate.interval is not None and estimate.interval.low > 1:
                drifts[key.label, key.example] = (
                    f"its reference {printable(change.label)} is slower too, {ratio_text(estimate.ratio)} of its "
                    f"{estimate.metric}: where clocks or drivers have drifted, a tolerance of the speedup is not misled"
                )
        is_slower_time = change.outcome is Outcome.FAIL and change.estimate and change.estimate.metric != "speedup"
        drift = drifts.get((key.reference, key.example), "") if is_slower_time else ""
        reference = references.get((key.reference, key.example))
        change = invalidated(change, tolerance, item.timing, reference, record.throttled)
        slowed = what_slowed(item.timing, "now") if change.estimate else []
        change = replace(change, notes=(*change.notes, *slowed, *filter(None, [drift])))
        yield explained_change(change, past.changed)


def _gone(past: PastTest, item: Measurement, new_name: str) -> Change:
    label = item.timing.label
    sentence = (
        f"{printable(label)} of {printable(past.nodeid)} is in {past.baseline!r} but not in {new_name}: "
        "it was removed, renamed or not measured"
    )
    return Change(past.nodeid, label, Outcome.NOT_JUDGED, sentence, old=item)
