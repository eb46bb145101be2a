"""Measure each phase of a whole by itself, in turn with the whole, so that drift affects all of them equally."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from pytest_gpubench.bench.integrity import auditing
from pytest_gpubench.bench.plan import plan_of
from pytest_gpubench.bench.producer import check_producer
from pytest_gpubench.bench.request import CallResult, Request, Say, carrying, with_work, work_of_call
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import Measurement, Timing
from pytest_gpubench.results.phases import Phase, Phases
from pytest_gpubench.stats.stopping import is_precise
from pytest_gpubench.stats.summary import median_interval
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call, Timer
from pytest_gpubench.timing.calls import Arguments, make_call
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.units import name_of, printable

LEAST_ROUNDS = 6
"""Taken even without time for them: the fewest that give the ratio an interval."""
LOOKS = (20, 40, 80, 160, 320, 640)
"""After how many rounds to look whether every median is precise."""


@dataclass(frozen=True)
class PhasesRequest(Request[Phases]):
    """A call of `phases`: each phase and, as the last function, the whole."""

    whole: str = ""
    """The label of the whole; empty where none was given."""
    elements: int | None = None
    takes_work = False

    @property
    def phases(self) -> list[str]:
        """The labels of the phases."""
        return [label for label in self.calls if label != self.whole]

    @property
    def title(self) -> str:
        """The whole, or all phases where there is none."""
        return self.whole or ", ".join(call.label for call in self.calls.values())

    def measure(self, say: Say) -> CallResult[Phases]:
        """Return what the phases took, each judged by the test's limits."""
        if reason := self.untimed_reason():
            return self._untimed(reason)
        settings, device = self.settings, self.device
        with auditing(settings, device):
            check_producer(self)
            timer = make_timer(settings.timer, device, settings.cache)
            works = {label: work_of_call(self, call, None, None) for label, call in self.calls.items()}
            judgements = {label: self.judgement(work, single=True) for label, work in works.items()}
            taken, timings = take_phases(self.calls, timer, device, plan_of(settings), settings.seed or 0, say)
            timings = {label: with_work(timing, works[label]) for label, timing in timings.items()}
            for label, judgement in judgements.items():
                judgement.look(timings[label])
            measured = [
                Measurement(timing=timings[label], verdicts=each.verdicts) for label, each in judgements.items()
            ]
            with carrying(measured):
                for place, (item, call) in enumerate(zip(tuple(measured), self.calls.values(), strict=True)):
                    measured[place] = self.conclude(item, call)
        return CallResult(self.summarise(taken, timings), measured)

    def call_only(self, reason: str) -> CallResult[Phases]:
        """Call every function once; the phases have no numbers."""
        return self._untimed(self.call_once() or reason)

    def _untimed(self, reason: str) -> CallResult[Phases]:
        found = Phases(
            title=self.title,
            timer=self.settings.timer,
            cache=str(self.settings.cache),
            device=self.device.facts.name,
            elements=self.elements,
            unmeasured=reason,
        )
        return CallResult(found, self.without_time(reason))

    def summarise(self, taken: Interleaved, timings: Mapping[str, Timing]) -> Phases:
        """Return the phases, their sum and its ratio to the whole; each round is a sample of the last two."""
        sums_us = [math.fsum(math.fsum(times[label]) for label in self.phases) / 2 for times in taken.rounds]
        sum_us = statistics.median(sums_us)
        medians_us = math.fsum(timings[label].median_us for label in self.phases)
        first = next(iter(timings.values()))
        found = Phases(
            title=self.title,
            timer=first.timer,
            cache=first.cache,
            device=first.device,
            phases=tuple(self._phase(timings[label], medians_us) for label in self.phases),
            sum_us=sum_us,
            sum_interval=median_interval(sums_us),
            sum_elements_per_s=self._rate(sum_us),
            rounds=len(taken.rounds),
            seed=self.settings.seed or 0,
            elements=self.elements,
        )
        if not self.whole:
            return found
        wholes_us = [math.fsum(times[self.whole]) / 2 for times in taken.rounds]
        ratios = [sum_us / whole_us for sum_us, whole_us in zip(sums_us, wholes_us, strict=True)]
        return msgspec.structs.replace(
            found,
            whole=self._phase(timings[self.whole], timings[self.whole].median_us),
            ratio=statistics.median(ratios),
            ratio_interval=median_interval(ratios),
        )

    def _phase(self, timing: Timing, all_us: float) -> Phase:
        return Phase(
            name=timing.label,
            median_us=timing.median_us,
            interval=timing.median_interval_us,
            share=timing.median_us / all_us,
            elements_per_s=self._rate(timing.median_us),
            flags=timing.flags,
        )

    def _rate(self, elapsed_us: float) -> float | None:
        return None if self.elements is None else 1e6 * self.elements / elapsed_us


def phase_calls(
    phases: Mapping[str, Callable[..., object]], whole: Callable[..., object] | None, arguments: Arguments
) -> tuple[dict[str, Call], str]:
    """Return the calls by label and the label of the whole, which is the last; raise BadRequest for invalid ones.

    whole: does all of it in one call; where it is None, its label is empty.
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
    functions, label = dict(phases), ""
    if whole is not None:
        label = printable(name_of(whole))
        while label in functions:
            label = f"{label} (whole)"
        functions[label] = whole
    return {name: make_call(function, arguments, label=name) for name, function in functions.items()}, label


def take_phases(
    calls: Mapping[str, Call], timer: Timer, device: Device, plan: Plan, seed: int, say: Say
) -> tuple[Interleaved, dict[str, Timing]]:
    """Return the rounds taken and the timing of every call.

    Rounds are added until every median is known precisely, or the time is spent that so many measurements have for
    precision.
    """

    def decided(taken: Interleaved, looks: tuple[int, ...]) -> bool:
        samples = taken.samples.values()
        return len(taken.rounds) >= LOOKS[0] and all(is_precise(each.samples_us, plan.precision) for each in samples)

    match = Match(calls, "", seed=seed, looks=(LEAST_ROUNDS, *LOOKS), least_more=LEAST_ROUNDS)
    max_time_s = min(plan.max_time_s, len(calls) * plan.precision_time_s)
    return measure_in_turn(match, timer, device, replace(plan, max_time_s=max_time_s), decided, say)
