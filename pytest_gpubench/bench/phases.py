"""Phases of a whole, each called by itself: timed in turn with the whole, so that drift is nobody's."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from pytest_gpubench.bench.integrity import auditing
from pytest_gpubench.bench.plan import plan_of, unmeasured
from pytest_gpubench.bench.request import Request, Say
from pytest_gpubench.bench.work import Inspection, with_work, work_of_call
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.limits import check_count
from pytest_gpubench.results.model import Measurement, Timing
from pytest_gpubench.results.phases import Phase, Phases
from pytest_gpubench.stats.speedup import LOOKS
from pytest_gpubench.stats.stopping import is_precise
from pytest_gpubench.stats.summary import median_interval
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call, Timer
from pytest_gpubench.timing.calls import make_arguments, make_call, name_of
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.time import Judgement

__tracebackhide__ = True

LEAST_ROUNDS = 6
"""Taken even without time for them: the fewest that give the ratio an interval."""


@dataclass(frozen=True)
class Course:
    """What is timed: every phase by name and, where it was given, the whole."""

    phases: Mapping[str, Call]
    whole: Call | None = None
    elements: int | None = None

    @property
    def calls(self) -> dict[str, Call]:
        """All calls by label, the whole last."""
        return {**self.phases, **({} if self.whole is None else {self.whole.label: self.whole})}

    @property
    def title(self) -> str:
        """What it is called in tables and messages."""
        return ", ".join(self.phases) if self.whole is None else self.whole.label


@dataclass(frozen=True)
class PhasesRequest(Request[Phases]):
    """What `phases` asks for."""

    course: Course

    @property
    def labels(self) -> Sequence[str]:
        """The names of the phases, the whole's last."""
        return list(self.course.calls)

    @property
    def title(self) -> str:
        """What it is called in tables and messages."""
        return self.course.title

    @property
    def inspection(self) -> Inspection:
        """What its calls are looked through for: nobody gives their bytes and operations."""
        return Inspection(self.settings, self.device, self.limits, takes_work=False)

    def measure(self, say: Say, measured: list[Measurement]) -> Phases:
        """Return what the phases took, each judged by the test's limits."""
        course, settings = self.course, self.settings
        if reason := self.untimed_reason(list(course.calls.values())):
            return self._untimed(reason, measured)
        with auditing(settings, self.device):
            timer = make_timer(settings.timer, self.device, settings.cache)
            works = {name: work_of_call(call, self.inspection, None, None) for name, call in course.calls.items()}
            judgements = {name: self.inspection.judgement(work, single=True) for name, work in works.items()}
            taken, timings = take_phases(course, timer, self.device, plan_of(settings), settings.seed, say)
            timings = {name: with_work(timing, works[name]) for name, timing in timings.items()}
            self._judge(timings, judgements, measured)
        return summarise_phases(course, taken, timings, settings.seed)

    def _judge(
        self, timings: Mapping[str, Timing], judgements: Mapping[str, Judgement], measured: list[Measurement]
    ) -> None:
        """Add a measurement of each timing, with a verdict for each of the test's limits."""
        measured.clear()
        for name, timing in timings.items():
            judgements[name].look(timing)
            measured.append(Measurement(timing=timing, verdicts=judgements[name].verdicts))
        for place, call in enumerate(self.course.calls.values()):
            item = measured[place]
            verdicts = self.inspection.conclude(item.timing, call, item.verdicts)
            measured[place] = msgspec.structs.replace(item, verdicts=verdicts)

    def call_only(self, reason: str, measured: list[Measurement]) -> Phases:
        """Call every function once; the phases have no numbers."""
        return self._untimed(self.call_once(list(self.course.calls.values())) or reason, measured)

    def _untimed(self, reason: str, measured: list[Measurement]) -> Phases:
        measured[:] = [
            Measurement(timing=unmeasured(name, self.device, self.settings, reason)) for name in self.course.calls
        ]
        return Phases(
            title=self.title,
            timer=self.settings.timer,
            cache=self.settings.cache,
            device=self.device.facts.name,
            elements=self.course.elements,
            unmeasured=reason,
        )


def make_course(
    phases: Mapping[str, Callable[..., object]],
    whole: Callable[..., object] | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    setup: Callable[[], object] | None = None,
    elements: int | None = None,
) -> Course:
    """Return what is to be timed; raise BadRequest for what cannot be meant.

    phases: functions by name. whole: what does all of it in one call; None compares the sum with nothing. args, kwargs,
    setup: as in `measure`, for every function. elements: what a call works through, for elements per second.
    """
    if not isinstance(phases, Mapping):
        raise BadRequest(f"phases() needs a mapping of names to functions, found {type(phases).__name__}")
    if not phases:
        raise BadRequest("phases() needs at least one phase, found an empty mapping")
    for name, function in phases.items():
        if not isinstance(name, str) or not name:
            raise BadRequest(f"phases() needs names that are texts and not empty, found {name!r:.80}")
        if not callable(function):
            raise BadRequest(f"phases() needs a function for {name!r}, found {type(function).__name__}")
    if whole is not None and not callable(whole):
        raise BadRequest(f"phases(whole=...) must be a function, or be left out, found {type(whole).__name__}")
    if elements is not None:
        check_count("phases(elements={})", elements, 1)
    arguments = make_arguments(args, kwargs, setup)
    labels = [printable(name) for name in phases]
    calls = [
        make_call(function, arguments, label=label) for label, function in zip(labels, phases.values(), strict=True)
    ]
    if whole is None:
        return Course(dict(zip(labels, calls, strict=True)), None, elements)
    label = printable(name_of(whole))
    while label in labels:
        label = f"{label} (whole)"
    return Course(dict(zip(labels, calls, strict=True)), make_call(whole, arguments, label=label), elements)


def take_phases(
    course: Course, timer: Timer, device: Device, plan: Plan, seed: int, say: Say
) -> tuple[Interleaved, dict[str, Timing]]:
    """Return the rounds taken and the timing of every call.

    Rounds are added until every median is known precisely, or the time is spent that so many measurements have for
    precision.
    """

    def decided(taken: Interleaved, looks: tuple[int, ...]) -> bool:
        samples = taken.samples.values()
        return len(taken.rounds) >= LOOKS[0] and all(is_precise(each.samples_us, plan.precision) for each in samples)

    match = Match(course.calls, "", seed=seed, looks=(LEAST_ROUNDS, *LOOKS), least_more=LEAST_ROUNDS)
    max_time_s = min(plan.max_time_s, len(match.calls) * plan.precision_time_s)
    return measure_in_turn(match, timer, device, replace(plan, max_time_s=max_time_s), decided, say)


def summarise_phases(course: Course, taken: Interleaved, timings: Mapping[str, Timing], seed: int) -> Phases:
    """Return the phases, their sum and its ratio to the whole, each round a sample of the last two."""
    sums_us = [math.fsum(math.fsum(times[name]) for name in course.phases) / 2 for times in taken.rounds]
    sum_us = statistics.median(sums_us)
    medians_us = math.fsum(timings[name].median_us for name in course.phases)
    first = next(iter(timings.values()))
    found = Phases(
        title=course.title,
        timer=first.timer,
        cache=first.cache,
        device=first.device,
        phases=tuple(
            phase_of(timings[name], timings[name].median_us / medians_us, course.elements) for name in course.phases
        ),
        sum_us=sum_us,
        sum_interval=median_interval(sums_us),
        sum_elements_per_s=rate(course.elements, sum_us),
        rounds=len(taken.rounds),
        seed=seed,
        elements=course.elements,
    )
    if course.whole is None:
        return found
    whole = course.whole.label
    ratios = [2 * sum_us / math.fsum(times[whole]) for sum_us, times in zip(sums_us, taken.rounds, strict=True)]
    return msgspec.structs.replace(
        found,
        whole=phase_of(timings[whole], 1.0, course.elements),
        ratio=statistics.median(ratios),
        ratio_interval=median_interval(ratios),
    )


def phase_of(timing: Timing, share: float, elements: int | None) -> Phase:
    """Return what a table says of one call."""
    return Phase(
        name=timing.label,
        median_us=timing.median_us,
        interval=timing.median_interval_us,
        share=share,
        elements_per_s=rate(elements, timing.median_us),
        flags=timing.flags,
    )


def rate(elements: int | None, elapsed_us: float) -> float | None:
    """Return elements per second; None where their number is not known."""
    return None if elements is None else 1e6 * elements / elapsed_us
