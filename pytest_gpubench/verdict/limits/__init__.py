"""The limits of the `perf` mark: a file for each kind, which has a class for each limit; here those of one test."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import as_written, plain_limit
from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.units import repr_of
from pytest_gpubench.verdict.limits import exact, multiprocessor, rate, regression, resources, speedup, time
from pytest_gpubench.verdict.limits.base import Limit, Need, Seen, Stage

__tracebackhide__ = True

KINDS = (time, speedup, rate, regression, resources, multiprocessor, exact)
BY_NAME: Mapping[str, type[Limit]] = {limit.name: limit for kind in KINDS for limit in kind.LIMITS}
"""All limits, those of options too."""
NAMES = tuple(name for name, limit in BY_NAME.items() if limit.help)
"""The keywords of the mark, in the order in which verdicts on them are told."""


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

    def judge(self, stage: Stage, seen: Seen, enforced: bool = True) -> tuple[Verdict, ...]:
        """Return a verdict for each limit of a stage."""
        return tuple(
            _verdict_by(part, seen, enforced) for limit in self if limit.stage == stage for part in limit.parts()
        )


def _verdict_by(limit: Limit, seen: Seen, enforced: bool) -> Verdict:
    outcome, sentence = limit.judge(seen)
    return Verdict(
        kind=limit.name,
        asked=as_written(limit.asked),
        outcome=outcome,
        sentence=sentence,
        enforced=enforced,
        found=limit.found(seen) if outcome not in (Outcome.INVALID, Outcome.NOT_JUDGED) else "",
    )
