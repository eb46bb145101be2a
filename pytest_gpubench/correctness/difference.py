"""What one output differs in, and its text."""

import math
from dataclasses import dataclass

from pytest_gpubench.units import count, format_share

__tracebackhide__ = True

Number = bool | int | float | complex

ROUNDING_FACTOR = 100
"""So many times what is allowed, and less, may be rounding: a sum of many elements in another order comes that far."""


@dataclass(frozen=True)
class GoldenErrors:
    """The errors of candidate and reference against golden, over their finite elements, and what was allowed."""

    max_abs_diff: float
    reference_max_abs_diff: float
    rms_diff: float
    reference_rms_diff: float
    allowed_rms_diff: float
    factor: float


@dataclass(frozen=True)
class Difference:
    """How one output of the candidate differs from the reference's, or from golden where there is one."""

    name: str
    passed: bool
    max_abs_diff: float | None = None
    """The largest over all elements; nan where a NaN has no right to be; None where nothing could be subtracted."""
    max_rel_diff: float | None = None
    """The largest of the differences over what was expected, inf where that is 0."""
    mismatched: int = 0
    elements: int = 0
    where: tuple[int, ...] | None = None
    """The index of the element that is furthest off among the mismatched; None where there is none."""
    abs_diff: float | None = None
    """The difference there, and what was allowed, found and expected."""
    allowed: float | None = None
    found: Number | None = None
    expected: Number | None = None
    unwritten: int = 0
    """How many of the mismatched elements hold the bytes that `poison_free_memory` left."""
    problem: str | None = None
    """What could not even be subtracted: another structure, shape, dtype, device or layout, unequal non-tensors."""
    golden: GoldenErrors | None = None

    @property
    def may_be_rounding(self) -> bool:
        """Whether it fails by so little, between floats judged by a tolerance, that both may only round otherwise."""
        if self.passed or self.golden is not None or self.unwritten or not isinstance(self.found, (float, complex)):
            return False
        return bool(self.abs_diff and self.allowed and self.abs_diff <= ROUNDING_FACTOR * self.allowed)

    @property
    def line(self) -> str:
        """The result in a few words: `obs PASS max_diff=1.2e-07`."""
        head = f"{self.name} {'PASS' if self.passed else 'FAIL'}"
        if self.problem is not None:
            return f"{head} {self.problem}"
        if self.max_abs_diff is None:
            return f"{head} equal"
        line = f"{head} max_diff={self.max_abs_diff:.2g}"
        if self.golden is not None:
            line += f" (the reference's {self.golden.reference_max_abs_diff:.2g})"
        return line if self.passed else f"{line}, {self.mismatched} of {count(self.elements, 'element')}"

    @property
    def sentence(self) -> str:
        """What is wrong: how many elements, their share, the worst, where, what is allowed; `line` if nothing is."""
        if self.passed:
            return self.line
        if self.problem is not None:
            return f"{self.name}: {self.problem}"
        parts = [self._how_many(), self._worst()] if self.mismatched else []
        parts += self._unwritten() + self._against_golden()
        return f"{self.name}: " + "; ".join(parts)

    def _how_many(self) -> str:
        share = format_share(self.mismatched / self.elements)
        verb = "differs" if self.mismatched == 1 else "differ"
        return f"{self.mismatched} of {count(self.elements, 'element')} ({share}) {verb} by more than is allowed"

    def _worst(self) -> str:
        found, expected = distinct_texts(self.found, self.expected)
        place = f" at {list(self.where)}" if self.where else ""
        text = f"the worst{place}: found {found}, expected {expected}"
        if self.abs_diff is None or not math.isfinite(self.abs_diff):
            both = found == expected == "nan"
            return f"{text} (equal_nan=True would let it pass)" if both else text
        return f"{text}, off by {self.abs_diff:.4g}, allowed {self.allowed:.4g}"

    def _unwritten(self) -> list[str]:
        if not self.unwritten:
            return []
        return [f"never written, for it holds what free memory was filled with: {count(self.unwritten, 'element')}"]

    def _against_golden(self) -> list[str]:
        if self.golden is None:
            return []
        seen = self.golden
        return [
            f"against golden its largest error is {seen.max_abs_diff:.4g}, the reference's "
            f"{seen.reference_max_abs_diff:.4g}; its RMS error {seen.rms_diff:.4g}, the reference's "
            f"{seen.reference_rms_diff:.4g}, allowed {seen.allowed_rms_diff:.4g} ({seen.factor:g} times the "
            "reference's and one unit in the last place)"
        ]


def distinct_texts(found: Number | None, expected: Number | None) -> tuple[str, str]:
    """Write two numbers with so many digits that one sees that they differ."""
    for digits in (4, 9, 17):
        texts = _write_number(found, digits), _write_number(expected, digits)
        if texts[0] != texts[1] or found == expected:
            break
    return texts


def _write_number(number: Number | None, digits: int) -> str:
    return f"{number:.{digits}g}" if isinstance(number, (float, complex)) else str(number)
