"""Limits as the page writes and draws them."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gpubench.limits import limit_for_device
from pytest_gpubench.results.model import Timing, Verdict
from pytest_gpubench.units import format_share, format_time, printable


@dataclass(frozen=True)
class ShownLimit:
    """A limit: what it is on, the number where there is one, and a short text."""

    kind: str
    value: float | None
    text: str


def shown_limit(verdict: Verdict, timing: Timing) -> ShownLimit:
    """Return a verdict's limit as it holds for one timing; one that cannot be read keeps its own words."""
    kind, value = verdict.kind, number_for(verdict.asked, timing)
    if value is None:
        return ShownLimit(kind, None, printable(verdict.limit))
    texts = {"min_speedup": f"≥ {value:g}×", "max_rel_std": f"std ≤ {format_share(value)}"}
    text = f"≤ {format_time(value)}" if kind == "max_time_us" else texts.get(kind, printable(verdict.limit))
    return ShownLimit(kind, value, text)


def number_for(asked: str, timing: Timing) -> float | None:
    """Return the number of a limit, of one per candidate or per GPU the one for this timing; None where it has none."""
    try:
        value = ast.literal_eval(asked)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, Mapping):
        value = value.get(timing.label, limit_for_device(value, timing.device))
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
