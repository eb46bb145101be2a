"""Numbers as the page keeps them: five digits, as many samples as it has room for, and those in an example's text."""

import math
import re
from collections.abc import Iterable, Sequence

KEYWORD = re.compile(r"(?:^|, )([A-Za-z_]\w*)=")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
TUPLE = re.compile(r"[(\[]\s*(\d+(?:\s*,\s*\d+)*)\s*,?\s*[)\]]")


def five_digits(value: float | None) -> float | int | None:
    """Return a number with five significant digits; None for None, nan and infinity.

    One whose last digit would be 5 has eight: the page, which shows four or fewer, is to round 158.6496 down.
    """
    if value is None or not math.isfinite(value):
        return None
    ends_in_five = f"{value:.4e}".partition("e")[0].rstrip("0").endswith("5")
    rounded = float(f"{value:.{8 if ends_in_five else 5}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def rounded(values: Iterable[float | None]) -> list[float | int | None]:
    """Return numbers with five significant digits each."""
    return [five_digits(value) for value in values]


def thin(values: Sequence[float], most: int) -> tuple[list[float | int | None], int]:
    """Return evenly spaced values of a series, at most so many, and the distance between two that are kept."""
    step = math.ceil(len(values) / most) or 1
    return rounded(values[::step]), step


def sizes_in(example: str) -> dict[str, float]:
    """Return the numbers in an example by name: `rows`, `shape[1]`, and the product of a shape as `shape`.

    Names that are not at the top level (`x=ones((3,), dtype=...)`) are taken for keywords all the same: their values
    are then no numbers, or numbers worth showing.
    """
    found: dict[str, float] = {}
    starts = [*KEYWORD.finditer(example)]
    ends = [match.start() for match in starts[1:]] + [len(example)]
    for match, end in zip(starts, ends, strict=False):  # without a name there is still an end
        name, text = match[1], example[match.end() : end]
        shape = TUPLE.search(text)
        if NUMBER.fullmatch(text.strip()):
            found[name] = float(text)
        elif shape is not None:
            parts = [float(part) for part in shape[1].split(",")]
            found |= {name: math.prod(parts)} if len(parts) > 1 else {}
            found |= {f"{name}[{index}]": part for index, part in enumerate(parts)}
    return {name: value for name, value in found.items() if math.isfinite(value)}
