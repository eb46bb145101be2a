"""Limits of verdicts as the tables and the page write them."""

import ast
from typing import Any

from pytest_gpubench.results.model import VALIDITY, Measurement, Timing, Verdict
from pytest_gpubench.verdict.limits import BY_NAME
from pytest_gpubench.verdict.limits.base import Limit


def limit_text(verdict: Verdict, item: Measurement) -> str:
    """Return a limit as a table writes it: `<= 40 us (H200)`, with the measured value where no other column has it.

    Of a verdict on the test as a whole, all its limits.
    """
    try:
        text = ", ".join(limit.cell(item) for limit in _limits_of(verdict))
    except Exception:  # a limit that another version has written, or a stranger
        return verdict.limit
    return f"{verdict.found} {text}" if verdict.found else text


def _limits_of(verdict: Verdict) -> list[Limit]:
    """Return the limits that a verdict is on; raise an error for what is no limit."""
    if verdict.kind != VALIDITY:
        return [BY_NAME[verdict.kind](_literal(verdict.asked))]
    mark = ast.parse(f"perf({verdict.asked})", mode="eval").body
    assert isinstance(mark, ast.Call)
    if mark.args:
        raise ValueError(f"{verdict.asked} is no limit")
    return [BY_NAME[each.arg or ""](ast.literal_eval(each.value)) for each in mark.keywords]


def _literal(asked: str) -> Any:
    """Return the value of a limit; its own text where that is no literal of Python."""
    try:
        return ast.literal_eval(asked)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return asked


def number_for(verdict: Verdict, timing: Timing) -> float | None:
    """Return the number of a limit, of one per candidate or per GPU the one for this timing; None where it has none."""
    try:
        return BY_NAME[verdict.kind](_literal(verdict.asked)).number(timing)
    except Exception:  # a limit that another version has written, or a stranger
        return None


def missed_by(verdict: Verdict, item: Measurement) -> float:
    """Return by what part of a time the limit of a verdict of ours is missed; nan where that is not known."""
    return BY_NAME[verdict.kind](_literal(verdict.asked)).missed_by(item)
