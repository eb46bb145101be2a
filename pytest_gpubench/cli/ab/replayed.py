"""`pytest-gpubench bisect --replay`: the saved run in which a test became slower, by the calls that runs have kept."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from pytest_gpubench.cli.ab.report import report_lines
from pytest_gpubench.cli.output import complain, say, write
from pytest_gpubench.cli.saved import commit_text, find_path, matches, read_each, storage_of
from pytest_gpubench.errors import BadRequest, GpuBenchError, first_line
from pytest_gpubench.results.baseline import differences, toolchain
from pytest_gpubench.results.counterpart import by_run_key, changes_text
from pytest_gpubench.results.model import DeviceFacts, Measurement, Outcome, SavedRun
from pytest_gpubench.results.provenance import minute_text
from pytest_gpubench.results.store import Stored
from pytest_gpubench.results.store.calls import CallStore
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.cache import CacheName
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, printable
from pytest_gpubench.verdict.reasons import reasons
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.replays import REPLAYED, Replay, replayed_change

Answer = Literal["good", "bad", "skip"]
ANSWERS: dict[Outcome, Answer] = {Outcome.PASS: "good", Outcome.FAIL: "bad"}
CACHES: tuple[CacheName, ...] = get_args(CacheName)
Compare = Callable[[Measurement, Measurement, float], Replay]
"""Called with an old measurement, a newer one, and alpha; raises GpuBenchError where they cannot be compared."""


@dataclass(frozen=True)
class Kept:
    """A measurement whose call a saved run has kept."""

    run: str
    """The run's number, date and commit."""
    item: Measurement
    device: DeviceFacts
    installed: Mapping[str, str]
    """The versions of what its kernels were compiled with."""


@dataclass
class Series:
    """The calls of one measurement in the runs from GOOD to BAD that have kept them, oldest first."""

    nodeid: str
    kept: Sequence[Kept]
    tolerance: RegressionTolerance
    alpha: float
    """The chance that all comparisons of a search together have a wrong answer."""
    compare: Compare
    changes: dict[str, Change] = field(default_factory=dict)
    """Against GOOD, by the name of the call: runs of the same code keep the same one."""

    @property
    def title(self) -> str:
        """The test and the measurement in it."""
        return printable(f"{self.nodeid} [{self.kept[0].item.timing.label}]")

    def change(self, place: int) -> Change:
        """Return the change of the call at a place since GOOD."""
        first, item = self.kept[0], self.kept[place].item
        if item.call in self.changes:
            return self.changes[item.call]
        label, where = item.timing.label, f"run {first.run}"
        found = Change(self.nodeid, label, Outcome.INVALID, "", old=first.item, new=item)
        alpha = self.alpha / (1 + (len(self.kept) - 2).bit_length())  # BAD, and each that halves what is left
        try:
            found = replayed_change(found, self.compare(first.item, item, alpha), self.tolerance, alpha, where)
        except GpuBenchError as error:
            sentence = f"{printable(label)} cannot be compared with {where}: {first_line(error)}"
            found = replace(found, sentence=sentence)
        if found.outcome is Outcome.FAIL:
            found = replace(found, reasons=reasons(first.item, item, metric=REPLAYED))
        self.changes[item.call] = found
        return found

    def answer(self, place: int) -> Answer:
        """Return whether the call at a place is slower than in GOOD."""
        found = ANSWERS.get(self.change(place).outcome, "skip")
        say(f"{self.title}: {found}: run {self.kept[place].run}")
        return found

    def first_bad(self) -> str:
        """Return the sentence on the first run that is slower: BAD is."""
        good, bad = find_first_bad(len(self.kept), self.answer)
        runs = [each.run for each in self.kept[good + 1 : bad + 1]]
        skipped = f"one of these, of which the others were skipped: {', '.join(runs)}"
        which = f"run {runs[0]}" if len(runs) == 1 else skipped
        was, now = self.kept[good], self.kept[bad]
        changed = changes_text(list(differences(was.device, now.device, was.installed, now.installed)))
        told = f"{which}, with {changed}" if changed else which
        return printable(f"{self.title} is slower since {told} ({count(len(self.changes), 'comparison')})")


def find_first_bad(number: int, answer: Callable[[int], Answer]) -> tuple[int, int]:
    """Return the last good and the first bad of so many places, of which the first is good and the last is bad.

    Those between the two that are returned were skipped.
    """
    good, bad, skipped = 0, number - 1, set[int]()
    while left := [place for place in range(good + 1, bad) if place not in skipped]:
        place = left[len(left) // 2]
        found = answer(place)
        if found == "skip":
            skipped.add(place)
        elif found == "good":
            good = place
        else:
            bad = place
    return good, bad


def bisect_runs(arguments: argparse.Namespace) -> Answer:
    """Compare the calls of GOOD and BAD, search between them, and write what is found."""
    runs = runs_between(arguments)
    tolerance = RegressionTolerance("median", margin=arguments.fail_slower)
    found = list(series_of(runs, arguments.replay, tolerance, arguments.alpha, _comparing(arguments, tolerance)))
    ends = [each.change(len(each.kept) - 1) for each in found]
    slower = [each for each, end in zip(found, ends, strict=True) if end.outcome is Outcome.FAIL]
    sentences = [each.first_bad() for each in slower]
    write("\n".join([*report_lines(ends), *sentences]))
    if slower:
        return "bad"
    return "good" if {each.outcome for each in ends} == {Outcome.PASS} else "skip"


def runs_between(arguments: argparse.Namespace) -> list[tuple[Stored, SavedRun]]:
    """Return the saved runs from GOOD to BAD, oldest first; raise BadRequest unless there are two of one device."""
    if arguments.bad is None:
        raise BadRequest("--replay searches between two saved runs: give GOOD and BAD")
    stored = storage_of(arguments).runs()
    ends = [find_path(which, arguments) for which in (arguments.good, arguments.bad)]
    if ends[0].parent != ends[1].parent:
        raise BadRequest(f"{arguments.good} and {arguments.bad} are runs of different devices: choose with --device")
    same = sorted((each for each in stored if each.path.parent == ends[0].parent), key=lambda each: each.number)
    paths = [each.path for each in same]
    if not all(end in paths for end in ends):
        raise BadRequest(f"--replay searches in {arguments.storage}: give runs by their numbers or names")
    first, last = map(paths.index, ends)
    if first >= last:
        raise BadRequest(f"{arguments.bad} is not newer than {arguments.good}: GOOD comes first")
    errors: list[str] = []
    found = list(read_each(same[first : last + 1], errors))
    complain("bisect", errors)
    if [found[0][0].path, found[-1][0].path] != ends:
        raise BadRequest("GOOD or BAD cannot be read")
    return found


def series_of(
    runs: Sequence[tuple[Stored, SavedRun]],
    pattern: str,
    tolerance: RegressionTolerance,
    alpha: float,
    compare: Compare,
) -> Iterator[Series]:
    """Yield the series of each measurement of the tests that are meant whose calls GOOD and BAD have kept.

    Raises BadRequest where there is none.
    """
    found = [by_run_key(run) for _, run in runs]
    meant = [key for key in found[0] if matches(key[1], pattern) and key in found[-1]]
    both = [key for key in meant if found[0][key].call and found[-1][key].call]
    if not both:
        told = (items[key].no_call for items in (found[0], found[-1]) for key in meant)
        why = next(filter(None, told), "they were saved without calls" if meant else "they share no test of this name")
        raise BadRequest(f"no call of {pattern!r} is in both runs: {printable(why)}")
    for key in both:
        kept = []
        for (stored, run), items in zip(runs, found, strict=True):
            if key in items and items[key].call:
                title = f"{stored.number:04} ({', '.join(filter(None, [minute_text(run.datetime), commit_text(run)]))})"
                device = next(each.device for each in run.records if (each.device.name, each.nodeid) == key[:2])
                kept.append(Kept(title, items[key], device, toolchain(run.machine_info)))
        yield Series(key[1], kept, tolerance, alpha, compare)


def _comparing(arguments: argparse.Namespace, tolerance: RegressionTolerance) -> Compare:
    """Return what compares two calls of the storage on this machine's GPU, which it holds meanwhile."""
    from pytest_gpubench.bench.plan import plan_of
    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.gpu.turn import turn_at
    from pytest_gpubench.replay.baselines import compare_kept

    store, device, settings = CallStore(Path(arguments.storage)), find_device("cuda"), Settings()

    def compare(old: Measurement, new: Measurement, alpha: float) -> Replay:
        cache = next((each for each in CACHES if each == new.timing.cache), settings.cache)
        own = replace(settings, alpha=alpha, cache=cache)
        with turn_at(device, settings, "pytest-gpubench bisect"):
            how = tolerance, own, plan_of(own)
            return compare_kept((old.call, new.call), store, arguments.trust_calls, how, device, say)

    return compare
