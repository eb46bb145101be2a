"""The memory of a call's inputs: what was in it is put back before each call, so that no call can change the next."""

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import torch

from pytest_gpubench.correctness.checksum import checksum
from pytest_gpubench.correctness.contents import Contents
from pytest_gpubench.correctness.held import SIMPLE, held_by, reached_in, values_held_by
from pytest_gpubench.correctness.leaves import Leaves, tensors_of
from pytest_gpubench.correctness.memory import Place, copied, memory_of
from pytest_gpubench.correctness.one_pass import bytes_differ
from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.units import format_bytes

FIRST_CALLS = 2
"""The inputs are looked at after so many calls."""
ALWAYS_BYTES = 2**27
"""There is room for copies of so many bytes: to ask a GPU takes longer than to copy them."""
CALLS_PER_LOOK = 30
"""After that, they are looked at before one call in so many, drawn at random: no call can tell which."""


@dataclass(eq=False)
class Region:
    """Bytes of memory that one input lies in, or several that overlap."""

    names: list[str]
    bytes: torch.Tensor = field(repr=False)
    """The memory itself, as int8."""
    values: torch.Tensor | None = field(default=None, repr=False)
    """A copy of what it is to hold; None where there is no room for one."""
    checksum: int = 0
    """Of what it is to hold, where there is no copy."""

    def accept(self, has_room: bool = True) -> None:
        """Take what it holds now for what it is to hold."""
        try:
            self.values = self.bytes.clone() if has_room else None
        except RuntimeError:  # torch.OutOfMemoryError on a GPU, a plain RuntimeError on the CPU
            self.values = None
        self.checksum = checksum(self.bytes) if self.values is None else 0

    def put_back(self) -> None:
        """Write what it is to hold; raise MeasurementError where there is no copy of it."""
        if self.values is None:
            raise MeasurementError(
                f"a call overwrites {', '.join(self.names)} ({format_bytes(self.bytes.nbytes)}), and there is no room "
                "for a copy from which to put it back before the next call: give setup=, which makes new arguments"
            )
        self.bytes.copy_(self.values)


def changed_regions(regions: Sequence[Region]) -> list[Region]:
    """Return those that hold other bytes than they are to hold."""
    copied = [(region, region.values) for region in regions if region.values is not None]
    differ = iter(bytes_differ([(region.bytes, values) for region, values in copied]))
    return [
        region
        for region in regions
        if (checksum(region.bytes) != region.checksum if region.values is None else next(differ))
    ]


@dataclass
class InputMemory:
    """The memory that calls of the same arguments share, and what it is to hold before each of them.

    Which inputs a call changes is found out after the first calls, and at random later; those are put back before each
    call. Changes are of bits, whoever wrote them, and of what containers and objects among the arguments hold.
    Gradients of inputs are inputs too: one that a call leaves is dropped, and one that it drops, exchanges or adds to
    is put back. It begins with the first `restore`.
    """

    find: Callable[[], Leaves]
    """Returns the leaves of the arguments."""
    held: Callable[[], Leaves] = list
    """Returns other tensors that calls use; their places may change."""
    regions: list[Region] = field(default_factory=list)
    roots: Sequence[object] = ()
    """The arguments, with all their containers and objects."""
    changing: list[Region] = field(default_factory=list)
    """The regions that calls are known to change."""
    contained: list[Contents] = field(default_factory=list)
    """The contents that containers and objects are to have."""
    exchanged: list[str] = field(default_factory=list)
    """The names of what calls are known to put there, or to take out."""
    changing_contents: list[Contents] = field(default_factory=list)
    """Those that calls are known to change."""
    originals: Leaves = field(default_factory=list)
    """The arguments as they were given, by name."""
    values: dict[str, object] = field(default_factory=dict)
    """The values that objects and arguments are to hold, by name, as `values_of` returns them."""
    launched: bool = False
    """True if the last `restore` may have launched work on the device."""
    gradients: list[tuple[str, torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = field(default_factory=list)
    """Each tensor that calls may give a gradient, that gradient's name, the one that it has before them, and its parts.

    A call that adds to a sparse one exchanges its parts.
    """
    generators: list[tuple[torch.Generator, torch.Tensor]] = field(default_factory=list)
    """Each generator of random numbers among the arguments, and its state before each call."""
    changes_gradients: bool = False
    """True if calls are known to give or to drop gradients."""
    late: list[str] = field(default_factory=list)
    """The names of inputs that `restore` found to be changed for the first time."""
    looked: bool = False
    """True if the inputs were looked at after the last call."""
    calls: int = 0
    looks_at_random: bool = True
    """False while outputs are kept: one may lie in the memory of an input, and a look would write over it."""
    layouts: dict[str, object] | None = None
    """The place, shape and strides of each argument, by name."""
    differentiable: set[str] = field(default_factory=set)
    """The names of the arguments that require a gradient."""
    given: list[tuple[Region, torch.Tensor | None]] | None = None
    """The regions that calls change, and what they are to hold once values are not varied any more; None before."""
    replaced: dict[Region, tuple[torch.Tensor, bool]] = field(default_factory=dict)
    """The regions that hold other bytes than they were given with; those, and whether calls were known to change it."""

    def leaves(self) -> Leaves:
        """Return the arguments, and the other tensors that calls use, by name."""
        given = self.find()
        return [*given, *held_by(given), *self.held()]

    def given_leaves(self) -> Leaves:
        """Return the arguments, what objects among them hold, and the gradients of both, by name."""
        return with_gradients(with_values(self.find()))

    def restore(self) -> None:
        """Put back what calls changed; before the first call, take copies.

        Raises MeasurementError for what cannot be put back.
        """
        if self.layouts is None:
            self._begin()
            return
        self.calls += 1
        is_first = self.calls <= FIRST_CALLS and not self.looked
        is_chosen = is_first or (self.looks_at_random and not secrets.randbelow(CALLS_PER_LOOK))
        is_chosen = is_chosen and self.given is None
        self.launched = is_chosen or bool(self.changing)
        if is_chosen:
            self.late += self.look()
        self.looked = False
        self.put_back()
        if is_chosen and (names := self._moved(self.find())):
            raise MeasurementError(
                f"a call changes where {', '.join(names)} lies, its shape or strides, so later calls would get other "
                "inputs: give setup=, which makes new arguments for each call"
            )

    def _begin(self) -> None:
        self.originals = self.find()
        self.layouts, self.differentiable = layouts_of(self.originals), differentiable_in(self.originals)
        self.values, seen = values_of(with_values(self.originals)), dict[int, object]()
        reached = [each for root in self.roots for _, each in reached_in("", root, seen)]
        self.contained = [each for value in reached for each in Contents.of(value)]
        leaves = with_gradients(self.leaves())
        self.generators = [(each, each.get_state()) for each in reached if isinstance(each, torch.Generator)]
        tensors = [(name, leaf) for name, leaf in leaves if takes_gradient(leaf)]
        self.gradients = [(f"{name}.grad", leaf, leaf.grad, _parts_of(leaf.grad)) for name, leaf in tensors]
        self.regions = list(regions_of(leaves))
        self.launched = True
        taken: dict[torch.device, int] = {}  # the smallest are copied, as far as there is room
        for region in sorted(self.regions, key=lambda each: each.bytes.nbytes):
            device = region.bytes.device
            taken[device] = taken.get(device, 0) + region.bytes.nbytes
            region.accept(taken[device] <= ALWAYS_BYTES or taken[device] <= room_on(device))

    def begin_varied(self) -> None:
        """Take what the inputs that calls change hold now for what they are to hold, until `end_varied`."""
        self.given = [(region, region.values) for region in self.changing]
        for region in self.changing:
            region.accept()

    def end_varied(self) -> None:
        """Let inputs whose values are not varied any more be put back as before."""
        for region, values in self.given or ():
            region.values = values
        self.given = None

    def look(self) -> list[str]:
        """Return the names of inputs that are newly changed, which are put back from now on, or have moved."""
        known: set[object] = {*self.changing, *self.changing_contents}
        new = changed_regions([region for region in self.regions if region not in known])
        self.looked = True
        self.changing += new
        self.changes_gradients |= bool(self._changed_gradients())
        self.changing_contents += [each for each in self.contained if each not in known and each.differ]
        exchanged = [name for name in self._exchanged() if name not in self.exchanged]
        self.exchanged += exchanged
        names = [*self.displaced(), *exchanged, *(name for region in new for name in region.names)]
        return list(dict.fromkeys(names))

    def displaced(self) -> list[str]:
        """Return the names of arguments that calls moved or reshaped, or let require a gradient."""
        turned = sorted(self.differentiable ^ differentiable_in(self.originals))
        return [*self._moved(self.originals), *turned]

    def _moved(self, leaves: Leaves) -> list[str]:
        """Return the names of arguments that lie elsewhere, have another shape or strides, are gone or are new."""
        before, after = self.layouts or {}, layouts_of(leaves)
        return [name for name in {**before, **after} if before.get(name) != after.get(name)]

    def _exchanged(self) -> list[str]:
        """Return the names under which arguments and objects hold other values than they are to hold."""
        if not any(each.differ for each in self.changing_contents):
            return []
        now = values_of(with_values(self.find()))
        return [name for name in {**self.values, **now} if self.values.get(name) != now.get(name)]

    def put_back(self) -> None:
        """Let inputs that calls change hold what they are to hold."""
        for each in self.changing_contents:
            each.put_back()
        for generator, state in self.generators:
            generator.set_state(state)
        for _, tensor, given, parts in self.gradients if self.changes_gradients else ():
            tensor.grad = given
            if given is not None and parts is not None:
                given.data = parts.detach()
        for region in sorted(self.changing, key=lambda each: each.values is None):
            region.put_back()

    def replace(self, name: str, values: torch.Tensor) -> bool:
        """Let an input hold other bytes from now on; return whether it can: alone in its memory, and copied."""
        for region in self.regions:
            if region.names == [name] and region.values is not None and region.values.nbytes == values.nbytes:
                self.replaced[region] = region.values, region in self.changing
                region.values = values
                self.changing += [region] if region not in self.changing else []
                return True
        return False

    def end_replacing(self, name: str | None = None) -> None:
        """Let this input, or all, hold again what it was given with."""
        ended = [region for region in self.replaced if name in (None, *region.names)]
        changed = {region: self.replaced.pop(region) for region in ended}
        for region, (values, _) in changed.items():
            region.values = values
        self.put_back()
        self.changing = [region for region in self.changing if changed.get(region, (None, True))[1]]

    @property
    def names(self) -> list[str]:
        """The names of the inputs that calls are known to change."""
        return [*self.exchanged, *(name for region in self.changing for name in region.names)]

    def _changed_gradients(self) -> set[str]:
        """Return the names of the gradients that calls have given, exchanged or dropped."""
        return {
            name
            for name, tensor, given, parts in self.gradients
            if tensor.grad is not given
            or (parts is not None and layouts_of([("", given)]) != layouts_of([("", parts)]))
        }

    def changed_arguments(self) -> tuple[str, ...]:
        """Return the names of the arguments that do not hold now what they are to hold."""
        changed = {name for each in changed_regions(self.changing) for name in each.names} | self._changed_gradients()
        exchanged = dict.fromkeys(self._exchanged())
        if not changed and not exchanged:
            return ()
        return tuple(name for name in {**by_name(self.given_leaves()), **exchanged} if name in {*changed, *exchanged})

    def contents(self, names: Collection[str]) -> dict[str, object]:
        """Return copies of arguments as they are now, as `copies_of` does."""
        return copies_of(self.given_leaves(), names) if names else {}


def _parts_of(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Return a sparse gradient of the same parts, which keeps them; None for any other."""
    return gradient.detach() if gradient is not None and gradient.is_sparse else None


def by_name(leaves: Leaves) -> dict[str, object]:
    """Return leaves, and the tensors that hold their memory, which are detached, by name."""
    return {**dict(leaves), **dict(tensors_of(leaves))}


def copies_of(leaves: Leaves, names: Iterable[str]) -> dict[str, object]:
    """Return copies of leaves by name; None for what is gone, such as a gradient that a call dropped, and its parts."""
    found = by_name(leaves)
    return {name: copied(found.get(name)) for name in names}


def with_values(leaves: Leaves) -> Leaves:
    """Return leaves, and all values that objects among them hold, by name."""
    return [*leaves, *values_held_by(leaves)]


def values_of(leaves: Leaves) -> dict[str, object]:
    """Return what tells whether leaves are the same: where a tensor lies, and other values themselves."""
    return {name: (type(leaf), leaf) for name, leaf in leaves if isinstance(leaf, SIMPLE)} | layouts_of(leaves)


def with_gradients(leaves: Leaves) -> Leaves:
    """Return leaves, and the gradient of each that may have one, by name."""
    return [*leaves, *((f"{name}.grad", leaf.grad) for name, leaf in leaves if takes_gradient(leaf))]


def layouts_of(leaves: Leaves) -> dict[str, object]:
    """Return where each tensor among leaves lies, its shape, strides and dtype, by name."""
    return {name: _layout_of(tensor) for name, tensor in tensors_of(leaves)}


def _layout_of(tensor: torch.Tensor) -> object:
    try:
        return tensor.data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
    except RuntimeError:  # a tensor without an address
        return tensor.dtype


def differentiable_in(leaves: Leaves) -> set[str]:
    """Return the names of the tensors that require a gradient."""
    return {name for name, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad}


def takes_gradient(leaf: object) -> TypeGuard[torch.Tensor]:
    """Tell whether a call may leave a gradient at a leaf."""
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf


def regions_of(leaves: Leaves) -> Iterator[Region]:
    """Yield the memory of tensors: what overlaps is one region."""
    spans: dict[Place, list[tuple[int, int, str]]] = {}
    storages: dict[Place, torch.UntypedStorage] = {}
    for name, tensor in tensors_of(leaves):  # two functions may hold tensors of one name
        for _, memory in memory_of([(name, tensor)]):
            spans.setdefault(memory.place, []).append((memory.start, memory.stop, name))
            storages[memory.place] = tensor.untyped_storage()
    for place, members in spans.items():
        union: list[tuple[int, int, list[str]]] = []
        for start, stop, name in sorted(members):
            if union and start < union[-1][1]:
                low, high, names = union.pop()
                union.append((low, max(high, stop), [*names, name]))
            else:
                union.append((start, stop, [name]))
        for start, stop, names in union:
            whole = torch.empty(0, dtype=torch.int8, device=place[0])
            yield Region(names, whole.set_(storages[place], start - place[1], (stop - start,), (1,)))


def room_on(device: torch.device) -> int:
    """Return how many bytes of copies a device has room for: a quarter of its free memory."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        stats = torch.cuda.memory_stats_as_nested_dict(device)  # memory_reserved and memory_allocated take 0.2 ms each
        cached = stats["reserved_bytes"]["all"]["current"] - stats["allocated_bytes"]["all"]["current"]
        return int(free + cached) // 4
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
