"""Limits on the counters of a call: instructions, bytes read from memory, or any other; taken by ncu, without noise."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pytest_gpubench.bounds import at_least, whole_number
from pytest_gpubench.counters import counter_named
from pytest_gpubench.limits import limit_for_device, memory_size, number_by_name
from pytest_gpubench.results.model import Counts, Measurement, Outcome, Timing
from pytest_gpubench.units import count, format_bytes, format_share, round_to_digits
from pytest_gpubench.verdict.decision import Judged
from pytest_gpubench.verdict.limits.base import Limit, Need, Seen, not_for_device, only

OF_NEEDED = re.compile(r"\s*(\d+(?:\.\d+)?)\s*x\s*")
"""A multiple of the bytes that a call has to read."""
IN_CACHE = "dram_read_bytes"


class OnCounter(Limit):
    """A limit on one counter."""

    stage = "counters"
    holds_throttled = True
    needed = frozenset({"counters"})
    counter: ClassVar[str]

    @property
    def counters(self) -> tuple[str, ...]:
        return (self.counter,)

    def most(self, timing: Timing) -> float | None:
        """Return what the counter is at most; None where the limit says nothing of this GPU or call."""
        raise NotImplementedError

    def judge(self, seen: Seen) -> Judged:
        timing = seen.timing
        (name,) = self.counters
        if unknown := counter_unknown(timing, name, self.named):
            return unknown
        if (most := self.most(timing)) is None:
            return self.not_here(timing)
        assert timing.counts is not None
        found, median = timing.counts.captures[name], timing.counts.median(name)
        outcome = Outcome.PASS if max(found) <= most else Outcome.FAIL if min(found) > most else Outcome.INCONCLUSIVE
        apart, taken = spread_of_captures(found), count(len(found), "capture")
        alike = ", all the same" if len(found) > 1 else ""
        return outcome, (
            f"{timing.label} {counted_text(name, median, most)}, wanted at most "
            f"{number_text(name, most, median)}{self.why(timing)} "
            f"({taken}{f' that differ by {format_share(apart)}' if apart else alike})"
        )

    def not_here(self, timing: Timing) -> Judged:
        """Return what is judged where the limit says nothing of this GPU or call."""
        return not_for_device(self, timing)

    def why(self, timing: Timing) -> str:
        """Return where the number in the limit comes from; empty where it was given."""
        return ""

    def found(self, seen: Seen) -> str:
        counts, (name,) = seen.timing.counts, self.counters
        return number_text(name, counts.median(name)) if counts and name in counts.captures else ""

    def cell(self, item: Measurement) -> str:
        most, (name,) = self.most(item.timing), self.counters
        if most is None:
            return only(self.asked) if isinstance(self.asked, Mapping) else f"<= {self.asked} {name}"
        return f"<= {number_text(name, most)} {name}"


class MaxInstructions(OnCounter):
    """A call executes at most so many instructions."""

    name = "max_instructions"
    help = (
        "instructions that a call executes, each counted once for a warp, at most, as ncu counts: a number, or one per "
        "GPU name {'H200': 2e9}"
    )
    counter = "instructions"
    parse = staticmethod(number_by_name("GPUs", "{'H200': 2e9, 'A100': 3e9}"))

    def most(self, timing: Timing) -> float | None:
        return limit_for_device(self.value, timing.device)


class MaxDramBytes(OnCounter):
    """A call reads at most so many bytes from the GPU's memory."""

    name = "max_dram_bytes"
    help = (
        "bytes that a call reads from the GPU's memory, at most, as ncu counts: bytes, a text as in '1GiB', or '1.1x' "
        "of the bytes that it has to read; what it writes stays in the cache in part, and is not counted"
    )
    counter = "dram_read_bytes"

    @staticmethod
    def parse(asked: Any) -> int | float:
        found = OF_NEEDED.fullmatch(asked) if isinstance(asked, str) else None
        if found is None:
            try:
                return whole_number(memory_size(asked))
            except ValueError as error:
                raise ValueError(f"{error}; or '1.1x' of what has to be read") from None
        if float(found[1]) < 1:
            raise ValueError("it must be at least 1x: each byte has to be read once")
        return float(found[1])

    @property
    def needs(self) -> frozenset[Need]:
        return self.needed | {"bytes"} if self.is_relative else self.needed

    @property
    def is_relative(self) -> bool:
        """True if it is a multiple of the bytes that a call has to read."""
        return isinstance(self.value, float)

    def most(self, timing: Timing) -> float | None:
        if not self.is_relative:
            return float(self.value)
        return None if not timing.read_bytes else self.value * timing.read_bytes

    def not_here(self, timing: Timing) -> Judged:
        words = f"{timing.label} was not judged by {self.named}: it is not known how many bytes it has to read"
        return Outcome.NOT_JUDGED, f"{words}; give the inputs as args=, or the limit in bytes"

    def why(self, timing: Timing) -> str:
        read = timing.read_bytes if self.is_relative else None
        return f", {self.value:g}x of the {format_bytes(read)} that it has to read" if read else ""


class MaxCounters(OnCounter):
    """Each of some counters is at most its number."""

    name = "max_counters"
    help = (
        "counters by name, each at most, as ncu counts: {'atomics': 0, 'local_loads': 0}; names are those of "
        "`pytest-gpubench doctor --counters`, and ncu's own that end in .sum"
    )
    has_parts = True

    @staticmethod
    def parse(asked: Any) -> Mapping[str, float]:
        if not isinstance(asked, Mapping) or not asked:
            raise ValueError("it must map counters to numbers, as in {'atomics': 0}")
        for name in asked:
            counter_named(name if isinstance(name, str) else repr(name))
        return {name: at_least(0)(value) for name, value in asked.items()}

    @property
    def counters(self) -> tuple[str, ...]:
        return tuple(self.asked)

    def parts(self) -> Sequence[Limit]:
        return [MaxCounters({name: most}) for name, most in self.asked.items()]

    def most(self, timing: Timing) -> float | None:
        (most,) = self.value.values()
        return float(most)

    def cell(self, item: Measurement) -> str:
        return ", ".join(f"<= {number_text(name, most)} {name}" for name, most in self.value.items())


LIMITS = (MaxInstructions, MaxDramBytes, MaxCounters)


def counter_unknown(timing: Timing, name: str, named: str) -> Judged | None:
    """Return what is judged where a counter of a call is not known, or says nothing; None where it does."""
    counts, unjudged = timing.counts, f"{timing.label} was not judged by {named}"
    if counts is None:
        return Outcome.NOT_JUDGED, f"{unjudged}: {timing.unmeasured or 'its counters were not taken'}"
    if counts.untaken:
        return Outcome.NOT_JUDGED, f"{unjudged}: {counts.untaken}"
    if counts.wrong:
        return Outcome.INVALID, f"{timing.label}: {named} cannot be judged: {counts.wrong}"
    if name not in counts.captures:
        return Outcome.NOT_JUDGED, f"{unjudged}: {name} was not taken, or ncu has none on this GPU"
    if small := says_nothing(counts, name):
        return Outcome.NOT_JUDGED, f"{unjudged}: {small}"
    return None


def says_nothing(counts: Counts, name: str) -> str:
    """Return why a counter says nothing of a call that reads less than the cache holds; empty where it does."""
    if name != IN_CACHE or counts.median(name) >= counts.cache_bytes:
        return ""
    read, holds = format_bytes(round(counts.median(name))), format_bytes(counts.cache_bytes)
    return f"the {read} that it reads fit into the cache of {holds}, so reads from memory do not repeat: take more"


def counted_text(name: str, value: float, beside: float | None = None) -> str:
    """Return a count with its counter: `executes 1,234 instructions`."""
    number = number_text(name, value, beside)
    known = {"instructions": f"executes {number} instructions", "dram_read_bytes": f"reads {number} from memory"}
    return known.get(name, f"has {name} of {number}")


def number_text(name: str, value: float, beside: float | None = None) -> str:
    """Return a count without its counter's name; of bytes as `format_bytes`."""
    if counter_named(name).in_bytes:
        return format_bytes(round(value), None if beside is None else round(beside))
    return f"{value:,.0f}" if value == round(value) else round_to_digits(value, 6)


def spread_of_captures(values: Sequence[float]) -> float:
    """Return the largest less the smallest over the largest; 0 where all are 0."""
    return (max(values) - min(values)) / max(values) if max(values) else 0.0
