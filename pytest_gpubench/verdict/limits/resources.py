"""Limits on the kernels, copies, waits and memory of a call; counted, as the exact ones are."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_gpubench.bounds import whole_number
from pytest_gpubench.limits import FORBIDDABLE, memory_size, texts_in
from pytest_gpubench.results.kernels import is_copy, is_fill, listed
from pytest_gpubench.results.model import Measurement, Outcome, Timing
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.units import count, format_bytes
from pytest_gpubench.verdict.decision import Judged
from pytest_gpubench.verdict.limits.base import Limit, Need, Seen
from pytest_gpubench.verdict.limits.exact import kernels_unknown, why_unmeasured

BLOCKING_COPY = "Device -> Pageable"
"""A copy to memory that is not pinned: the function that asks for it returns when it is over."""


class MaxKernels(Limit):
    """A call launches at most so many kernels."""

    name = "max_kernels"
    help = "kernels that one call launches, at most; copies and memsets are none: forbid them"
    parse = staticmethod(whole_number)

    def judge(self, seen: Seen) -> Judged:
        if unknown := kernels_unknown(seen.timing):
            return unknown
        kernels = [kernel for kernel in seen.timing.kernels if kernel.kind == "kernel"]
        launched = sum(kernel.launches for kernel in kernels)
        words = f"{seen.timing.label} launches {count(launched, 'kernel')}, wanted at most {self.asked}"
        return (Outcome.PASS, words) if launched <= self.asked else (Outcome.FAIL, f"{words}: {listed(kernels)}")

    def cell(self, item: Measurement) -> str:
        launched = sum(kernel.launches for kernel in item.timing.kernels if kernel.kind == "kernel")
        return f"{f'{launched} ' if item.timing.kernels else ''}<= {count(self.asked, 'kernel')}"


class Forbid(Limit):
    """A call never does any of these."""

    name = "forbid"
    help = (
        "what a call must not do, as in ('memcpy', 'sync'): memcpy and memset are copies and fills of memory, those "
        "of torch's kernels too; sync is a host that waits for the GPU; alloc is GPU memory taken, outputs included"
    )
    has_parts = True

    @staticmethod
    def parse(asked: Any) -> tuple[str, ...]:
        legal = ", ".join(FORBIDDABLE)
        found = texts_in(asked, f"of {legal}, as in ('memcpy', 'sync')")
        unknown = [each for each in found if each not in FORBIDDABLE]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not known; legal are {legal}")
        return found

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"observation"} if {"sync", "alloc"} & set(self.value) else ())

    def parts(self) -> Sequence[Limit]:
        return [Forbid(each) for each in self.value]

    def judge(self, seen: Seen) -> Judged:
        return FORBIDS[self.asked](seen.timing, seen.observed)

    def cell(self, item: Measurement) -> str:
        return f"no {', '.join(self.value)}"


class MaxMemory(Limit):
    """A call takes at most this much GPU memory at once, and keeps none."""

    name = "max_memory"
    help = (
        "GPU memory that a call takes at once above what is in use before it, outputs included, at most: bytes, or a "
        "text as in '1GiB'; none of it may be kept after each call"
    )
    needed = frozenset({"observation"})
    parse = staticmethod(memory_size)

    def judge(self, seen: Seen) -> Judged:
        """Judge the most memory that a call takes at once, and that it gives all of it back: a leak has no limit."""
        label, observed = seen.timing.label, seen.observed
        if observed is None:
            return _not_observed(seen.timing, self.named)
        if observed.memory is None:
            return _not_counted(seen.timing)
        memory, most = observed.memory, self.value
        taken, wanted = format_bytes(memory.peak_bytes, most), f"wanted at most {format_bytes(most, memory.peak_bytes)}"
        words = f"{label} takes {taken} of GPU memory above what was in use, outputs included, {wanted}"
        if memory.peak_bytes > self.value:
            return Outcome.FAIL, words
        if memory.kept_bytes:
            return Outcome.FAIL, (
                f"{label} keeps {format_bytes(memory.kept_bytes)} of GPU memory after each call, though its outputs "
                f"are dropped: whatever it takes in one, {wanted}, in the end it takes more"
            )
        return Outcome.PASS, words

    def found(self, seen: Seen) -> str:
        memory = None if seen.observed is None else seen.observed.memory
        return "" if memory is None else format_bytes(memory.peak_bytes)

    def cell(self, item: Measurement) -> str:
        return f"<= {format_bytes(self.value)}"


LIMITS = (MaxKernels, Forbid, MaxMemory)


def _judge_absence(timing: Timing, is_one: Callable[[str, str], bool], verb: str) -> Judged:
    if unknown := kernels_unknown(timing):
        return unknown
    found = [kernel for kernel in timing.kernels if is_one(kernel.name, kernel.kind)]
    if not found:
        return Outcome.PASS, f"{timing.label} {verb} no memory, as wanted"
    launched = sum(kernel.launches for kernel in found)
    return Outcome.FAIL, f"{timing.label} {verb} memory {count(launched, 'time')}, wanted none: {listed(found)}"


def _judge_waits(timing: Timing, observed: Observed | None) -> Judged:
    if observed is None:
        return _not_observed(timing, "forbid='sync'")
    in_runtime = sum(observed.runtime_waits.values())
    unseen = in_runtime - len(observed.waits)
    places = [str(wait) for wait in observed.waits]
    if unseen > 0:
        where = "from code that cannot be told" if places else "from code outside of torch and Python"
        places.append(f"{_calls(observed.runtime_waits)} of the CUDA runtime, {unseen} {where}")
    copies = [kernel for kernel in timing.kernels if BLOCKING_COPY in kernel.name]
    if not places and not copies:
        return Outcome.PASS, f"{timing.label} never waits for the GPU, as wanted"
    if not places:
        words = "waits for copies to memory that is not pinned, wanted never"
        return Outcome.FAIL, f"{timing.label} {words}: {listed(copies)}"
    number = count(observed.waits_number, "time")
    told = [f"{times} x {place}" if times > 1 else place for place, times in Counter(places).items()]
    return Outcome.FAIL, f"{timing.label} waits for the GPU {number}, wanted never: {'; '.join(told)}"


def _calls(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{number} x {name}" for name, number in calls.items())


def _judge_allocations(timing: Timing, observed: Observed | None) -> Judged:
    """Judge that a call takes no GPU memory, not even for what it returns."""
    if observed is None:
        return _not_observed(timing, "forbid='alloc'")
    memory, found = observed.memory, []
    if memory is None and not any(observed.driver_allocations.values()):
        return _not_counted(timing)
    if memory is not None and memory.allocations:
        size = format_bytes(memory.allocated_bytes)
        found.append(f"{count(memory.allocations, 'allocation')} of torch's, {size} together, outputs included")
    if any(observed.driver_allocations.values()):
        found.append(f"{_calls(observed.driver_allocations)} of the CUDA runtime")
    if not found:
        return Outcome.PASS, f"{timing.label} allocates no GPU memory, as wanted"
    return Outcome.FAIL, f"{timing.label} allocates GPU memory, wanted none: {'; '.join(found)}"


def _not_observed(timing: Timing, limit: str) -> Judged:
    need = ", which needs a GPU" if timing.measured or timing.timer == "wall" else ""
    return Outcome.NOT_JUDGED, f"{timing.label} was not judged by {limit}{need}{why_unmeasured(timing)}"


def _not_counted(timing: Timing) -> Judged:
    return Outcome.INVALID, (
        f"{timing.label} takes its GPU memory from an allocator that does not count: use torch's own, or leave this "
        "limit out"
    )


FORBIDS: Mapping[str, Callable[[Timing, Observed | None], Judged]] = {
    "memcpy": lambda timing, _: _judge_absence(timing, is_copy, "copies"),
    "memset": lambda timing, _: _judge_absence(timing, is_fill, "fills"),
    "sync": _judge_waits,
    "alloc": _judge_allocations,
}
