"""Limits on what a call does: its kernels, copies, waits and memory, and whether it repeats itself.

These are counted, not sampled: a limit is kept or broken for certain.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from pytest_gpubench.limits import Limits, forbidden_things, memory_size, name_patterns
from pytest_gpubench.results.kernels import is_copy, is_fill, listed, short_name
from pytest_gpubench.results.model import Kernel, Outcome, Timing, Verdict
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.units import count, format_bytes
from pytest_gpubench.verdict.decision import Judged, verdicts_of

__tracebackhide__ = True

BLOCKING_COPY = "Device -> Pageable"
"""A copy to memory that is not pinned: the function that asks for it returns when it is over."""
NOT_COUNTED: Judged = (
    Outcome.INVALID,
    "takes its GPU memory from an allocator that does not count: use torch's own, or leave this limit out",
)


def needs_observation(limits: Limits) -> bool:
    """Tell whether a limit asks for what `structure.observe` finds, and not only for the kernels of a timing."""
    forbidden = () if limits.forbid is None else forbidden_things(limits.forbid)
    return limits.max_memory is not None or bool({"sync", "alloc"} & set(forbidden))


def judge_exact(
    timing: Timing,
    limits: Limits,
    observed: Observed | None = None,
    differing: Sequence[str] | None = None,
    enforced: bool = True,
) -> tuple[Verdict, ...]:
    """Judge a call by every exact limit.

    observed: what `structure.observe` found; None where nobody looked, or on a CPU. differing: what
    `structure.is_deterministic` returned; None where nobody looked.
    """
    judged: list[tuple[str, object, Judged]] = []
    if limits.max_kernels is not None:
        judged.append(("max_kernels", limits.max_kernels, _judge_count(timing, limits.max_kernels)))
    if limits.forbid is not None:
        judged += [("forbid", thing, FORBIDS[thing](timing, observed)) for thing in forbidden_things(limits.forbid)]
    if limits.max_memory is not None:
        judged.append(("max_memory", limits.max_memory, _judge_memory(timing, observed, limits.max_memory)))
    if limits.kernels is not None:
        judged.append(("kernels", limits.kernels, _judge_names(timing, name_patterns(limits.kernels))))
    if limits.deterministic:
        judged.append(("deterministic", True, _judge_repetition(timing, differing)))
    said = [(kind, asked, (outcome, f"{timing.label} {words}")) for kind, asked, (outcome, words) in judged]
    memory = None if observed is None else observed.memory
    return verdicts_of(said, enforced, {} if memory is None else {"max_memory": format_bytes(memory.peak_bytes)})


# kernels


def _judge_count(timing: Timing, most: int) -> Judged:
    if unknown := _kernels_unknown(timing):
        return unknown
    kernels = [kernel for kernel in timing.kernels if kernel.kind == "kernel"]
    launched = sum(kernel.launches for kernel in kernels)
    words = f"launches {count(launched, 'kernel')}, wanted at most {most}"
    return (Outcome.PASS, words) if launched <= most else (Outcome.FAIL, f"{words}: {listed(kernels)}")


def _judge_names(timing: Timing, patterns: Sequence[str]) -> Judged:
    """Judge whether every pattern is matched by the name of a kernel: in full or short, upper or lower case."""
    if unknown := _kernels_unknown(timing):
        return unknown
    names = [name.lower() for kernel in timing.kernels for name in (kernel.name, short_name(kernel.name))]
    missing = [each for each in patterns if not any(fnmatchcase(name, each.lower()) for name in names)]
    if missing:
        return Outcome.FAIL, f"launches no kernel named {' or '.join(missing)}, only {listed(timing.kernels)}"
    return Outcome.PASS, f"launches kernels named {', '.join(patterns)}"


def _judge_absence(timing: Timing, is_one: Callable[[str, str], bool], verb: str) -> Judged:
    if unknown := _kernels_unknown(timing):
        return unknown
    found = [kernel for kernel in timing.kernels if is_one(kernel.name, kernel.kind)]
    if not found:
        return Outcome.PASS, f"{verb} no memory, as wanted"
    launched = sum(kernel.launches for kernel in found)
    return Outcome.FAIL, f"{verb} memory {count(launched, 'time')}, wanted none: {listed(found)}"


def _kernels_unknown(timing: Timing) -> Judged | None:
    """Return the reason why a call's kernels are not known; None if they are."""
    if timing.kernels:
        return None
    if timing.measured and timing.timer in ("events", "graph"):
        return Outcome.INVALID, f"cannot be judged: the timer {timing.timer!r} sees no kernels, use timer='profiler'"
    reason = _why_unmeasured(timing) or f": the timer {timing.timer!r} sees none"
    return Outcome.NOT_JUDGED, f"has no kernels to judge{reason}"


# waits


def _judge_waits(timing: Timing, observed: Observed | None) -> Judged:
    if observed is None:
        return _not_observed(timing, "forbid='sync'")
    in_runtime = sum(observed.runtime_waits.values())
    unseen = in_runtime - len(observed.waits)
    places = [str(wait) for wait in observed.waits]
    if unseen > 0:
        where = "from code that cannot be told" if places else "from code outside of torch and Python"
        places.append(f"{_calls(observed.runtime_waits)} of the CUDA runtime, {unseen} {where}")
    if not places:
        return _judge_blocking_copies(timing.kernels)
    number = max(len(observed.waits), in_runtime)
    return Outcome.FAIL, f"waits for the GPU {count(number, 'time')}, wanted never: {'; '.join(_unique(places))}"


def _judge_blocking_copies(kernels: Iterable[Kernel]) -> Judged:
    found = [kernel for kernel in kernels if BLOCKING_COPY in kernel.name]
    if not found:
        return Outcome.PASS, "never waits for the GPU, as wanted"
    return Outcome.FAIL, f"waits for copies to memory that is not pinned, wanted never: {listed(found)}"


def _unique(texts: Sequence[str]) -> list[str]:
    """Return each text once, with how often it is there where that is more than once."""
    return [f"{texts.count(each)} x {each}" if texts.count(each) > 1 else each for each in dict.fromkeys(texts)]


def _calls(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{number} x {name}" for name, number in calls.items())


# memory


def _judge_allocations(timing: Timing, observed: Observed | None) -> Judged:
    """Judge that a call takes no GPU memory, not even for what it returns."""
    if observed is None:
        return _not_observed(timing, "forbid='alloc'")
    memory, found = observed.memory, []
    if memory is None and not any(observed.driver_allocations.values()):
        return NOT_COUNTED
    if memory is not None and memory.allocations:
        size = format_bytes(memory.allocated_bytes)
        found.append(f"{count(memory.allocations, 'allocation')} of torch's, {size} together, outputs included")
    if any(observed.driver_allocations.values()):
        found.append(f"{_calls(observed.driver_allocations)} of the CUDA runtime")
    if not found:
        return Outcome.PASS, "allocates no GPU memory, as wanted"
    return Outcome.FAIL, f"allocates GPU memory, wanted none: {'; '.join(found)}"


def _judge_memory(timing: Timing, observed: Observed | None, most: object) -> Judged:
    """Judge the most memory that a call takes at once, and that it gives all of it back: a leak has no limit."""
    if observed is None:
        return _not_observed(timing, f"max_memory={most!r}")
    if observed.memory is None:
        return NOT_COUNTED
    limit, memory = memory_size(most), observed.memory
    wanted = f"wanted at most {format_bytes(limit)}"
    words = f"takes {format_bytes(memory.peak_bytes)} of GPU memory above what was in use, outputs included, {wanted}"
    if memory.peak_bytes > limit:
        return Outcome.FAIL, words
    if memory.kept_bytes:
        return Outcome.FAIL, (
            f"keeps {format_bytes(memory.kept_bytes)} of GPU memory after each call, though its outputs are dropped: "
            f"whatever it takes in one, {wanted}, in the end it takes more"
        )
    return Outcome.PASS, words


# repetition


def _judge_repetition(timing: Timing, differing: Sequence[str] | None) -> Judged:
    if differing is None:
        return Outcome.NOT_JUDGED, f"was not called again to compare its outputs{_why_unmeasured(timing)}"
    if differing:
        return Outcome.FAIL, f"does not repeat itself bit by bit: {', '.join(differing)} differs from call to call"
    return Outcome.PASS, "returns the same bits in every call"


def _not_observed(timing: Timing, limit: str) -> Judged:
    need = ", which needs a GPU" if timing.measured or timing.timer == "wall" else ""
    return Outcome.NOT_JUDGED, f"was not judged by {limit}{need}{_why_unmeasured(timing)}"


def _why_unmeasured(timing: Timing) -> str:
    """Return the reason why a call was not measured, after a colon; empty if it was."""
    return "" if timing.measured else f": {timing.unmeasured}"


FORBIDS: Mapping[str, Callable[[Timing, Observed | None], Judged]] = {
    "memcpy": lambda timing, _: _judge_absence(timing, is_copy, "copies"),
    "memset": lambda timing, _: _judge_absence(timing, is_fill, "fills"),
    "sync": _judge_waits,
    "alloc": _judge_allocations,
}
