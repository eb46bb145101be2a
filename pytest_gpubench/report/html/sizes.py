"""The numbers in an example of hypothesis."""

import math
import re
from collections.abc import Mapping

KEYWORD = re.compile(r"(?:^|, )([A-Za-z_]\w*)=")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
TUPLE = re.compile(r"[(\[]\s*(\d+(?:\s*,\s*\d+)*)\s*,?\s*[)\]]")


def sizes_in(example: str) -> dict[str, float]:
    """Return the numbers in an example by name: `rows`, `shape[1]`, and the product of a shape as `shape`.

    Names that are not at the top level (`x=ones((3,), dtype=...)`) are taken for keywords all the same: their values
    are then no numbers, or numbers worth showing.
    """
    found: dict[str, float] = {}
    starts = [*KEYWORD.finditer(example)]
    ends = [match.start() for match in starts[1:]] + [len(example)]
    for match, end in zip(starts, ends, strict=False):  # without a name there is still an end
        found |= _sizes_of(match[1], example[match.end() : end])
    return found


def _sizes_of(name: str, text: str) -> dict[str, float]:
    if NUMBER.fullmatch(text.strip()):
        return _finite({name: float(text)})
    shape = TUPLE.search(text)
    if shape is None:
        return {}
    parts = [float(part) for part in shape[1].split(",")]
    named = {f"{name}[{index}]": part for index, part in enumerate(parts)}
    return _finite({name: math.prod(parts), **named} if len(parts) > 1 else named)


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}
