"""The arms of a comparison: their names and limits, and what they are found to be."""

from collections.abc import Callable, Mapping, Sequence

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Speedup, Timing
from pytest_gpubench.timing.calls import name_of
from pytest_gpubench.timing.comparison import Match
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.verdict.speedup import SpeedupJudgement

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


def conclude(
    match: Match,
    judgements: Mapping[str, SpeedupJudgement],
    taken: Interleaved,
    timings: Mapping[str, Timing],
    lines: Mapping[str, tuple[str, ...]],
) -> Comparison:
    """Return the comparison with each candidate's speedup and the verdict on it; lines: of its outputs."""
    reference = timings[match.reference]
    candidates = {}
    for name, judgement in judgements.items():
        found = judgement.latest
        assert found is not None, "nothing was looked at"
        speedup = Speedup(
            ratio=found.ratio,
            interval=found.interval,
            quads=len(taken.rounds),
            alpha=found.alpha,
            reference=reference.label,
            reference_us=reference.median_us,
            seed=match.seed,
            log_ratios=tuple(taken.log_ratios(match.reference, name)),
        )
        candidates[name] = Measurement(
            timing=timings[name],
            verdicts=judgement.verdicts(speedup, timings[name].median_us, taken.pool),
            speedup=speedup,
            differences=lines[name],
            role="candidate",
        )
    return Comparison(reference=reference, candidates=candidates)
