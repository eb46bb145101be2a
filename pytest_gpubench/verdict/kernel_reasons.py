"""Reasons in the kernels of a call: which are new, and what of the others changed since they took less time."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from pytest_gpubench.results.kernels import distinct_names, is_copy, is_fill, is_spelt_out, short_name
from pytest_gpubench.results.model import Code, Kernel, Measurement, Resources
from pytest_gpubench.units import choose_time_unit, first_few, format_bytes, format_share, format_time
from pytest_gpubench.verdict.limits.multiprocessor import MaxTail

MOST_KERNELS = 3
"""Added kernels that are named."""
MORE_IDLE = 0.05
"""The least share of a kernel's time that its last wave leaves more of the GPU idle."""
MORE_RESIDENT = 1.5
"""The least factor between the threads that a multiprocessor holds at once, of two different kernels."""
MOST_WORDS = 5
"""Changes of a kernel that are named."""
MOST_CONSTANTS = 4
"""Changed constants among them."""
NO_CONSTANT = "variable"


@dataclass(frozen=True)
class Cause:
    """The difference, and the share of the time that grew along with it."""

    share: float
    sentence: str


def is_against_reference(old: Measurement, new: Measurement) -> bool:
    """Tell whether two measurements are those of two functions."""
    return (old.role, new.role) == ("reference", "candidate")


def kernel_causes(old: Measurement, new: Measurement, least: float) -> Iterator[Cause]:
    """Yield a cause for each kernel that changed, and one for all that were added; least: the share of the time."""
    before, after = old.timing.kernels, new.timing.kernels
    if not before or not after:
        return
    names = distinct_names(each.name for each in (*after, *before))
    total_us = sum(each.median_us for each in after) or 1.0
    pairs, added = _paired(before, after)
    for was, now in pairs:
        share = (now.median_us - was.median_us) / total_us
        words = _kernel_words(was, now, names, is_against_reference(old, new)) if share >= least else ""
        if words:
            yield Cause(share, words if len(after) == 1 else f"{words} ({times(was.median_us, now.median_us)})")
    share, launches = sum(each.median_us for each in added) / total_us, sum(each.launches for each in added)
    if added and share >= least:  # `one more kernel: copy_ (38 % of the time)`
        told = [
            (f"{each.launches} x " if each.launches > 1 else "")
            + f"{names[each.name]} ({format_share(each.median_us / total_us)} of the time)"
            for each in _longest_first(added)
        ]
        noun = "one more kernel" if launches == 1 else f"{launches} more kernels"
        yield Cause(share, f"{noun}: {first_few(told, MOST_KERNELS)}")


def _paired(old: Sequence[Kernel], new: Sequence[Kernel]) -> tuple[list[tuple[Kernel, Kernel]], list[Kernel]]:
    """Return which kernel stands for which, and those that were added.

    By their names, then by their short names, then by their times, copies and fills apart from the others.
    """
    before, after, pairs = _longest_first(old), _longest_first(new), list[tuple[Kernel, Kernel]]()
    ways: tuple[Callable[[Kernel], object], ...] = (
        lambda one: one.name,
        lambda one: short_name(one.name),
        lambda one: (is_copy(one.name, one.kind), is_fill(one.name, one.kind)),
    )
    for same in ways:
        for now in tuple(after):
            was = next((each for each in before if same(each) == same(now)), None)
            if was is not None:
                pairs.append((was, now))
                before.remove(was)
                after.remove(now)
    return pairs, after


def _longest_first(kernels: Sequence[Kernel]) -> list[Kernel]:
    return sorted(kernels, key=lambda kernel: -kernel.median_us)


def _kernel_words(old: Kernel, new: Kernel, names: dict[str, str], against_reference: bool) -> str:
    """Return what changed of a kernel; empty where nothing did."""
    name, is_same = names[new.name], old.name == new.name
    changed = [f"launches {old.launches} -> {new.launches}"] if new.launches != old.launches else []
    kinds = zip(_launches_without(old, new), _launches_without(new, old), strict=False)
    words = dict.fromkeys(word for was, now in kinds for word in _resource_words(was, now, is_same))
    changed += list(words)[:MOST_WORDS]
    if is_same:
        return f"{name}: {', '.join(changed)}" if changed else ""
    swapped = f"{name} in place of {names[old.name]}"
    if changed:
        return f"{swapped}: {', '.join(changed)}"
    is_variant = short_name(old.name) == short_name(new.name)  # or both names say how a library is configured
    is_telling = is_variant or (is_spelt_out(old.name) and is_spelt_out(new.name))
    return swapped if is_telling or not against_reference else ""


def _launches_without(kernel: Kernel, other: Kernel) -> list[Resources]:
    """Return the kinds of launches of a kernel that another has not, whatever their number, the largest grid first."""
    has_lengths = all(kind.code.instructions for each in (kernel, other) for kind in each.resources if kind.code)
    own, others = list[Resources](), list[Resources]()
    for comparable, each in ((own, kernel), (others, other)):
        for kind in each.resources:
            code = kind.code if has_lengths or kind.code is None else replace(kind.code, instructions=0)
            comparable.append(replace(kind, launches=1, code=code))
    return sorted((kind for kind in own if kind not in others), key=lambda kind: -math.prod(kind.grid))


def _resource_words(old: Resources, new: Resources, is_same: bool) -> list[str]:
    """Return what changed of a kernel's launches; of two different kernels only what makes the new one slower.

    What it was compiled for comes first, then what it does, then what it takes, then how it is launched.
    """
    was, now = (old.code, new.code) if old.code and new.code else (Code(), Code())
    names = dict.fromkeys([*was.constants, *now.constants]) if is_same else {}
    constants = [(name, *(each.constants.get(name, NO_CONSTANT) for each in (was, now))) for name in names]
    changed = [f"{name} {one} -> {other}" for name, one, other in constants if one != other][:MOST_CONSTANTS]
    same_tile = is_same and not changed
    if new.local_bytes > old.local_bytes or (is_same and new.local_bytes != old.local_bytes):
        changed.append(f"local memory of a thread {step(old.local_bytes, new.local_bytes, format_bytes)}")
    changed += _of_code(was, now, same_tile)
    held, holds = (each.blocks_per_sm * math.prod(each.block) for each in (old, new))
    if is_same:
        changed += _of_threads(old, new)
    elif held >= MORE_RESIDENT * holds:
        changed.append(f"threads per SM {step(held, holds)}")
    return [*changed, *_of_grids(old, new, is_same)]


def _of_code(old: Code, new: Code, same_tile: bool) -> list[str]:
    """Return what the code of a kernel does more, or in smaller parts; else the length of code that differs.

    same_tile: False where another tile changes the numbers of its instructions.
    """
    words = []
    if 0 < new.load_bytes < old.load_bytes or (same_tile and new.loads > old.loads):
        was, now = (f"{each.loads} of {format_bytes(each.load_bytes)}" for each in (old, new))
        words.append(f"loads in its code {was} -> {now}")
    if 0 < new.store_bytes < old.store_bytes or (same_tile and new.stores > old.stores):
        was, now = (f"{each.stores} of {format_bytes(each.store_bytes)}" for each in (old, new))
        words.append(f"stores {was} -> {now}")
    if new.atomics > old.atomics:
        words.append(f"atomics in its code {step(old.atomics, new.atomics)}")
    if same_tile and not words and old.instructions and new.instructions not in (0, old.instructions):
        words.append(f"instructions in its code {step(old.instructions, new.instructions)}")
    return words


def _of_threads(old: Resources, new: Resources) -> Iterator[str]:
    if new.registers != old.registers:
        yield f"registers {step(old.registers, new.registers)}"
    if new.shared_bytes != old.shared_bytes:
        yield f"shared memory {step(old.shared_bytes, new.shared_bytes, format_bytes)}"
    if new.blocks_per_sm != old.blocks_per_sm:
        takes_more = new.registers > old.registers or new.shared_bytes > old.shared_bytes
        so = "so " if takes_more and new.blocks_per_sm < old.blocks_per_sm and new.block == old.block else ""
        yield f"{so}blocks per SM {step(old.blocks_per_sm, new.blocks_per_sm)}"
    yield from _of_shape(old.block, new.block, "threads per block", "block")
    yield from _of_shape(old.cluster, new.cluster, "blocks per cluster", "cluster")


def _of_grids(old: Resources, new: Resources, is_same: bool) -> Iterator[str]:
    before, blocks = math.prod(old.grid), math.prod(new.grid)
    multiprocessors = new.resident_blocks // max(1, new.blocks_per_sm)
    if blocks < min(multiprocessors, before) and math.prod(new.cluster) == 1:
        yield f"blocks {step(before, blocks)}, on {multiprocessors} multiprocessors"
        return
    if is_same:
        yield from _of_shape(old.grid, new.grid, "blocks", "grid")
    was, now = (each.tail / math.ceil(each.waves) if each.tail else 0.0 for each in (old, new))
    if now >= was + MORE_IDLE:  # of its time, of all blocks as long
        yield f"{MaxTail.words(new)}, was {format_share(old.tail)}"


def _of_shape(old: tuple[int, ...], new: tuple[int, ...], number: str, shape: str) -> Iterator[str]:
    """Yield how many there are where that changed, else how they are laid out."""
    if math.prod(old) != math.prod(new):
        yield f"{number} {step(math.prod(old), math.prod(new))}"
    elif old != new:
        yield f"{shape} {'x'.join(map(str, old))} -> {'x'.join(map(str, new))}"


def step(old: int, new: int, text: Callable[[int], str] = str) -> str:
    """Return `old -> new`."""
    return f"{text(old)} -> {text(new)}"


def times(old_us: float, new_us: float) -> str:
    """Return two times in one unit."""
    unit = choose_time_unit([new_us])
    return f"{format_time(old_us, unit)} -> {format_time(new_us, unit)}"
