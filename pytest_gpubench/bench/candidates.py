"""Candidates and their reference: names, calls and limits on the speedup."""

from collections.abc import Callable, Mapping, Sequence

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.units import name_of
from pytest_gpubench.verdict.limits import Limits

Function = Callable[..., object]
Candidates = Function | Mapping[str, Function]
"""A candidate, or several by name."""


def name_functions(candidate: Candidates, reference: Function, names: Sequence[str] | None) -> dict[str, Function]:
    """Return the functions of a comparison by name, the reference first."""
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
    for name, function in candidate.items():
        if not isinstance(name, str) or not name:
            raise BadRequest(f"compare() needs names of candidates that are texts, found {name!r}")
        if not callable(function):
            raise BadRequest(f"compare() needs functions, found {type(function).__name__}: {function!r:.80}")
    name = chosen[-1] if chosen else name_of(reference)
    while name in candidate:
        name = f"{name} (reference)"
    return {name: reference, **candidate}


def checked_names(names: Sequence[str] | None, several: bool) -> Sequence[str]:
    """Return the given names, the reference's last; raise BadRequest for too many, too few or no texts."""
    if names is None:
        return ()
    wanted = "(reference,), as the candidates have theirs" if several else "(candidate, reference)"
    right = not isinstance(names, str) and isinstance(names, Sequence) and len(names) == (1 if several else 2)
    if not right or not all(isinstance(name, str) and name for name in names):
        raise BadRequest(f"compare(names=...) must be the texts {wanted}, found {names!r}")
    if len(set(names)) < len(names):
        raise BadRequest(f"compare(names=...) must differ, found {names!r}")
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
        known = ", ".join(names)
        raise BadRequest(
            f"perf(min_speedup=...) names {unknown[0]!r}, but the candidates are {known}: use the name of one"
        )
    return dict(asked)
