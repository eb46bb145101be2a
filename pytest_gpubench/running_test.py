"""The running test: its settings, limits and measurements, and whether it fails by them."""

import mmap
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from pytest_gpubench.bench.placement import measure_confirmed
from pytest_gpubench.bench.plan import is_enforced
from pytest_gpubench.bench.request import CallResult, MeasureRequest, Request, Say, T
from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.results.counterpart import KeyReader
from pytest_gpubench.results.model import (
    DeviceFacts,
    Measurement,
    Outcome,
    TestRecord,
    Turn,
    Verdict,
)
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.search import Example, Search
from pytest_gpubench.search.budget import TimeBudget
from pytest_gpubench.settings import Settings
from pytest_gpubench.structure.ncu import Capture
from pytest_gpubench.units import safe_lines
from pytest_gpubench.verdict.ending import Ending, judged_limits, rule_for, unjudged
from pytest_gpubench.verdict.limits import BY_NAME, Limits
from pytest_gpubench.verdict.limits.speedup import MinWeightedSpeedup
from pytest_gpubench.verdict.saved_runs import BaselineLimit

IN_A_FORK = (
    "gpu_bench was called in a process that the test forked, whose measurements the test does not have: call it in the "
    "test itself"
)


class NoSearch:
    """Stand in for the search of a test without @given: each call is measured as asked, and nothing is shared."""

    has_baseline: ClassVar[bool] = True
    """True if the next run makes the same calls, which can then be compared with a saved run."""
    example_text: ClassVar[str] = ""

    def __str__(self) -> str:
        return ""

    def obtain(self, request: Request[T], say: Say) -> CallResult[T]:
        """Return the result of a call."""
        return measure_confirmed(request, say)

    def replaced(self, measured: Sequence[Measurement], failed: str = "") -> Sequence[Measurement]:
        """Return the measurements that these replace."""
        return ()

    def shown_phases(self, before: Iterable[Phases], found: Phases) -> list[Phases]:
        """Return the phases to show."""
        return [*before, found]

    def told(self, verdicts: Sequence[Verdict], warnings: list[str]) -> Sequence[Verdict]:
        """Return verdicts with the sentences to show, and remove outdated warnings."""
        return verdicts

    def note_failure(self, error: Exception, measurement: Measurement) -> None:
        """Note that a limit was broken, and add notes to its error."""


@dataclass
class CurrentTest:
    """The running test, as the fixture needs to know it."""

    nodeid: str
    settings: Settings
    limits: Limits
    device: Device | None = None
    params: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    phases: list[Phases] = field(default_factory=list)
    gpus: int = 1
    """The number of GPUs that it holds while it runs."""
    source: str = ""
    extra_info: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    phase: Literal["setup", "call", "teardown"] = "setup"
    inherited: Mapping[str, str] = field(default_factory=dict)
    """The class or file whose mark gives a limit or a setting, by name; without those of the test's own marks."""
    wider_scopes: list[str] = field(default_factory=list)
    """The fixtures that are being set up for more than this test, outermost first."""
    past: Callable[[DeviceFacts], BaselineLimit | None] = lambda facts: None
    """Returns the saved test and its tolerance; None if nothing is compared."""
    fresh: Callable[[int], TestRecord | str] | None = None
    """Returns what a fresh process of this number measures in the test, or why it does not; None where none is."""
    calls: int = 0
    """The number of its public calls so far."""
    counters: frozenset[str] = frozenset()
    """The counters that are taken of it, whatever it measures."""
    captures: Callable[[tuple[str, ...], bool], Mapping[tuple[int, str], Sequence[Capture]]] | None = None
    """Returns the captures of its calls, by their numbers and labels, with a group of counters, from another process if
    True; raises NotCounted. None outside of pytest."""
    note_capture: Callable[[tuple[int, str]], object] | None = None
    """Notes that a capture of a call begins; None where ncu does not watch this process."""
    find_what_broke: Callable[[], str] | None = None
    """Returns what calls with margins, in a fresh process, say of the call that broke the GPU; empty for nothing."""
    note_what_breaks: Callable[[str], object] | None = None
    """Notes, in such a process, what it means if the next call breaks the GPU."""
    failures: list[Exception] = field(default_factory=list)
    """Errors of ours that its calls have raised: it fails, whatever it does with them."""
    open_calls: list[str] = field(default_factory=list)
    """Titles of the calls that have not returned."""
    expects_failure: bool = False
    """True if it was marked xfail before it measured."""
    neighbours: Sequence[str] = ()
    """A sentence on each other process that computed on its GPUs before it began, and may go on."""
    computing: Callable[[], str | None] = lambda: None
    """Returns in a sentence which other processes have computed on its GPUs since it began; None where none has."""
    leaving: tuple[type[BaseException], ...] = ()
    """Exceptions that end a test without failing it."""
    earlier_threads: Sequence[threading.Thread] = field(
        default_factory=lambda: [each for each in threading.enumerate() if each is not threading.current_thread()]
    )
    """The threads that ran before the test began."""
    has_failed_part: bool = False
    """True if pytest was told of a subtest that failed."""
    search: Search | NoSearch = field(default_factory=NoSearch)
    """The search that carries out public calls: examples share measurements, if the test is under @given."""
    keys: KeyReader = field(default_factory=KeyReader)
    """The keys of its measurements in a saved run."""
    traces: set[Path] = field(default_factory=set)
    """The files that traces were written to."""
    pid: int = field(default_factory=os.getpid)
    forked: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 1))
    """Memory that forked processes share: not zero once one of them has called gpu_bench."""

    def begin_example(self, example: Example) -> None:
        """Begin the search's next example."""
        if isinstance(self.search, NoSearch):
            self.search = Search(TimeBudget(self.settings.given_budget_s), example)
        self.search.begin(example)

    def forget(self) -> None:
        """Drop the search and the saved runs, which hold tensors and records."""
        self.search, self.past, self.fresh = NoSearch(), lambda facts: None, None

    def keep(self, measured: Sequence[Measurement]) -> None:
        """Add measurements; those of an example that hypothesis repeats move to the end: it reports the last one."""
        self._add(measured, self.search.replaced(measured) if measured else ())

    def keep_failed(self, title: str, measured: Sequence[Measurement]) -> None:
        """Add what a failed call had measured, in place of what it left when it failed before."""
        told = [msgspec.structs.replace(item, example=self.search.example_text) for item in measured]
        self._add(told, self.search.replaced(told, title))

    def _add(self, measured: Sequence[Measurement], before: Sequence[Measurement]) -> None:
        if dropped := set(map(id, before)):
            self.measurements[:] = [item for item in self.measurements if id(item) not in dropped]
        self.measurements += measured

    def warn(self, *sentences: str) -> None:
        """Add warnings for the end of the run, each sentence once."""
        self.warnings += [each for each in dict.fromkeys(sentences) if each not in self.warnings]

    @property
    def has_begun(self) -> bool:
        """True if it has called gpu_bench: from then on its limits decide how it ends."""
        return bool(self.measurements or self.failures or self.open_calls or self.forked[0])

    def why_failed(self, has_failed: bool = False) -> str | None:
        """Return why the test fails by its limits, whatever it did itself; None where they were kept, or need not be.

        has_failed: True for a test that has failed by itself: its other limits need not be judged.
        """
        if self.failures:
            return f"{self.failures[0]} (gpu_bench raised this, and the test or a thread caught it: let it through)"
        if self.forked[0]:
            return IN_A_FORK
        if has_failed or self.has_failed_part or self.settings.disable:
            return None
        if self.open_calls:
            return f"{self.open_calls[0]!r} was still being measured when the test ended: join the thread that measures"
        return self._why_never_judged() or self._why_refused()

    def _why_never_judged(self) -> str | None:
        """Return why a test fails whose limits no measurement could be judged by; None where there was one.

        On a CPU that nobody asked for it is a warning.
        """
        judged = judged_limits(self._verdicts())
        compared = any(item.speedup is not None for item in self.measurements)
        compared = compared and (not self.limits.need("totals") or MinWeightedSpeedup.name in judged)
        if not self.limits or compared or (self.has_numbers and not self.limits.need("reference")):
            return None
        reasons = [item.timing.unmeasured for item in self.measurements if not item.timing.measured]
        reason = reasons[-1] if reasons else _missing_call(self.limits)
        if not reasons or (self.device is not None and is_enforced(self.settings, self.device)):
            open_ = {each.name: each.asked for each in self.limits if each.name not in judged}
            on_reference = {name: asked for name, asked in open_.items() if "reference" in BY_NAME[name].needed}
            never = Limits(**on_reference) if self.has_numbers else self.limits
            asked = "; without --gpu-bench-device=cpu that is a warning" if self._is_on_cpu and reasons else ""
            return f"perf({never}) was never judged: {reason}{asked}{self._how_to_drop(never)}"
        self.warn(f"its limits were not judged: {reason}")
        return None

    @property
    def _is_on_cpu(self) -> bool:
        return self.device is not None and self.device.type == "cpu"

    def _how_to_drop(self, limits: Limits) -> str:
        """Return how to drop limits that the test's class or file sets; empty where it sets them itself."""
        names = [name for name in self.inherited if getattr(limits, name, None) is not None]
        if not names:
            return ""
        owners, dropped = ", ".join(dict.fromkeys(map(self.inherited.__getitem__, names))), "=None, ".join(names)
        return f" (a mark of the {owners} asks for it: @pytest.mark.perf({dropped}=None) on the test drops it)"

    def _why_refused(self) -> str | None:
        """Return why a test fails by the rule for limits that are NOT JUDGED; None where it does not."""
        rule = rule_for(Ending.NOT_JUDGED, self.settings)
        if self.device is None or not is_enforced(self.settings, self.device) or rule.action != "fail":
            return None
        verdicts = self._verdicts()
        looked_up = {each.sentence for each in verdicts if each.is_of_past}  # by `enforce_missing`
        silent = [each for each in unjudged(self.limits, verdicts) if each not in looked_up]
        sentences = [*self.why_uncompared, *silent]
        return safe_lines(f"{sentences[0]} ({rule.remedy})") if sentences else None

    def ending(self) -> Ending | None:
        """Return the ending that a passed test is counted under; None where it kept its limits."""
        verdicts = self._verdicts()
        open_ = any(each.enforced and each.outcome is Outcome.INCONCLUSIVE for each in verdicts)
        if open_ and rule_for(Ending.INCONCLUSIVE, self.settings).action == "warn":
            return Ending.INCONCLUSIVE
        ignored = {each.sentence for each in verdicts if each.is_of_past} - set(self.warnings)
        loose = bool(verdicts) and not any(each.enforced for each in verdicts)
        silent = loose or set(unjudged(self.limits, verdicts)) - ignored
        return Ending.NOT_JUDGED if (silent or self.why_uncompared) and not self.settings.disable else None

    @property
    def why_uncompared(self) -> list[str]:
        """A sentence where a change since a saved run should be judged, and the test is under @given."""
        if self.search.has_baseline or not self.has_numbers:
            return []
        option = self.settings.compare_fail if self.settings.compare is not None else None
        wanted = "max_regression" if self.limits.need("baseline") else option and f"compare_fail={option}"
        return [f"{wanted} was not judged: the examples of @given are drawn anew in every run"] if wanted else []

    def _verdicts(self) -> list[Verdict]:
        return [each for item in self.measurements for each in item.verdicts]

    def record(self, worker: str, turn: Turn | None, warnings: Sequence[str]) -> TestRecord:
        """Return the record of the test; warnings: those that are not the test's own."""
        device = self.device or find_device(self.settings.device)
        peaks = None
        if self.has_numbers:
            with suppress(Exception):  # peaks are only shown: a record without them is better than none
                peaks = MeasureRequest(self.settings, device, self.limits, (), {}).peaks(None)
        if peaks is not None and not peaks.memory and not self.limits.need("peaks"):
            self.warn(f"not compared with what the GPU can do at most: {'; '.join(peaks.remarks)}")
        return TestRecord(
            nodeid=self.nodeid,
            device=device.facts,
            worker=worker,
            params=self.params,
            measurements=tuple(self.measurements),
            phases=tuple(self.phases),
            extra_info=self.extra_info,
            warnings=(*warnings, *self.warnings),
            turn=turn,
            source=self.source,
            search=str(self.search),
            peaks=peaks,
            throttled=self.settings.throttled,
        )

    @property
    def has_numbers(self) -> bool:
        """True if anything was timed."""
        return any(item.timing.measured for item in self.measurements)


def _missing_call(limits: Limits) -> str:
    if limits.need("totals"):
        return "the test compared no recorded calls; call gpu_bench.compare_recorded(...) in it"
    if not limits.need("reference"):
        return "the test measured nothing; call gpu_bench(...) in it"
    return "the test compared nothing; call gpu_bench.compare(candidate, reference, ...) in it"
