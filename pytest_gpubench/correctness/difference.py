"""The difference of one output, and the sentence about it."""

import math
from dataclasses import dataclass

from pytest_gpubench.units import count, format_share

Number = bool | int | float | complex

MOST_DISAGREEMENT = 0.1
"""The largest error of a reference, as a part of golden itself, that is not called a doubt: float8 rounds by 6 %."""
ROUNDING_FACTOR = 100
"""A difference up to so many times the allowed one may be rounding: a long sum in another order is off by as much."""
MOST_FACTOR = 10
"""The largest golden_factor that an error names."""


@dataclass(frozen=True)
class GoldenErrors:
    """The errors of candidate and reference against golden, over their finite elements, and the allowed error."""

    max_abs_diff: float
    reference_max_abs_diff: float
    rms_diff: float
    reference_rms_diff: float
    allowed_rms_diff: float
    factor: float
    rms: float
    """About the RMS of golden itself."""
    rtol: float
    """The part of golden that the errors of few elements may be in any case; 0 for many."""

    @property
    def sentence(self) -> str:
        """The errors of both, and what is allowed."""
        few = f", or {self.rtol:g} of so few elements" if self.rtol else ""
        return (
            f"against golden its largest error is {self.max_abs_diff:.4g}, the reference's "
            f"{self.reference_max_abs_diff:.4g}; its RMS error {self.rms_diff:.4g}, the reference's "
            f"{self.reference_rms_diff:.4g}, allowed {self.allowed_rms_diff:.4g} ({self.factor:g} times the "
            f"reference's and one unit in the last place{few})"
        )

    @property
    def advice(self) -> str:
        """The golden_factor that allows these errors, if it is a small one."""
        errors = (self.max_abs_diff, self.reference_max_abs_diff), (self.rms_diff, self.reference_rms_diff)
        factor = max(found / reference if reference else math.inf for found, reference in errors)
        return f"; if only rounding differs, give golden_factor={math.ceil(factor)}" if factor <= MOST_FACTOR else ""


@dataclass(frozen=True)
class Difference:
    """The difference of one output of the candidate from the reference's, or from golden if it is given."""

    name: str
    passed: bool
    max_abs_diff: float | None = None
    """The largest over all elements, in float32 if they pass; NaN where a NaN was found or expected, None where nothing
    could be subtracted."""
    mismatched: int = 0
    elements: int = 0
    where: tuple[int, ...] | None = None
    """The index of the worst mismatched element; None where there is none."""
    abs_diff: float | None = None
    """The difference there; the next three are there too."""
    allowed: float | None = None
    found: Number | None = None
    expected: Number | None = None
    unwritten: int = 0
    """The mismatched elements that hold the bytes that `poison_free_memory` left."""
    nans: int = 0
    """The mismatched elements that are NaN."""
    problem: str | None = None
    """The reason why none was subtracted: another structure, shape, dtype, device or layout, or unequal non-tensors."""
    golden: GoldenErrors | None = None

    @property
    def may_be_rounding(self) -> bool:
        """True if it fails by so little, between floats under a tolerance, that only the rounding may differ."""
        if self.passed or self.golden is not None or self.unwritten or not isinstance(self.found, (float, complex)):
            return False
        return bool(self.abs_diff and self.allowed and self.abs_diff <= ROUNDING_FACTOR * self.allowed)

    @property
    def doubt(self) -> str:
        """The reason why golden may compute something else than the reference; empty where they agree."""
        found = self.golden
        if found is None or found.reference_rms_diff <= MOST_DISAGREEMENT * found.rms:
            return ""
        return (
            f"golden= and the reference disagree about {self.name}: the reference's RMS error is "
            f"{found.reference_rms_diff:.4g}, and the RMS of golden {found.rms:.4g}; does golden= compute the same? "
            f"The candidate was allowed {found.factor:g} times that error"
        )

    @property
    def line(self) -> str:
        """The result in one line: `obs PASS max_diff=1.2e-07`."""
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
        """The mismatch: its elements, their share, the worst and its place, the tolerance; `line` if it passed."""
        if self.passed:
            return self.line
        if self.problem is not None:
            return f"{self.name}: {self.problem}"
        parts = [self._how_many(), self._worst()] if self.mismatched else []
        if self.unwritten:
            elements = count(self.unwritten, "element")
            parts.append(f"never written, for it holds what free memory was filled with: {elements}")
        if self.golden is not None:
            parts.append(self.golden.sentence + ("" if self.unwritten or self.nans else self.golden.advice))
        return f"{self.name}: " + "; ".join(parts)

    def _how_many(self) -> str:
        share = format_share(self.mismatched / self.elements)
        verb = "differs" if self.mismatched == 1 else "differ"
        nans = {0: "", self.mismatched: ", all of them NaN"}.get(self.nans, f", {self.nans} of them NaN")
        return f"{self.mismatched} of {count(self.elements, 'element')} ({share}) {verb} by more than is allowed{nans}"

    def _worst(self) -> str:
        found, expected = distinct_texts(self.found, self.expected)
        place = f" at {list(self.where)}" if self.where else ""
        text = f"the worst{place}: found {found}, expected {expected}"
        if self.abs_diff is None or not math.isfinite(self.abs_diff):
            both = found == expected == "nan"
            return f"{text} (equal_nan=True would let it pass)" if both else text
        if self.found == self.expected:
            return f"{text}: it changed while it was compared, as where a call goes on after it returned"
        return f"{text}, off by {self.abs_diff:.4g}, allowed {self.allowed:.4g}"


def distinct_texts(found: Number | None, expected: Number | None) -> tuple[str, str]:
    """Write two numbers with enough digits to tell them apart."""
    for digits in (4, 9, 17):
        texts = _write_number(found, digits), _write_number(expected, digits)
        if texts[0] != texts[1] or found == expected:
            break
    return texts


def _write_number(number: Number | None, digits: int) -> str:
    return f"{number:.{digits}g}" if isinstance(number, (float, complex)) else str(number)
