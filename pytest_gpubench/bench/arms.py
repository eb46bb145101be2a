"""The arms of a comparison: their names and limits, and what their ratios decide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Speedup, Timing, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import Decision, speedup_of
from pytest_gpubench.stats.speedup import Speedup as SpeedupFound
from pytest_gpubench.stats.speedup import compare as decide
from pytest_gpubench.timing.calls import name_of
from pytest_gpubench.timing.comparison import Match
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.verdict.time import judge_speedup, not_asked

__tracebackhide__ = True


def name_arms(
    candidate: Callable[..., object] | Mapping[str, Callable[..., object]],
    reference: Callable[..., object],
    names: Sequence[str] | None = None,
) -> dict[str, Callable[..., object]]:
    """Return the functions of a comparison by name, the reference first; raise BadRequest for names that clash."""
    for role, given in (("candidate", candidate), ("reference", reference)):
        if not callable(given) and not isinstance(given, Mapping):
            raise BadRequest(
                f"compare() needs functions, found {type(given).__name__} as {role}: arguments go in args=(...), "
                "several candidates in a mapping of names"
            )
    if isinstance(reference, Mapping):
        raise BadRequest(
            f"compare() needs one function as reference, found {type(reference).__name__}: only candidates may be a "
            "mapping of names"
        )
    chosen = checked_names(names, several=isinstance(candidate, Mapping))
    if not isinstance(candidate, Mapping):
        candidate = {chosen[0] if chosen else name_of(candidate): candidate}
    if not candidate:
        raise BadRequest("compare() needs a candidate, found an empty mapping")
    for name in candidate:
        if not isinstance(name, str) or not name:
            raise BadRequest(f"compare() needs names of candidates that are texts, found {name!r}")
    for function in (reference, *candidate.values()):
        if not callable(function):
            raise BadRequest(f"compare() needs functions, found {type(function).__name__}: {function!r:.80}")
    name = chosen[-1] if chosen else name_of(reference)
    while name in candidate:
        name = f"{name} (reference)"
    return {name: reference, **candidate}


def checked_names(names: Sequence[str] | None, several: bool) -> Sequence[str]:
    """Return the names given for the arms, the reference's last; raise BadRequest for too many, too few or no texts."""
    if names is None:
        return ()
    wanted = "(reference,), as the candidates have theirs" if several else "(candidate, reference)"
    right = not isinstance(names, str) and isinstance(names, Sequence) and len(names) == (1 if several else 2)
    if not right or not all(isinstance(name, str) and name for name in names):
        raise BadRequest(f"compare(names=...) must be the texts {wanted}, found {names!r}")
    if len(set(names)) < len(names):
        raise BadRequest(f"compare(names=...) must tell the arms apart, found {names!r}")
    return names


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


@dataclass(frozen=True)
class Decided:
    """What a look decided, and by which numbers."""

    decision: Decision
    found: SpeedupFound


@dataclass
class SpeedupJudge:
    """Decide, look by look, whether every candidate keeps its limit on the speedup."""

    match: Match
    settings: Settings
    looks: tuple[int, ...] = ()
    decided: dict[str, Decided] = field(default_factory=dict)
    """What a look has decided, by candidate: it stands, whatever later ones find that others asked for."""

    def look(self, taken: Interleaved, looks: tuple[int, ...]) -> bool:
        """Return whether all is decided, or one has failed; without a limit, whether the ratios are known precisely."""
        self.looks = looks
        speedups = {name: self._speedup(taken, name) for name in self.match.calls if name != self.match.reference}
        if self.match.limits:
            for name, limit in self.match.limits.items():
                self._decide(name, speedups[name], limit)
            return self.failed or len(self.decided) == len(self.match.limits)
        widths = [speedup.interval.width / speedup.ratio for speedup in speedups.values() if speedup.interval]
        return len(widths) == len(speedups) and max(widths) <= 2 * self.settings.precision

    @property
    def failed(self) -> bool:
        """Whether a limit is broken: rounds that settle the others change nothing."""
        return any(each.decision == "fail" for each in self.decided.values())

    def _decide(self, name: str, found: SpeedupFound, limit: float) -> None:
        """Note what this look decides; in its numbers, too, where it decides what one before it did."""
        decision = decide(found.interval, limit)
        if decision != "open" and (name not in self.decided or self.decided[name].decision == decision):
            self.decided[name] = Decided(decision, found)

    def conclude(
        self,
        taken: Interleaved,
        timings: Mapping[str, Timing],
        lines: Mapping[str, tuple[str, ...]],
        enforced: bool,
    ) -> Comparison:
        """Return the comparison with a verdict on every candidate's speedup where that has a limit."""
        reference = timings[self.match.reference]
        candidates = {}
        for name, differences in lines.items():
            found = self._speedup(taken, name)
            speedup = Speedup(
                ratio=found.ratio,
                interval=found.interval,
                quads=len(taken.rounds),
                alpha=found.alpha,
                reference=reference.label,
                reference_us=reference.median_us,
                seed=self.match.seed,
                log_ratios=tuple(taken.log_ratios(self.match.reference, name)),
            )
            verdicts: tuple[Verdict, ...] = ()
            if name in self.match.limits:
                wanted, by = self.match.limits[name], self.decided[name].found if name in self.decided else found
                quads = by.quads * taken.pool
                judged = msgspec.structs.replace(speedup, ratio=by.ratio, interval=by.interval, quads=quads)
                verdicts = (judge_speedup(name, judged, timings[name].median_us, wanted, wanted, enforced),)
            elif self.match.limits:
                verdicts = (not_asked(name, self.match.limits, enforced),)
            candidates[name] = Measurement(
                timing=timings[name], verdicts=verdicts, speedup=speedup, differences=differences, role="candidate"
            )
        return Comparison(reference=reference, candidates=candidates)

    def _speedup(self, taken: Interleaved, name: str) -> SpeedupFound:
        return speedup_of(taken.log_ratios(self.match.reference, name), self.settings.alpha, self.looks)
