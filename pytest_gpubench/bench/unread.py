"""Arguments that a reference writes without reading them: what they held before must not be its result already."""

from collections.abc import Callable, Iterable, Iterator

import torch

from pytest_gpubench.bench.arguments import RestoringSetup
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness import Tolerance, compare_outputs
from pytest_gpubench.correctness.held import held_by
from pytest_gpubench.correctness.inputs import InputMemory
from pytest_gpubench.correctness.leaves import Leaves, flatten, is_usual, tensors_of
from pytest_gpubench.correctness.margins import fill_showing, is_plain
from pytest_gpubench.correctness.memory import copied, overlaps

Memory = InputMemory | RestoringSetup


def rerun_where_results_were_there(run: Callable[[], Ran], first: Ran, memory: Memory, tolerance: Tolerance) -> Ran:
    """Return copies of what a reference computes where no argument holds its result before the call.

    As the `out=` of an earlier call does: a candidate that writes nothing would be right. Such an argument holds values
    whose use shows, in all calls until `end_replacing`, unless the reference reads it.

    first: what a first call computed.
    """
    found = _rerun_without(_holding_results(first, memory, tolerance), run, first.copied(), memory, tolerance)
    if isinstance(memory, InputMemory) and _has_no_results(found):
        found = _rerun_without(_written_in_objects(run, memory), run, found, memory, tolerance)
    return found


def _has_no_results(found: Ran) -> bool:
    """Tell whether a call changes no argument, and returns at most objects, whose tensors it may have written."""
    return not found.changed and all(leaf is None or _holds_tensors(leaf) for _, leaf in flatten(found.outputs))


def _holds_tensors(leaf: object) -> bool:
    return not isinstance(leaf, torch.Tensor) and bool(held_by([("", leaf)]))


def _rerun_without(
    held: Iterable[tuple[str, torch.Tensor]], run: Callable[[], Ran], found: Ran, memory: Memory, tolerance: Tolerance
) -> Ran:
    """Return what a reference computes where each of these arguments that it does not read holds other values."""
    for name, tensor in list(held):
        result = copied(found.inputs.get(name, tensor))
        if not memory.replace(name, _others(tensor)):
            continue
        try:
            again = run()
            same = again.outputs, again.inputs.get(name, result)
            is_unread = all(each.passed for each in compare_outputs(same, (found.outputs, result), tolerance))
        except Exception:  # it reads it, and refuses these values
            is_unread = False
        if is_unread:
            found = again.copied()
        else:
            memory.end_replacing(name)
    return found


def _others(tensor: torch.Tensor, at_random: bool = False) -> torch.Tensor:
    """Return other bytes for a tensor: values whose use shows, or random ones, which no call computes from others."""
    other = torch.empty(tensor.nbytes, dtype=torch.int8, device=tensor.device)
    if at_random and is_usual(tensor.dtype) and tensor.is_floating_point():
        other.view(tensor.dtype).uniform_()
    else:
        fill_showing(other, tensor)
    return other


def _holding_results(found: Ran, memory: Memory, tolerance: Tolerance) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the arguments that may be results, and hold before the call what they hold after it."""
    given = memory.given_leaves
    has_none = _has_no_results(found)
    if has_none and isinstance(memory, InputMemory):  # any may be: those that objects hold may be many
        given = memory.find
    elif not (found.changed or found.in_arguments):
        return
    if found.changed:
        memory.put_back()
    leaves = given()
    returned = {name for _, name in overlaps(flatten(found.outputs), leaves)}
    for name, tensor in _replaceable(leaves):
        if name in found.changed:
            held = all(each.passed for each in compare_outputs(tensor, found.inputs[name], tolerance, briefly=True))
        else:
            held = has_none or name in returned
        if held:
            yield name, tensor


def _written_in_objects(run: Callable[[], Ran], memory: InputMemory) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of objects that a call writes, found by one call to which all of them hold other values."""
    held = _replaceable(held_by(memory.find()))
    try:
        replaced = [memory.replace(name, _others(tensor, at_random=True)) for name, tensor in held]
        written = run().changed if any(replaced) else ()
    except Exception:  # it reads some, and refuses these values, or there is no room for them
        written = ()
    memory.end_replacing()
    return [(name, tensor) for name, tensor in held if name in written]


def _replaceable(leaves: Leaves) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors among leaves that may hold other bytes."""
    plain = [(name, leaf) for name, leaf in leaves if is_plain(leaf) and not leaf.requires_grad]
    return [(name, tensor) for name, tensor in tensors_of(plain) if tensor.is_contiguous() and tensor.numel()]
