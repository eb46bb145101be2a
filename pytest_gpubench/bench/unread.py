"""Arguments that a reference writes without reading them: what they held before must not be its result already."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import torch

from pytest_gpubench.correctness import Tolerance, compare_outputs
from pytest_gpubench.correctness.inputs import InputMemory
from pytest_gpubench.correctness.leaves import flatten, tensors_of
from pytest_gpubench.correctness.margins import fill_showing, is_plain
from pytest_gpubench.correctness.memory import overlaps


class Ran(Protocol):
    """What a call computed."""

    @property
    def outputs(self) -> object:
        """Its outputs."""

    @property
    def inputs(self) -> Mapping[str, torch.Tensor]:
        """The arguments that calls change, as it left them."""

    @property
    def changed(self) -> Sequence[str]:
        """The names of those that it changed."""


R = TypeVar("R", bound=Ran)


def rerun_where_results_were_there(run: Callable[[], R], found: R, memory: InputMemory, tolerance: Tolerance) -> R:
    """Return what a reference computes where no argument holds its result before the call.

    As the `out=` of an earlier call does: a candidate that writes nothing would be right. Such an argument holds values
    whose use shows, in all calls until `end_replacing`, unless the reference reads it.
    """
    for name, tensor in list(_holding_results(found, memory, tolerance)):
        result = found.inputs.get(name, tensor).clone()
        other = torch.empty(tensor.nbytes, dtype=torch.int8, device=tensor.device)
        fill_showing(other, tensor)
        if not memory.replace(name, other):
            continue
        try:
            again = run()
            same = again.outputs, again.inputs.get(name, tensor)
            is_unread = all(each.passed for each in compare_outputs(same, (found.outputs, result), tolerance))
        except Exception:  # it reads it, and refuses these values
            is_unread = False
        if is_unread:
            found = again
        else:
            memory.end_replacing(name)
    return found


def _holding_results(found: Ran, memory: InputMemory, tolerance: Tolerance) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the arguments that may be results, and hold before the call what they hold after it."""
    if found.changed:
        memory.put_back()
    leaves = [(name, leaf) for name, leaf in memory.find() if is_plain(leaf) and not leaf.requires_grad]
    returned = {name for _, name in overlaps(flatten(found.outputs), leaves)}
    has_none = not found.changed and all(leaf is None for _, leaf in flatten(found.outputs))
    for name, tensor in tensors_of(leaves):
        if name in found.changed:
            held = all(each.passed for each in compare_outputs(tensor, found.inputs[name], tolerance, briefly=True))
        else:
            held = has_none or name in returned
        if held and tensor.is_contiguous() and tensor.numel():
            yield name, tensor
