"""Inputs and outputs as plain data: a structure with places for tensors in order, and each tensor's place in memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_gpubench.correctness.tolerance import dtype_name
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.channel import Layout, Leaf

if TYPE_CHECKING:
    import torch

ALIGNMENT = 512
MIB = 2**20
LARGEST = 2**48
Node = Any
"""A list of a kind and a value: `["t", None]` is the next tensor, `["l", [...]]` a list of nodes."""
Placed = tuple[list[int], list[tuple[int, int]]]


def describe(value: object, what: str) -> tuple[Node, list["torch.Tensor"]]:
    """Return the structure of a pytree and its tensors, in order; raise BadRequest where it cannot be sent."""
    tensors: list[torch.Tensor] = []
    return _node_of(value, what, tensors), tensors


def _node_of(value: object, what: str, tensors: list["torch.Tensor"]) -> Node:
    import torch

    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise BadRequest(
                f"{what} has a {type(value).__name__} of layout {value.layout}: only plain tensors are sent"
            )
        tensors.append(value.detach().resolve_conj().resolve_neg())
        return ["t", None]
    if isinstance(value, (tuple, list)):
        kind = "u" if isinstance(value, tuple) else "l"
        return [kind, [_node_of(each, what, tensors) for each in value]]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return ["d", {key: _node_of(each, what, tensors) for key, each in value.items()}]
    if isinstance(value, torch.dtype):
        return ["dtype", dtype_name(value)]
    if isinstance(value, float):
        return ["f", value.hex()]
    if value is None or isinstance(value, (bool, int, str)):
        return ["v", value]
    legal = "only tensors, numbers, texts, lists, and dicts with texts as keys can be"
    raise BadRequest(f"{what}: a {type(value).__name__} cannot be sent, {legal}")


def rebuild(node: Node, tensors: Sequence["torch.Tensor"]) -> Any:
    """Return the pytree of a structure and its tensors, in order; raise ValueError where it has not as many."""
    left = list(reversed(tensors))
    found = _rebuild(node, left)
    if left:
        raise ValueError(f"there are {len(left)} tensors more than its structure has")
    return found


def _rebuild(node: Node, left: list["torch.Tensor"]) -> Any:
    import torch

    if not isinstance(node, list) or len(node) != 2:
        raise ValueError("no structure")
    kind, value = node
    if kind == "t" and left:
        return left.pop()
    if kind in ("u", "l"):
        return (tuple if kind == "u" else list)(_rebuild(each, left) for each in value)
    if kind == "d":
        return {str(key): _rebuild(each, left) for key, each in value.items()}
    if kind == "dtype":
        return dtype_of(value)
    if kind == "f":
        return float.fromhex(value)
    if kind == "v" and (value is None or isinstance(value, (bool, int, str))):
        return value
    raise ValueError(f"no structure: {kind!r:.9} of {torch.typename(value)}")


def dtype_of(name: str) -> "torch.dtype":
    """Return the dtype of a name; raise ValueError for any other name."""
    import torch

    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"no dtype: {name!r:.40}")
    return found


def leaf_of(tensor: "torch.Tensor", inputs: Sequence["torch.Tensor"] = ()) -> Leaf:
    """Describe a tensor, of a call that was given these."""
    starts = [(each.data_ptr(), each.data_ptr() + span_of(each).nbytes) for each in inputs]
    is_input = any(start <= tensor.data_ptr() < stop for start, stop in starts)
    return Leaf(dtype_name(tensor.dtype), tuple(tensor.shape), tensor.stride(), is_input)


def elements_of(leaf: Leaf) -> int:
    """Return the number of elements from a tensor's first to its last; raise ValueError for an invalid layout."""
    numbers = [*leaf.shape, *leaf.stride]
    if len(leaf.shape) != len(leaf.stride) or any(not 0 <= number <= LARGEST for number in numbers):
        raise ValueError(f"no tensor: shape {leaf.shape}, stride {leaf.stride}"[:200])
    if 0 in leaf.shape:
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(leaf.shape, leaf.stride, strict=True))


def distinct_elements(leaf: Leaf) -> int:
    """Return how many of a tensor's elements certainly share no memory: none along a step into a smaller one's span."""
    found, span = min(elements_of(leaf), 1), 1
    for step, length in sorted(zip(leaf.stride, leaf.shape, strict=True)):
        found *= length if step >= span else 1
        span += (length - 1) * step
    return found


def layout_of(tensors: Sequence["torch.Tensor"], sets: int = 1) -> Layout:
    """Describe so many sets of these tensors."""
    return Layout(tuple(map(leaf_of, tensors)), sets)


def set_bytes(layout: Layout) -> int:
    """Return the bytes of a set."""
    return sum(map(_span_bytes, layout.leaves))


def _span_bytes(leaf: Leaf) -> int:
    return max(1, -(-elements_of(leaf) * dtype_of(leaf.dtype).itemsize // ALIGNMENT)) * ALIGNMENT


def placed(layout: Layout) -> Placed:
    """Return the sizes of blocks for all sets, and for each tensor, set after set, its block and the bytes before it.

    Blocks are those of torch's allocator for a GPU (c10/cuda/CUDACachingAllocator.cpp of torch 2.11): 2 MiB for tensors
    of 1 MiB at most, 20 MiB for those below 10 MiB, and one for each larger one. Times depend on it: with all inputs in
    one block a product took 0.4 % longer than with torch's, a cross entropy 0.3 % less and an RMS norm 0.5 % less, on
    an H200 (standard errors of 0.1 %).
    """
    sizes, places, latest = list[int](), list[tuple[int, int]](), dict[int, tuple[int, int]]()
    for needed in [*map(_span_bytes, layout.leaves)] * layout.sets:
        size = 2 * MIB if needed <= MIB else 20 * MIB if needed < 10 * MIB else -(-needed // (2 * MIB)) * 2 * MIB
        block, end = latest.get(size, (0, size))
        if end + needed > size:
            block, end = len(sizes), 0
            sizes.append(size)
        places.append((block, end))
        latest[size] = block, end + needed
    return sizes, places


def views(blocks: Sequence["torch.Tensor"], layout: Layout) -> list[list["torch.Tensor"]]:
    """Return the tensors of each set, in blocks of bytes that are as large as `placed` says, or larger."""
    _, places = placed(layout)

    def view(leaf: Leaf, block: int, start: int) -> "torch.Tensor":
        dtype = dtype_of(leaf.dtype)
        size = elements_of(leaf) * dtype.itemsize
        return blocks[block][start : start + size].view(dtype).as_strided(leaf.shape, leaf.stride)

    found = [view(leaf, *place) for leaf, place in zip(layout.leaves * layout.sets, places, strict=True)]
    length = len(layout.leaves)
    return [found[number * length : (number + 1) * length] for number in range(layout.sets)]


def span_of(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return the elements of a tensor's memory, gaps included, each once."""
    return tensor.as_strided((elements_of(leaf_of(tensor)),), (1,))


def spans_like(example: Sequence[object], values: Sequence[object]) -> list["torch.Tensor"]:
    """Return the memory of inputs' tensors; raise BadRequest where they differ from an example in more than values."""
    (node, like), (other, tensors) = (describe(tuple(each), "the inputs") for each in (example, values))
    if other != node or layout_of(tensors) != layout_of(like):
        raise BadRequest("the spec's inputs differ from seed to seed in more than the values of their tensors")
    return [*map(span_of, tensors)]


def as_it_lay(copied: "torch.Tensor", leaf: Leaf) -> "torch.Tensor":
    """Return what `copy_elements` copied to a dense tensor, in the order in which it lay."""
    return copied.as_strided(leaf.shape, leaf.stride) if elements_of(leaf) == copied.numel() else copied


def unfilled(layout: Layout, device: "torch.device | str") -> list["torch.Tensor"]:
    """Return new tensors like those of a set."""
    import torch

    return [
        torch.empty_strided(each.shape, each.stride, dtype=dtype_of(each.dtype), device=device)
        for each in layout.leaves
    ]


def copy_elements(targets: Sequence["torch.Tensor"], sources: Sequence["torch.Tensor"]) -> None:
    """Copy tensors to dense ones: the memory of those without gaps as it lies, and the elements of others.

    On a GPU kernels copy: its copy engine could work beside kernels of another process.
    """
    import torch

    ours: list[torch.Tensor] = []
    theirs: list[torch.Tensor] = []
    for target, source in zip(targets, sources, strict=True):
        if 0 < source.numel() == elements_of(leaf_of(source)):
            bits = source.nbytes | target.data_ptr() | source.data_ptr()
            word = torch.uint8 if bits % 8 else torch.int64  # words of 8 bytes are copied faster than bytes
            ours.append(span_of(target).view(word))
            theirs.append(span_of(source).view(word))
        else:
            target.copy_(source)
    if ours:
        torch._foreach_copy_(ours, theirs)
