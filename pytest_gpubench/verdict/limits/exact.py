"""Limits on the names of a call's kernels, and on whether it repeats itself.

These are counted, not sampled: a limit is kept or broken for certain.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from pytest_gpubench.bounds import true_or_false
from pytest_gpubench.limits import texts_in
from pytest_gpubench.results.kernels import is_named, listed
from pytest_gpubench.results.model import Measurement, Outcome, Timing
from pytest_gpubench.verdict.decision import Judged
from pytest_gpubench.verdict.limits.base import Limit, Seen


class Kernels(Limit):
    """Kernels of these names are among those of a call."""

    name = "kernels"
    help = "patterns that names of kernels must match, full or short, as in ('*softmax*',)"
    parse = staticmethod(partial(texts_in, which="with wildcards, as in ('*softmax*',)"))

    def judge(self, seen: Seen) -> Judged:
        timing = seen.timing
        if unknown := kernels_unknown(timing):
            return unknown
        if missing := " or ".join(patterns_unmatched(self.value, timing)):
            return Outcome.FAIL, f"{timing.label} launches no kernel named {missing}, only {listed(timing.kernels)}"
        return Outcome.PASS, f"{timing.label} launches kernels named {', '.join(self.value)}"

    def cell(self, item: Measurement) -> str:
        return f"kernels {', '.join(self.value)}"


class ForbidKernels(Limit):
    """No kernel of these names is among those of a call."""

    name = "forbid_kernels"
    help = "patterns that names of kernels must not match, full or short, as in ('*flash_attn*',)"
    parse = staticmethod(partial(texts_in, which="with wildcards, as in ('*flash_attn*',)"))

    def judge(self, seen: Seen) -> Judged:
        timing = seen.timing
        if unknown := kernels_unknown(timing):
            return unknown
        found = [each for each in timing.kernels if any(is_named(each.name, pattern) for pattern in self.value)]
        unwanted = f"no kernel named {' or '.join(self.value)}"
        if found:
            return Outcome.FAIL, f"{timing.label} launches {listed(found)}, wanted {unwanted}"
        return Outcome.PASS, f"{timing.label} launches {unwanted}, as wanted"

    def cell(self, item: Measurement) -> str:
        return f"no {', '.join(self.value)}"


class Deterministic(Limit):
    """A call returns the same bits again."""

    name = "deterministic"
    help = "whether outputs must be the same bits in every call"

    parse = staticmethod(true_or_false)

    @property
    def needs(self) -> frozenset[Any]:
        return frozenset({"repeats"} if self.asked else ())

    def parts(self) -> Sequence[Limit]:
        return [self] if self.asked else []

    def judge(self, seen: Seen) -> Judged:
        label = seen.timing.label
        if seen.differing is None:
            why = why_unmeasured(seen.timing)
            return Outcome.NOT_JUDGED, f"{label} was not called again to compare its outputs{why}"
        if seen.differing:
            words = f"does not repeat itself bit by bit: {', '.join(seen.differing)} differs from call to call"
            return Outcome.FAIL, f"{label} {words}"
        return Outcome.PASS, f"{label} returns the same bits in every call"

    def cell(self, item: Measurement) -> str:
        return "deterministic"


LIMITS = (Kernels, ForbidKernels, Deterministic)


def patterns_unmatched(patterns: Iterable[str], timing: Timing) -> list[str]:
    """Return the patterns that no name of a call's kernels matches."""
    return [each for each in patterns if not any(is_named(kernel.name, each) for kernel in timing.kernels)]


def kernels_unknown(timing: Timing) -> Judged | None:
    """Return the reason why a call's kernels are not known; None if they are."""
    if timing.kernels:
        return None
    if timing.measured and timing.timer in ("events", "graph"):
        words = f"cannot be judged: the timer {timing.timer!r} sees no kernels, use timer='profiler'"
        return Outcome.INVALID, f"{timing.label} {words}"
    reason = why_unmeasured(timing) or f": the timer {timing.timer!r} sees none"
    return Outcome.NOT_JUDGED, f"{timing.label} has no kernels to judge{reason}"


def why_unmeasured(timing: Timing) -> str:
    """Return the reason why a call was not measured, after a colon; empty if it was."""
    return "" if timing.measured else f": {timing.unmeasured}"
