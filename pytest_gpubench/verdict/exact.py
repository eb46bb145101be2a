"""Limits on what a call does, judged without noise: its kernels, copies, waits, memory, and whether it repeats itself.

Nothing here is a matter of chance: a limit is kept or broken, and there is no alpha.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from pytest_gpubench.limits import as_written, forbidden_things, memory_size, name_patterns
from pytest_gpubench.results.kernels import is_copy, is_fill, listed, short_name
from pytest_gpubench.results.model import Kernel, Outcome, Timing, Verdict
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.units import count, format_bytes
from pytest_gpubench.verdict.decision import Judged

__tracebackhide__ = True

BLOCKING_COPY = "Device -> Pageable"
"""A copy to memory that is not pinned is over when the function that asks for it returns."""


class ExactLimits(Protocol):
    """The limits that are judged here; None stands for no demand."""

    @property
    def max_kernels(self) -> int | None:
        """The kernels that a call may launch; copies and memsets are none."""

    @property
    def forbid(self) -> str | Iterable[str] | None:
        """What a call must not do, of `limits.FORBIDDABLE`."""

    @property
    def max_memory(self) -> int | str | None:
        """The memory that a call may take at once above what is in use before it, outputs included."""

    @property
    def kernels(self) -> str | Iterable[str] | None:
        """Patterns, each of which the name of a kernel must match."""

    @property
    def deterministic(self) -> bool | None:
        """Whether outputs must be the same, bit by bit, in every call."""


# the judgement


def needs_observation(limits: ExactLimits) -> bool:
    """Tell whether judging takes what `structure.observe` finds: the kernels of a timing do not tell."""
    forbidden = () if limits.forbid is None else forbidden_things(limits.forbid)
    return limits.max_memory is not None or bool({"sync", "alloc"} & set(forbidden))


def judge_exact(
    timing: Timing,
    limits: ExactLimits,
    observed: Observed | None = None,
    differing: Sequence[str] | None = None,
    enforced: bool = True,
) -> tuple[Verdict, ...]:
    """Judge a call by every exact limit.

    observed: what `structure.observe` found; None where it was not asked or, as on a CPU, cannot say.
    differing: what `structure.is_deterministic` returned; None where it was not asked.
    """
    judged: list[tuple[str, object, Judged]] = []
    if limits.max_kernels is not None:
        judged.append(("max_kernels", limits.max_kernels, judge_count(timing, limits.max_kernels)))
    if limits.forbid is not None:
        for thing in forbidden_things(limits.forbid):
            judged.append(("forbid", thing, FORBIDS[thing](timing, observed)))
    if limits.max_memory is not None:
        judged.append(("max_memory", limits.max_memory, judge_memory(timing, observed, limits.max_memory)))
    if limits.kernels is not None:
        judged.append(("kernels", limits.kernels, judge_names(timing, name_patterns(limits.kernels))))
    if limits.deterministic:
        judged.append(("deterministic", True, judge_repetition(timing, differing)))
    return tuple(
        Verdict(
            kind=kind,
            asked=as_written(asked),
            outcome=outcome,
            sentence=f"{timing.label} {words}",
            enforced=enforced,
        )
        for kind, asked, (outcome, words) in judged
    )


def judge_count(timing: Timing, most: int) -> Judged:
    """Judge how many kernels a call launches."""
    unknown = kernels_unknown(timing)
    if unknown:
        return unknown
    kernels = [kernel for kernel in timing.kernels if kernel.kind == "kernel"]
    launched = sum(kernel.launches for kernel in kernels)
    words = f"launches {count(launched, 'kernel')}, wanted at most {most}"
    return (Outcome.PASS, words) if launched <= most else (Outcome.FAIL, f"{words}: {listed(kernels)}")


def judge_names(timing: Timing, patterns: Sequence[str]) -> Judged:
    """Judge whether every pattern is matched by the name of a kernel: in full or short, upper or lower case."""
    unknown = kernels_unknown(timing)
    if unknown:
        return unknown
    names = [name.lower() for kernel in timing.kernels for name in (kernel.name, short_name(kernel.name))]
    missing = [each for each in patterns if not any(fnmatchcase(name, each.lower()) for name in names)]
    if missing:
        return Outcome.FAIL, f"launches no kernel named {' or '.join(missing)}, only {listed(timing.kernels)}"
    return Outcome.PASS, f"launches kernels named {', '.join(patterns)}"


def judge_copies(timing: Timing, observed: Observed | None) -> Judged:
    """Judge that a call copies nothing: by the copy engine, or by torch's kernel for copies."""
    return judge_absence(timing, is_copy, "copies")


def judge_fills(timing: Timing, observed: Observed | None) -> Judged:
    """Judge that a call fills no memory: by a memset, or by torch's kernel for it."""
    return judge_absence(timing, is_fill, "fills")


def judge_absence(timing: Timing, is_one: Callable[[str, str], bool], verb: str) -> Judged:
    """Judge that a call launches nothing of a sort."""
    unknown = kernels_unknown(timing)
    if unknown:
        return unknown
    found = [kernel for kernel in timing.kernels if is_one(kernel.name, kernel.kind)]
    if not found:
        return Outcome.PASS, f"{verb} no memory, as wanted"
    launched = sum(kernel.launches for kernel in found)
    return Outcome.FAIL, f"{verb} memory {count(launched, 'time')}, wanted none: {listed(found)}"


def judge_waits(timing: Timing, observed: Observed | None) -> Judged:
    """Judge that the host does not wait for the GPU during a call."""
    if observed is None:
        return not_observed(timing, "forbid='sync'")
    unseen = sum(observed.runtime_waits.values()) - len(observed.waits)
    places = [str(wait) for wait in observed.waits]
    if unseen > 0:
        where = "from code that cannot be told" if places else "from code outside of torch and Python"
        places.append(f"{counted(observed.runtime_waits)} of the CUDA runtime, {unseen} {where}")
    if not places:
        return judge_blocking_copies(timing.kernels)
    number = max(len(observed.waits), sum(observed.runtime_waits.values()))
    return Outcome.FAIL, f"waits for the GPU {count(number, 'time')}, wanted never: {'; '.join(unique(places))}"


def judge_blocking_copies(kernels: Iterable[Kernel]) -> Judged:
    """Judge that no copy goes to host memory that is not pinned: the host waits for it without being told to."""
    found = [kernel for kernel in kernels if BLOCKING_COPY in kernel.name]
    if not found:
        return Outcome.PASS, "never waits for the GPU, as wanted"
    return Outcome.FAIL, f"waits for copies to memory that is not pinned, wanted never: {listed(found)}"


def judge_allocations(timing: Timing, observed: Observed | None) -> Judged:
    """Judge that a call takes no GPU memory, not even for what it returns."""
    if observed is None:
        return not_observed(timing, "forbid='alloc'")
    driver = sum(observed.driver_allocations.values())
    if observed.memory is None and not driver:
        return NOT_COUNTED
    found = []
    if observed.memory is not None and observed.memory.allocations:
        memory = observed.memory
        size = format_bytes(memory.allocated_bytes)
        found.append(f"{count(memory.allocations, 'allocation')} of torch's, {size} together, outputs included")
    if driver:
        found.append(f"{counted(observed.driver_allocations)} of the CUDA runtime")
    if not found:
        return Outcome.PASS, "allocates no GPU memory, as wanted"
    return Outcome.FAIL, f"allocates GPU memory, wanted none: {'; '.join(found)}"


def judge_memory(timing: Timing, observed: Observed | None, most: object) -> Judged:
    """Judge the most memory that a call takes at once, and that it gives all of it back: what leaks has no limit."""
    if observed is None:
        return not_observed(timing, f"max_memory={most!r}")
    if observed.memory is None:
        return NOT_COUNTED
    limit, memory = memory_size(most), observed.memory
    words = f"takes {format_bytes(memory.peak_bytes)} of GPU memory above what was in use, outputs included"
    if memory.peak_bytes > limit:
        return Outcome.FAIL, f"{words}, wanted at most {format_bytes(limit)}"
    if memory.kept_bytes:
        return Outcome.FAIL, (
            f"keeps {format_bytes(memory.kept_bytes)} of GPU memory after each call, though its outputs are dropped: "
            f"whatever it takes in one, wanted at most {format_bytes(limit)}, in the end it takes more"
        )
    return Outcome.PASS, f"{words}, wanted at most {format_bytes(limit)}"


def judge_repetition(timing: Timing, differing: Sequence[str] | None) -> Judged:
    """Judge whether outputs were the same, bit by bit, in every call."""
    if differing is None:
        return Outcome.NOT_JUDGED, f"was not called again to compare its outputs{because(timing)}"
    if differing:
        return Outcome.FAIL, f"does not repeat itself bit by bit: {', '.join(differing)} differs from call to call"
    return Outcome.PASS, "returns the same bits in every call"


FORBIDS: Mapping[str, Callable[[Timing, Observed | None], Judged]] = {
    "memcpy": judge_copies,
    "memset": judge_fills,
    "sync": judge_waits,
    "alloc": judge_allocations,
}
NOT_COUNTED: Judged = (
    Outcome.INVALID,
    "takes its GPU memory from an allocator that does not count: use torch's own, or leave this limit out",
)


def kernels_unknown(timing: Timing) -> Judged | None:
    """Return why nothing can be said about a call's kernels; None where they were seen."""
    if timing.kernels:
        return None
    if timing.measured and timing.timer in ("events", "graph"):
        return Outcome.INVALID, f"cannot be judged: the timer {timing.timer!r} sees no kernels, use timer='profiler'"
    reason = because(timing) or f": the timer {timing.timer!r} sees none"
    return Outcome.NOT_JUDGED, f"has no kernels to judge{reason}"


def not_observed(timing: Timing, limit: str) -> Judged:
    """Return that a call was not watched for a limit, as where it did not run on a GPU."""
    need = ", which needs a GPU" if timing.measured or timing.timer == "wall" else ""
    return Outcome.NOT_JUDGED, f"was not held against {limit}{need}{because(timing)}"


def because(timing: Timing) -> str:
    """Return why a call was not measured, after a colon; empty where it was."""
    return "" if timing.measured else f": {timing.unmeasured}"


def counted(calls: Mapping[str, int]) -> str:
    """Return functions with how often they were called."""
    return ", ".join(f"{number} x {name}" for name, number in calls.items())


def unique(texts: Sequence[str]) -> list[str]:
    """Return texts with how often each is there, where that is more than once."""
    return [f"{texts.count(each)} x {each}" if texts.count(each) > 1 else each for each in dict.fromkeys(texts)]
