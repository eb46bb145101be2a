"""The length of one side, drawn where kernels break.

Sizes lie on a scale: all sizes up to 128, and above that 32 steps to the octave, each with both its edges. A draw is a
place on the scale and a kind, which moves the size down to the nearest one of that kind. The simplest kind, `any`,
reaches nearly every size that the others reach, so that hypothesis can shrink from one kind to another.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

EXACT = 128
STEPS = 32
WINDOW = 6
"""The octaves of one draw; windows overlap, so that a size can shrink from one to the next."""

TILES = (16, 32, 64, 128)


class Range(NamedTuple):
    """The sizes that a side may have."""

    least: int
    most: int
    multiple_of: int = 1

    @property
    def first(self) -> int:
        """The smallest size."""
        return self.multiple_of * -(-self.least // self.multiple_of)

    @property
    def last(self) -> int:
        """The largest size."""
        return self.multiple_of * (self.most // self.multiple_of)


def size_at(place: int) -> int:
    """Return the size at a place on the scale."""
    if place < EXACT:
        return place
    octave, rest = divmod(place - EXACT, 3 * STEPS)
    step = (EXACT // STEPS) << octave
    number, edge = divmod(rest, 3)
    return (EXACT << octave) + number * step + (0, 1, step - 1)[edge]


def place_of(size: int) -> int:
    """Return the last place on the scale whose size is at most this."""
    if size < EXACT:
        return size
    octave = size.bit_length() - EXACT.bit_length()
    step = (EXACT // STEPS) << octave
    number, rest = divmod(size - (EXACT << octave), step)
    return EXACT + octave * 3 * STEPS + 3 * number + (2 if rest == step - 1 else min(rest, 1))


def is_prime(number: int) -> bool:
    """Tell whether a number is prime; of one just above 2**31 in some milliseconds."""
    if number % 2 == 0 or number < 3:
        return number == 2
    return all(number % each for each in range(3, math.isqrt(number) + 1, 2))


def _power(beside: int) -> Callable[[int], int | None]:
    return lambda size: (1 << ((size - beside).bit_length() - 1)) + beside if size > beside + 1 else None


def _tile(tile: int, beside: int) -> Callable[[int], int | None]:
    return lambda size: (size - beside) // tile * tile + beside if size >= tile + beside else None


KINDS: dict[str, Callable[[int], int | None]] = {
    "any": lambda size: size,
    "one": lambda size: 1,
    "prime": lambda size: next(filter(is_prime, range(size, 1, -1)), None),
    "power of two": _power(0),
    "above a power of two": _power(1),
    "below a power of two": _power(-1),
    **{f"tile of {tile}": _tile(tile, 0) for tile in TILES},
    **{f"above a tile of {tile}": _tile(tile, 1) for tile in TILES},
    **{f"below a tile of {tile}": _tile(tile, -1) for tile in TILES},
    "zero": lambda size: 0,
}
"""The largest number of each kind up to a size; None where there is none."""

WEIGHTS = {"any": 6, "prime": 2, "power of two": 2, "above a power of two": 3}
_DRAWN = [kind for kind in KINDS for _ in range(WEIGHTS.get(kind, 1)) if kind != "zero"]
_KINDS, _KINDS_AND_ZERO = st.sampled_from(_DRAWN), st.sampled_from([*_DRAWN, "zero"])


@st.composite
def sizes(draw: DrawFn, within: Range) -> int:
    """Draw the length of a side; shrinks towards the smallest."""
    lowest, highest = (size // within.multiple_of for size in (within.first, within.last))
    kind = draw(_KINDS_AND_ZERO if lowest == 0 else _KINDS)
    octaves = draw(st.integers(min(highest, max(lowest, EXACT - 1)).bit_length(), highest.bit_length()))
    top = min(highest, (1 << octaves) - 1)
    bottom = lowest if octaves <= WINDOW + EXACT.bit_length() - 1 else max(lowest, 1 << (octaves - WINDOW))
    place = draw(st.integers(place_of(bottom), place_of(top) + (size_at(place_of(top)) < top)))
    size = max(lowest, min(top, size_at(place)))
    moved = KINDS[kind](size)
    return within.multiple_of * (size if moved is None or not lowest <= moved <= highest else moved)
