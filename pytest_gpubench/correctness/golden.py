"""Golden: a function in float64, and candidate and reference judged by their errors against it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_gpubench.correctness.chunks import Block
from pytest_gpubench.correctness.distance import as_numbers, distances, magnitudes
from pytest_gpubench.correctness.dtypes import is_finer, last_places, name_of
from pytest_gpubench.correctness.leaves import components, flatten, map_leaves
from pytest_gpubench.correctness.pair import Pair, Rules
from pytest_gpubench.correctness.survey import Judged, survey
from pytest_gpubench.correctness.tolerance import is_number
from pytest_gpubench.errors import BadRequest

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True


def widened(
    args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return arguments in float64.

    Float tensors become float64 and complex ones complex128, `requires_grad` kept, with no graph behind them; every
    other tensor is copied, so that a function that overwrites its inputs overwrites none of the test's. An argument
    that is a float dtype becomes float64. What the function that is called with them holds itself (a module's weights,
    constants, conversions inside) stays as it is; so do the tensors that quantized and float4 arguments are.
    """
    made: dict[int, tuple[object, object]] = {}  # a tensor given twice stays one, and none is freed: ids stay their own

    def convert(leaf: object) -> object:
        if id(leaf) not in made:
            made[id(leaf)] = leaf, _to_float64(leaf)
        return made[id(leaf)][1]

    wide = tuple(map_leaves(convert, arg) for arg in args)
    return wide, {name: map_leaves(convert, arg) for name, arg in (kwargs or {}).items()}


@contextmanager
def float64_by_default() -> Iterator[None]:
    """Let torch make float64 tensors where no dtype is asked for."""
    import torch

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def _to_float64(leaf: object) -> object:
    import torch

    if isinstance(leaf, torch.dtype):
        return _widest(leaf)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    dtype = leaf.dtype if leaf.is_quantized else _widest(leaf.dtype)
    wide = leaf.detach().clone() if dtype == leaf.dtype else leaf.detach().to(dtype)
    return wide.requires_grad_(leaf.requires_grad)


def _widest(dtype: "torch.dtype") -> "torch.dtype":
    import torch

    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point and name_of(dtype) != "float4_e2m1fn_x2" else dtype


def golden_leaves(golden: object, expected: Mapping[str, object], rules: Rules) -> dict[str, object]:
    """Return golden's leaves by name; raise BadRequest where it does not fit the reference or the rules."""
    if not rules.tolerance.is_default:
        raise BadRequest("golden= and rtol=, atol= are two ways to say what is right: give one of them")
    factor = rules.golden_factor
    if not (is_number(factor) and 1 <= factor < math.inf):
        raise BadRequest(f"golden_factor={factor!r} is not valid: it must be a finite number of at least 1")
    truths = dict(flatten(golden))
    for name in [*expected, *truths]:
        if name not in truths or name not in expected:
            what = "lacks" if name in expected else "has, unlike the reference,"
            raise BadRequest(f"golden= {what} {name!r}: it must have the structure of the reference's outputs")
    return truths


def golden_components(
    name: str, golden: object, expected: Sequence[tuple[str, "torch.Tensor"]]
) -> list["torch.Tensor"]:
    """Return golden's dense tensors; raise BadRequest where they cannot be what the outputs are measured by."""
    import torch

    parts = components(name, golden.detach()) if isinstance(golden, torch.Tensor) else []
    if [part for part, _ in parts] != [part for part, _ in expected]:
        kind = f"{golden.layout} tensor" if isinstance(golden, torch.Tensor) else type(golden).__name__
        raise BadRequest(f"golden {name!r} is a {kind}, which the reference's is not")
    for (part, truth), (_, other) in zip(parts, expected, strict=True):
        _check_golden(part, truth, other)
    return [truth for _, truth in parts]


def _check_golden(name: str, golden: "torch.Tensor", expected: "torch.Tensor") -> None:
    if golden.shape != expected.shape:
        shapes = f"{tuple(golden.shape)}, the reference's {tuple(expected.shape)}"
        raise BadRequest(f"golden {name!r} has shape {shapes}: they must be the same")
    if not is_finer(golden.dtype, expected.dtype):
        raise BadRequest(
            f"golden {name!r} is {name_of(golden.dtype)}, which cannot tell how wrong {name_of(expected.dtype)} is: "
            "give it in float64 (does the function convert inside?)"
        )


def judge_exactly(pair: Pair, golden: "torch.Tensor", block: Block) -> Judged:
    """Judge elements that have no last place: each must be the reference's or golden's."""
    found, expected = pair.found[block], pair.expected[block]
    truth = golden[block].to(device=found.device, dtype=found.dtype)
    diff = distances(found, expected, pair.rules.tolerance.equal_nan)
    diff = diff.masked_fill(distances(found, truth, pair.rules.tolerance.equal_nan) == 0, 0.0)
    return diff, magnitudes(expected), diff.new_zeros(()).expand_as(diff)


def judge_reference(pair: Pair, golden: "torch.Tensor", block: Block) -> Judged:
    """Return the errors of the reference; those that say nothing are 0, so that they excuse no other element."""
    found, truth = as_numbers(pair.expected[block]), as_numbers(golden[block].to(pair.expected.device))
    diff = distances(found, truth, equal_nan=True).masked_fill(is_beyond(pair.found.dtype, found, truth), 0.0)
    return diff, magnitudes(truth), diff


def judge_by_golden(pair: Pair, golden: "torch.Tensor", reference_max: float, block: Block) -> Judged:
    """Judge the candidate's errors against golden by the reference's largest and the last place."""
    found, expected = as_numbers(pair.found[block]), as_numbers(pair.expected[block])
    chunk = golden[block].to(pair.found.device)
    truth, rounded = as_numbers(chunk), as_numbers(chunk.to(pair.found.dtype))
    equal_nan = pair.rules.tolerance.equal_nan
    same = (distances(found, expected, equal_nan) == 0) | (distances(found, rounded, equal_nan) == 0)
    beyond = is_beyond(pair.found.dtype, found, truth)
    diff = distances(found, truth, equal_nan).masked_fill(beyond & same, 0.0)
    magnitude = magnitudes(truth)
    return diff, magnitude, pair.rules.golden_factor * reference_max + last_places(pair.found.dtype, magnitude)


def is_beyond(dtype: "torch.dtype", found: "torch.Tensor", truth: "torch.Tensor") -> "torch.Tensor":
    """Tell for each element whether it is not finite, or need not be: its error says nothing then."""
    import torch

    return ~(found.isfinite() & (truth.abs() <= torch.finfo(dtype).max))


def rms_of_last_place(pair: Pair, golden: "torch.Tensor") -> float:
    """Return the RMS of one unit in the last place, over all elements."""

    def judge(block: Block) -> Judged:
        magnitude = magnitudes(golden[block].to(pair.found.device))
        units = last_places(pair.found.dtype, magnitude)
        return units, magnitude, units

    return math.sqrt(survey(golden, judge).squares / max(golden.numel(), 1))
