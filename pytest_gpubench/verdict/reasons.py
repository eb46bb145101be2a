"""Reasons: what differs between a measurement and the one that it is compared with; evidence, and no verdict.

A cause has the share of the time that grew along with it, and the largest share is told first: of a kernel that changed
or was added by how much longer it takes, of a lower clock the cycles that are missing, of more bytes those. What is no
part of a time has none. Where versions changed, that is told last. A kernel whose share is below WORTH_TELLING is no
cause, and neither is a time that grew while nothing else changed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from pytest_gpubench.results.counterpart import FactChange
from pytest_gpubench.results.kernels import distinct_names, is_copy, is_fill, is_spelt_out, short_name
from pytest_gpubench.results.model import Kernel, Measurement, Outcome, Resources, Timing, Verdict
from pytest_gpubench.units import choose_time_unit, first_few, format_bytes, format_share, format_time
from pytest_gpubench.verdict.limits import BY_NAME
from pytest_gpubench.verdict.limits.multiprocessor import MaxTail
from pytest_gpubench.verdict.regression import Change

__tracebackhide__ = True

WITH_REASONS = (Outcome.FAIL, Outcome.INVALID)
MOST_REASONS = 3
MOST_KERNELS = 3
"""Added kernels that are named."""
WORTH_TELLING = 0.01
"""The least share of the time."""
LOWER_CLOCK = 0.03
"""The least part by which a clock is lower: the same call varies by less from run to run."""
FASTER_REFERENCE = 0.05
"""The least part by which a reference is faster than in an older run."""
MORE_HOST_TIME = 1.5
"""The least factor between the host's times for launching a call."""
MORE_IDLE = 0.05
"""The least share of a kernel's time that its last wave leaves more of the GPU idle."""
MORE_RESIDENT = 1.5
"""The least factor between the threads that a multiprocessor holds at once, of two different kernels."""


@dataclass(frozen=True)
class Cause:
    """What differs, and the share of the time that grew along with it."""

    share: float
    sentence: str


def explained(
    item: Measurement,
    old: Measurement | None = None,
    reference: Measurement | None = None,
    versions: Sequence[FactChange] = (),
) -> Measurement:
    """Return a measurement whose FAIL and INVALID verdicts on its speed have their reasons.

    old: the same in a saved run. reference: what it is a candidate against. None where there is none.
    """
    verdicts = tuple(
        msgspec.structs.replace(each, reasons=_reasons_for(each, item, old, reference, versions))
        if each.outcome in WITH_REASONS and not each.reasons
        else each
        for each in item.verdicts
    )
    return msgspec.structs.replace(item, verdicts=verdicts) if verdicts != item.verdicts else item


def explained_by_references(measured: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements; candidates, which follow their reference, have the reasons why they are slower than it."""
    reference, found = None, []
    for item in measured:
        reference = item if item.role == "reference" else reference
        found.append(explained(item, reference=reference))
    return found


def explained_change(change: Change, versions: Sequence[FactChange]) -> Change:
    """Return a change; a FAIL and an INVALID one have their reasons."""
    if change.outcome not in WITH_REASONS or change.old is None or change.new is None:
        return change
    metric = "median" if change.estimate is None else change.estimate.metric
    return replace(change, reasons=reasons(change.old, change.new, versions, metric))


def _reasons_for(
    verdict: Verdict,
    item: Measurement,
    old: Measurement | None,
    reference: Measurement | None,
    versions: Sequence[FactChange],
) -> tuple[str, ...]:
    if verdict.kind == "min_speedup":
        return () if reference is None else reasons(reference, item)
    limit = BY_NAME.get(verdict.kind)
    if old is None or limit is None or not (verdict.is_of_past or limit.is_on_speed):
        return ()
    metric = item.change.metric if verdict.is_of_past and item.change is not None else "median"
    return reasons(old, item, versions, metric)


def reasons(
    old: Measurement, new: Measurement, versions: Sequence[FactChange] = (), metric: str = "median"
) -> tuple[str, ...]:
    """Return at most three sentences on what differs, `old -> new`, the most telling first; empty where nothing does.

    old: the reference of a candidate, or the same measurement in an older run. metric: the statistic that is worse.
    """
    if not old.timing.measured or not new.timing.measured:
        return ()
    found = [*_kernel_causes(old, new), *_work_causes(old.timing, new.timing), *_memory_causes(old, new)]
    found += [*_host_causes(old, new)]
    found += [*_faster_reference(old, new)] if metric == "speedup" else []
    found += [*_clock_causes(old, new, explains=metric != "speedup", alone=not found and not versions)]
    told = [each.sentence for each in sorted(found, key=lambda each: -each.share)]
    changed = ", ".join(f"{what} {was} -> {now}" for what, was, now in versions)
    return (*told[: MOST_REASONS - bool(changed)], *([changed] if changed else []))


def is_against_reference(old: Measurement, new: Measurement) -> bool:
    """Tell whether two measurements are those of two functions."""
    return (old.role, new.role) == ("reference", "candidate")


# kernels


def _kernel_causes(old: Measurement, new: Measurement) -> Iterator[Cause]:
    """Yield a cause for each kernel that changed, and one for all that were added."""
    before, after = old.timing.kernels, new.timing.kernels
    if not before or not after:
        return
    names = distinct_names(kernel.name for kernel in (*after, *before))
    total_us = sum(kernel.median_us for kernel in after) or 1.0
    pairs, added = _paired(before, after)
    for was, now in pairs:
        share = (now.median_us - was.median_us) / total_us
        words = _kernel_words(was, now, names, is_against_reference(old, new)) if share >= WORTH_TELLING else ""
        if words:
            yield Cause(share, words if len(after) == 1 else f"{words} ({_times(was.median_us, now.median_us)})")
    share = sum(kernel.median_us for kernel in added) / total_us
    if share >= WORTH_TELLING:
        yield Cause(share, _added_words(added, names, total_us))


def _paired(old: Sequence[Kernel], new: Sequence[Kernel]) -> tuple[list[tuple[Kernel, Kernel]], list[Kernel]]:
    """Return which kernel stands for which, and those that were added.

    By their names, then by their short names, then by their times, copies and fills apart from the others.
    """
    before, after, pairs = _longest_first(old), _longest_first(new), []
    for same in (lambda one: one.name, lambda one: short_name(one.name), _purpose):
        for now in tuple(after):
            was = next((each for each in before if same(each) == same(now)), None)
            if was is not None:
                pairs.append((was, now))
                before.remove(was)
                after.remove(now)
    return pairs, after


def _longest_first(kernels: Sequence[Kernel]) -> list[Kernel]:
    return sorted(kernels, key=lambda kernel: -kernel.median_us)


def _purpose(kernel: Kernel) -> str:
    if is_copy(kernel.name, kernel.kind):
        return "copy"
    return "fill" if is_fill(kernel.name, kernel.kind) else kernel.kind


def _added_words(added: Sequence[Kernel], names: dict[str, str], total_us: float) -> str:
    """Return `one more kernel: copy_ (38 % of the time)`."""
    launches = sum(kernel.launches for kernel in added)
    each = [
        (f"{kernel.launches} x " if kernel.launches > 1 else "")
        + f"{names[kernel.name]} ({format_share(kernel.median_us / total_us)} of the time)"
        for kernel in _longest_first(added)
    ]
    noun = "one more kernel" if launches == 1 else f"{launches} more kernels"
    return f"{noun}: {first_few(each, MOST_KERNELS)}"


def _kernel_words(old: Kernel, new: Kernel, names: dict[str, str], against_reference: bool) -> str:
    """Return what changed of a kernel; empty where nothing did."""
    name, is_same = names[new.name], old.name == new.name
    changed = [f"launches {old.launches} -> {new.launches}"] if new.launches != old.launches else []
    before, after = _launches_without(old, new), _launches_without(new, old)
    if len(before) == len(after) == 1:
        changed += _resource_words(before[0], after[0], is_same)
    if is_same:
        return f"{name}: {', '.join(changed)}" if changed else ""
    swapped = f"{name} in place of {names[old.name]}"
    if changed:
        return f"{swapped}: {', '.join(changed)}"
    return "" if against_reference and not _is_telling(old.name, new.name) else swapped


def _is_telling(old: str, new: str) -> bool:
    """Tell whether the name of another kernel says something: a variant, or how a library is configured."""
    return short_name(old) == short_name(new) or (is_spelt_out(old) and is_spelt_out(new))


def _launches_without(kernel: Kernel, other: Kernel) -> list[Resources]:
    """Return the kinds of launches of a kernel that another has not, whatever their number."""
    own, others = ([msgspec.structs.replace(kind, launches=1) for kind in each.resources] for each in (kernel, other))
    return [kind for kind in own if kind not in others]


def _resource_words(old: Resources, new: Resources, is_same: bool) -> list[str]:
    """Return what changed of a kernel's launches; of two different kernels only what makes the new one slower."""
    return [*_of_threads(old, new, is_same), *_of_grids(old, new, is_same)]


def _of_threads(old: Resources, new: Resources, is_same: bool) -> Iterator[str]:
    if new.local_bytes > old.local_bytes or (is_same and new.local_bytes != old.local_bytes):
        yield f"local memory of a thread {_step(old.local_bytes, new.local_bytes, format_bytes)}"
    if not is_same:
        held, holds = (each.blocks_per_sm * math.prod(each.block) for each in (old, new))
        if held >= MORE_RESIDENT * holds:
            yield f"threads per SM {_step(held, holds)}"
        return
    if new.registers != old.registers:
        yield f"registers {_step(old.registers, new.registers)}"
    if new.shared_bytes != old.shared_bytes:
        yield f"shared memory {_step(old.shared_bytes, new.shared_bytes, format_bytes)}"
    if new.blocks_per_sm != old.blocks_per_sm:
        takes_more = new.registers > old.registers or new.shared_bytes > old.shared_bytes
        so = "so " if takes_more and new.blocks_per_sm < old.blocks_per_sm and new.block == old.block else ""
        yield f"{so}blocks per SM {_step(old.blocks_per_sm, new.blocks_per_sm)}"
    if math.prod(new.block) != math.prod(old.block):
        yield f"threads per block {_step(math.prod(old.block), math.prod(new.block))}"


def _of_grids(old: Resources, new: Resources, is_same: bool) -> Iterator[str]:
    blocks, multiprocessors = math.prod(new.grid), new.resident_blocks // max(1, new.blocks_per_sm)
    before = math.prod(old.grid)
    if blocks < multiprocessors and blocks < before and math.prod(new.cluster) == 1:
        yield f"blocks {_step(before, blocks)}, on {multiprocessors} multiprocessors"
        return
    if is_same and blocks != before:
        yield f"blocks {_step(before, blocks)}"
    if _idle(new) >= _idle(old) + MORE_IDLE:
        yield f"{MaxTail.words(new)}, was {format_share(old.tail)}"


def _idle(launch: Resources) -> float:
    """Return the share of a kernel's time that its last wave leaves idle, of all blocks as long."""
    return launch.tail / math.ceil(launch.waves) if launch.tail else 0.0


def _step(old: int, new: int, text: Callable[[int], str] = str) -> str:
    return f"{text(old)} -> {text(new)}"


def _times(old_us: float, new_us: float) -> str:
    unit = choose_time_unit([new_us])
    return f"{format_time(old_us, unit)} -> {format_time(new_us, unit)}"


# beside the kernels


def _work_causes(old: Timing, new: Timing) -> Iterator[Cause]:
    if old.moved_bytes and new.moved_bytes and (share := 1 - old.moved_bytes / new.moved_bytes) >= WORTH_TELLING:
        yield Cause(share, f"moves at least {_step(old.moved_bytes, new.moved_bytes, format_bytes)}")
    if old.flops and new.flops and (share := 1 - old.flops / new.flops) >= WORTH_TELLING:
        yield Cause(share, f"computes {old.flops:.4g} -> {new.flops:.4g} operations")


def _memory_causes(old: Measurement, new: Measurement) -> Iterator[Cause]:
    was, now = (next((v.found for v in each.verdicts if v.kind == "max_memory"), "") for each in (old, new))
    if was and now and was != now:
        yield Cause(0.0, f"allocates {was} -> {now} of GPU memory")


def _host_causes(old: Measurement, new: Measurement) -> Iterator[Cause]:
    """Yield what changed of launching a call: a share only of times that it is part of."""
    was, now = old.overhead, new.overhead
    if was is None or now is None or was.host_us is None:
        return
    if now.host_us is None:
        yield Cause(0.0, "the host waits for the GPU within the call: no -> yes")
    elif now.host_us >= MORE_HOST_TIME * was.host_us:
        share = (now.host_us - was.host_us) / new.timing.median_us if new.timing.timer in ("wall", "events") else 0.0
        yield Cause(min(share, 1.0), f"launching it takes the host {_times(was.host_us, now.host_us)}")


def has_resources(item: Measurement) -> bool:
    """Tell whether it is known what each kernel takes of the GPU."""
    kernels = [kernel for kernel in item.timing.kernels if kernel.kind == "kernel"]
    return bool(kernels) and all(kernel.resources for kernel in kernels)


def _faster_reference(old: Measurement, new: Measurement) -> Iterator[Cause]:
    if old.speedup is None or new.speedup is None:
        return
    was_us, now_us = old.speedup.reference_us, new.speedup.reference_us
    if (share := 1 - now_us / was_us) >= FASTER_REFERENCE:
        yield Cause(share, f"its reference {new.speedup.reference} is faster: {_times(was_us, now_us)}")


def _clock_causes(old: Measurement, new: Measurement, explains: bool, alone: bool) -> Iterator[Cause]:
    """Yield a lower clock and new throttling.

    explains: False where both arms had the clock. alone: True where nothing else is known to differ.
    """
    was, now = old.timing.median_sm_clock_mhz, new.timing.median_sm_clock_mhz
    throttled = sorted({*new.timing.throttle_reasons} - {*old.timing.throttle_reasons})
    words = [f"throttled ({', '.join(throttled)})"] if throttled else []
    share, not_code = 0.0, ""
    if was and now and now <= was * (1 - LOWER_CLOCK):
        words.insert(0, f"SM clock {was:.0f} -> {now:.0f} MHz")
        if explains:
            slower = new.timing.median_us / old.timing.median_us
            share = 1 - now / was if slower > 1 else 0.0
            is_all = abs(slower * now / was - 1) <= LOWER_CLOCK and has_resources(old) and has_resources(new)
            not_code = ": not the code" if is_all and alone and not is_against_reference(old, new) else ""
    if words:
        yield Cause(share, ", ".join(words) + not_code)
