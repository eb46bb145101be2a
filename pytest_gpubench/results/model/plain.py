"""JSON for values that it has no form for."""

from numbers import Integral, Real
from typing import Any

DEEPEST = 50
"""The deepest nesting of dicts and lists in `extra_info`."""


def plain(value: Any, outer: tuple[object, ...] = ()) -> Any:
    """Return a value for JSON: itself, the one number in an array or tensor, or its text; never raise.

    outer: what the value was found in. What is found within itself, or too deep, is written as text.
    """
    try:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Integral):
            return int(str(int(value)))  # str refuses what has too many digits to be written
        if isinstance(value, Real):
            return float(value)
        if isinstance(value, str) or len(outer) == DEEPEST or any(value is one for one in outer):
            return text_of(value)
        if isinstance(value, dict):
            return {text_of(key): plain(inner, (*outer, value)) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner, (*outer, value)) for inner in value]
        return plain(value.item(), (*outer, value))
    except Exception:
        return text_of(value)


def text_of(value: object) -> str:
    """Return a value as text that can be encoded; never raise."""
    try:
        text = value if isinstance(value, str) else str(value)
        return str.encode(text, errors="backslashreplace").decode()
    except Exception:
        return f"<{type(value).__name__} object>"
