"""Arguments that a reference writes without reading them: what they held before must not be its result already."""

from collections.abc import Callable, Iterator

import torch

from pytest_gpubench.bench.arguments import RestoringSetup
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness import Tolerance, compare_outputs
from pytest_gpubench.correctness.inputs import InputMemory, copy_of
from pytest_gpubench.correctness.leaves import flatten, tensors_of
from pytest_gpubench.correctness.margins import fill_showing, is_plain
from pytest_gpubench.correctness.memory import overlaps

Memory = InputMemory | RestoringSetup


def rerun_where_results_were_there(run: Callable[[], Ran], first: Ran, memory: Memory, tolerance: Tolerance) -> Ran:
    """Return copies of what a reference computes where no argument holds its result before the call.

    As the `out=` of an earlier call does: a candidate that writes nothing would be right. Such an argument holds values
    whose use shows, in all calls until `end_replacing`, unless the reference reads it.

    first: what a first call computed.
    """
    found = first.copied()
    held = list(_holding_results(first, memory, tolerance))
    for name, tensor in held:
        result = copy_of(found.inputs.get(name, tensor))
        other = torch.empty(tensor.nbytes, dtype=torch.int8, device=tensor.device)
        fill_showing(other, tensor)
        if not memory.replace(name, other):
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


def _holding_results(found: Ran, memory: Memory, tolerance: Tolerance) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the arguments that may be results, and hold before the call what they hold after it."""
    given = memory.given_leaves
    has_none = not found.changed and all(leaf is None for _, leaf in flatten(found.outputs))
    if has_none and isinstance(memory, InputMemory):  # any may be: those that objects hold may be many
        given = memory.find
    elif not (found.changed or found.in_arguments):
        return
    if found.changed:
        memory.put_back()
    leaves = [(name, leaf) for name, leaf in given() if is_plain(leaf) and not leaf.requires_grad]
    returned = {name for _, name in overlaps(flatten(found.outputs), leaves)}
    for name, tensor in tensors_of(leaves):
        if name in found.changed:
            held = all(each.passed for each in compare_outputs(tensor, found.inputs[name], tolerance, briefly=True))
        else:
            held = has_none or name in returned
        if held and tensor.is_contiguous() and tensor.numel():
            yield name, tensor
