"""The numbers in what hypothesis called a test with, and which of them its time goes with."""

import math
import re
from collections.abc import Mapping, Sequence

NAME = re.compile(r"(?:^|, )([A-Za-z_]\w*)=")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
TUPLE = re.compile(r"[(\[]\s*(\d+(?:\s*,\s*\d+)*)\s*,?\s*[)\]]")


def sizes_in(example: str) -> dict[str, float]:
    """Return the numbers in an example by name: `rows`, `shape[1]`, and the product of a shape as `shape`.

    Names that are not at the top level (`x=ones((3,), dtype=...)`) are taken for keywords all the same: their values
    are then no numbers, or numbers worth showing.
    """
    found: dict[str, float] = {}
    starts = [*NAME.finditer(example)]
    ends = [match.start() for match in starts[1:]] + [len(example)]
    for match, end in zip(starts, ends, strict=False):  # without a name there is still an end
        found |= numbers_of(match[1], example[match.end() : end])
    return found


def numbers_of(name: str, text: str) -> dict[str, float]:
    """Return the numbers in the text of one argument."""
    if NUMBER.fullmatch(text.strip()):
        return finite({name: float(text)})
    shape = TUPLE.search(text)
    if shape is None:
        return {}
    parts = [float(part) for part in shape[1].split(",")]
    named = {f"{name}[{index}]": part for index, part in enumerate(parts)}
    return finite({name: math.prod(parts), **named} if len(parts) > 1 else named)


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values that are finite."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def size_that_matters(sizes: Sequence[Mapping[str, float]], times_us: Sequence[float]) -> str:
    """Return the name of the size that the times go with most closely, by rank; empty where there is none."""
    names = list(dict.fromkeys(name for each in sizes for name in each))
    strengths = {name: strength(name, sizes, times_us) for name in names}
    best = max(strengths, key=lambda name: strengths[name], default="")
    return best if best and strengths[best] >= 0 else ""


def strength(name: str, sizes: Sequence[Mapping[str, float]], times_us: Sequence[float]) -> float:
    """Return how closely times go with one size, from 0 to 1; -1 where it has fewer than two values."""
    points = [(each[name], time) for each, time in zip(sizes, times_us, strict=True) if name in each]
    if len({size for size, _ in points}) < 2:
        return -1.0
    return abs(correlation(ranks([size for size, _ in points]), ranks([time for _, time in points])))


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, the mean of its ranks for one that comes several times."""
    ordered = sorted(values)
    first = {value: index for index, value in reversed([*enumerate(ordered)])}
    last = {value: index for index, value in enumerate(ordered)}
    return [(first[value] + last[value]) / 2 for value in values]


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the correlation coefficient; 0 where one of the two does not vary."""
    means = (sum(first) / len(first), sum(second) / len(second))
    pairs = [(x - means[0], y - means[1]) for x, y in zip(first, second, strict=True)]
    spread = math.sqrt(sum(x * x for x, _ in pairs) * sum(y * y for _, y in pairs))
    return sum(x * y for x, y in pairs) / spread if spread else 0.0
