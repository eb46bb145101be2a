"""The arms of a comparison: their names and limits, what they returned last, and what their ratios decide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_gpubench.agreement import Agreement, Ran
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Speedup, Timing
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import Speedup as SpeedupFound
from pytest_gpubench.stats.speedup import compare as decide
from pytest_gpubench.stats.speedup import speedup_of
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import name_of
from pytest_gpubench.timing.comparison import Match
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.verdict import judge, judge_speedup

__tracebackhide__ = True


def name_arms(
    candidate: Callable[..., object] | Mapping[str, Callable[..., object]], reference: Callable[..., object]
) -> dict[str, Callable[..., object]]:
    """Return the functions of a comparison by name, the reference first; raise BadRequest for names that clash."""
    for role, given in (("candidate", candidate), ("reference", reference)):
        if not callable(given) and not isinstance(given, Mapping):
            raise BadRequest(
                f"compare() needs functions, found {type(given).__name__} as {role}: arguments go in args=(...), "
                "several candidates in a mapping of names"
            )
    if not isinstance(candidate, Mapping):
        candidate = {name_of(candidate): candidate}
    if not candidate:
        raise BadRequest("compare() needs a candidate, found an empty mapping")
    for name in candidate:
        if not isinstance(name, str) or not name:
            raise BadRequest(f"compare() needs names of candidates that are texts, found {name!r}")
    for function in (reference, *candidate.values()):
        if not callable(function):
            raise BadRequest(f"compare() needs functions, found {type(function).__name__}: {function!r:.80}")
    name = name_of(reference)
    while name in candidate:
        name = f"{name} (reference)"
    return {name: reference, **candidate}


def speedup_limits(limits: Limits, names: Sequence[str]) -> dict[str, float]:
    """Return the speedup asked of each candidate; raise BadRequest for a limit on one that does not exist."""
    asked = limits.min_speedup
    if asked is None:
        return {}
    if not isinstance(asked, Mapping):
        return dict.fromkeys(names, asked)
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise BadRequest(f"perf(min_speedup=...) names {unknown[0]!r}, but the candidates are {', '.join(names)}")
    return dict(asked)


@dataclass
class OutputRecorder:
    """Keep what the last timed call of each arm returned, to check it too."""

    agreement: Agreement
    last: dict[str, object] = field(default_factory=dict)

    def watch(self, name: str, call: Call) -> Call:
        """Return the call, which keeps what it returns; all arms are given the same where `setup` is random."""

        def prepare() -> Callable[[], object]:
            self.last.pop(name, None)  # its memory is free for the next output
            with self.agreement.same_random_numbers():
                timed = call.prepare()

            def keep() -> None:
                self.last[name] = timed()

            return keep

        return replace(call, prepare=prepare)

    def check(self, reference: str, names: Sequence[str]) -> None:
        """Raise WrongResult if a candidate was right when it was checked, and wrong when it was timed."""
        if self.last[reference] is None:  # what a backward run returns
            return
        for name in names:
            differences = self.agreement.compare(Ran(self.last[name], {}), Ran(self.last[reference], {}))
            self.agreement.require(name, differences, " in a timed call, though right when checked")


@dataclass
class SpeedupJudge:
    """Decide, look by look, whether every candidate keeps its limit on the speedup."""

    match: Match
    settings: Settings
    limits: Limits
    looks: tuple[int, ...] = ()

    def look(self, taken: Interleaved, looks: tuple[int, ...]) -> bool:
        """Return whether all is decided at this look; without a limit, whether the ratios are known precisely."""
        self.looks = looks
        speedups = {name: self._speedup(taken, name) for name in self.match.calls if name != self.match.reference}
        if self.match.limits:
            return all(decide(speedups[name].interval, limit) != "open" for name, limit in self.match.limits.items())
        widths = [speedup.interval.width / speedup.ratio for speedup in speedups.values() if speedup.interval]
        return len(widths) == len(speedups) and max(widths) <= 2 * self.settings.precision

    def conclude(
        self,
        taken: Interleaved,
        timings: Mapping[str, Timing],
        lines: Mapping[str, tuple[str, ...]],
        enforced: bool,
    ) -> Comparison:
        """Return the comparison with a verdict for every limit."""
        reference = timings[self.match.reference]
        candidates = {}
        for name, differences in lines.items():
            found = self._speedup(taken, name)
            speedup = Speedup(
                ratio=found.ratio,
                interval=found.interval,
                quads=found.quads,
                alpha=found.alpha,
                reference=reference.label,
                reference_us=reference.median_us,
                seed=self.match.seed,
            )
            verdicts = judge(timings[name], self.limits, self.settings.alpha, enforced)
            if name in self.match.limits:
                wanted = self.match.limits[name]
                verdicts += (judge_speedup(name, speedup, timings[name].median_us, wanted, wanted, enforced),)
            candidates[name] = Measurement(
                timing=timings[name], verdicts=verdicts, speedup=speedup, differences=differences
            )
        return Comparison(reference=reference, candidates=candidates)

    def _speedup(self, taken: Interleaved, name: str) -> SpeedupFound:
        return speedup_of(taken.log_ratios(self.match.reference, name), self.settings.alpha, self.looks)
