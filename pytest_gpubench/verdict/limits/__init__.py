"""The limits of the `perf` mark: a file for each kind, which has a class for each limit; here those of one test."""

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import as_written, plain_limit
from pytest_gpubench.results.model import Measurement, Outcome, Timing, Verdict
from pytest_gpubench.units import repr_of
from pytest_gpubench.verdict.limits import counters, exact, multiprocessor, rate, regression, resources, speedup, time
from pytest_gpubench.verdict.limits.base import Limit, Need, Seen, Stage

LIMIT_FILES = (time, speedup, rate, regression, resources, multiprocessor, counters, exact)
BY_NAME: Mapping[str, type[Limit]] = {limit.name: limit for kind in LIMIT_FILES for limit in kind.LIMITS}
"""All limits, those of options too."""
NAMES = tuple(name for name, limit in BY_NAME.items() if limit.help)
"""The keywords of the mark, in the order in which help tells them."""
WHILE_TIMED: tuple[Stage, ...] = ("time", "rate")


@dataclass(frozen=True, init=False)
class Limits:
    """The limits on each of a test's measurements, by name; what was not asked for is None."""

    asked: Mapping[str, Limit]

    def __init__(self, **asked: Any) -> None:
        found: dict[str, Limit] = {}
        for name, value in asked.items():
            try:
                if value is not None:
                    BY_NAME[name].parse(value)
                    found[name] = BY_NAME[name](plain_limit(value))
            except ValueError as error:
                raise BadRequest(f"perf({name}={repr_of(value)}): {error}") from None
        object.__setattr__(self, "asked", {name: found[name] for name in NAMES if name in found})

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(f"{name!r} is no limit")
        return self.asked[name].asked if name in self.asked else None

    def __iter__(self) -> Iterator[Limit]:
        return iter(self.asked.values())

    def __bool__(self) -> bool:
        return bool(self.asked)

    def __str__(self) -> str:
        return ", ".join(f"{limit.name}={as_written(limit.asked)}" for limit in self)

    def need(self, what: Need) -> bool:
        """Tell whether one of them is judged by this."""
        return any(what in limit.needs for limit in self)

    def judge(self, stages: Stage | tuple[Stage, ...], seen: Seen, enforced: bool = True) -> tuple[Verdict, ...]:
        """Return a verdict for each limit of a stage, or of several."""
        verdicts, judged = [], (stages,) if isinstance(stages, str) else stages
        for part in (part for limit in self if limit.stage in judged for part in limit.parts()):
            outcome, told = part.judge(seen)
            found = part.found(seen) if outcome not in (Outcome.INVALID, Outcome.NOT_JUDGED) else ""
            kind, asked = part.name, as_written(part.asked)
            verdict = Verdict(kind=kind, asked=asked, outcome=outcome, sentence=told, enforced=enforced, found=found)
            verdicts.append(verdict)
        return tuple(verdicts)


def literal_of(asked: str) -> Any:
    """Return the value of a limit; its own text where that is no literal of Python."""
    try:
        return ast.literal_eval(asked)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return asked


def limit_of(verdict: Verdict) -> Limit | None:
    """Return the limit that a verdict is on; None where another version has written it, or a stranger."""
    try:
        return BY_NAME[verdict.kind](literal_of(verdict.asked))
    except Exception:  # such as the errors of the values of others
        return None


def number_for(verdict: Verdict, timing: Timing) -> float | None:
    """Return the number of a limit, of one per candidate or per GPU the one for this timing; None where it has none."""
    limit = limit_of(verdict)
    return None if limit is None else limit.number(timing)


def severity(item: Measurement, verdict: Verdict) -> tuple[int, bool, float]:
    """Return the key that sorts verdicts on measurements, the worst first: the order in which everything tells them.

    By outcome; then broken limits that are exact, those on a time by the part they are missed by, and the others.
    """
    limit = limit_of(verdict) if verdict.outcome is Outcome.FAIL and item.timing.measured else None
    missed = math.nan if limit is None else limit.missed_by(item)
    is_exact = limit is not None and limit.stage in ("structure", "counters")
    return -verdict.outcome.badness, not is_exact, math.inf if math.isnan(missed) else -missed


def worst_first(item: Measurement) -> Measurement:
    """Return a measurement with its verdicts from the worst on; itself where they are."""
    verdicts = tuple(sorted(item.verdicts, key=partial(severity, item)))
    return item if verdicts == item.verdicts else msgspec.structs.replace(item, verdicts=verdicts)


@dataclass
class Judgement:
    """Judge a timing while it grows: each look at it spends a part of alpha, so that looking often costs nothing.

    The k-th look spends alpha / (k (k + 1)), which sums to alpha however many looks there are (Bonferroni); a
    `single` look spends all of it. A rate is work over time: a limit on it is judged at the same looks as one on time.
    The last look counts: it is of the reps that are reported.

    pass_alpha: the chance, at most, that a broken limit passes; None is alpha, the chance that a kept one fails.
    known: adds to a timing what is known of its call and its GPU.
    """

    limits: Limits
    alpha: float
    enforced: bool = True
    single: bool = False
    pass_alpha: float | None = None
    known: Callable[[Timing], Seen] = Seen
    looks: int = 0
    verdicts: tuple[Verdict, ...] = ()

    def look(self, timing: Timing) -> bool:
        """Judge the timing as it is now; return whether every limit is decided, or the test fails anyhow."""
        self.looks += 1
        found = self._judged(timing, self.alpha)
        if self.pass_alpha is not None:
            lenient = self._judged(timing, self.pass_alpha)  # passes some of what the smaller alpha leaves undecided
            passed = Outcome.INCONCLUSIVE, Outcome.PASS
            pairs = zip(found, lenient, strict=True)
            found = tuple(more if (less.outcome, more.outcome) == passed else less for less, more in pairs)
        self.verdicts = found
        return self.failed or all(verdict.outcome is not Outcome.INCONCLUSIVE for verdict in self.verdicts)

    def _judged(self, timing: Timing, alpha: float) -> tuple[Verdict, ...]:
        spent = alpha if self.single else alpha / (self.looks * (self.looks + 1))
        seen = replace(self.known(timing), alpha=alpha, spent=spent)
        return self.limits.judge(WHILE_TIMED, seen, self.enforced)

    @property
    def failed(self) -> bool:
        """True if a limit is broken, or there is no number for it: reps that settle the others change nothing."""
        return any(verdict.outcome in (Outcome.FAIL, Outcome.INVALID) for verdict in self.verdicts)
