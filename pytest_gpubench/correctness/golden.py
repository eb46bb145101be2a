"""Golden outputs: run the reference in float64, and judge candidate and reference by their errors against it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from pytest_gpubench.bounds import argument, at_least
from pytest_gpubench.correctness.chunks import ChunkRange
from pytest_gpubench.correctness.difference import GoldenErrors
from pytest_gpubench.correctness.elementwise import (
    JudgedChunk,
    Pair,
    Rules,
    Totals,
    as_numbers,
    distances,
    judge_chunks,
    magnitudes,
)
from pytest_gpubench.correctness.leaves import components, flatten, map_leaves, tensor_of
from pytest_gpubench.correctness.tolerance import dtype_name, is_exact, last_place, last_places
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.units import repr_of

FEW = 100
"""Errors of fewer elements are chance: of candidates as good as the reference, one in a thousand has a largest error of
64 elements that is more than twice the reference's, and 29 % have such an error of a single one."""


def widened(
    args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return arguments in float64.

    Float tensors become float64 and complex ones complex128, with their `requires_grad` and without a graph behind
    them; all other tensors are copied, so that a function that overwrites its inputs overwrites none of the test's. An
    argument that is a float dtype becomes float64. What the called function holds itself (a module's weights,
    constants, conversions inside) stays as it is, and so do quantized and float4 tensors.
    """
    made: dict[int, tuple[object, object]] = {}  # a tensor given twice stays one; none is freed, so ids stay unique

    def convert(leaf: object) -> object:
        if id(leaf) not in made:
            made[id(leaf)] = leaf, _to_float64(leaf)
        return made[id(leaf)][1]

    wide = tuple(map_leaves(convert, arg) for arg in args)
    return wide, {name: map_leaves(convert, arg) for name, arg in (kwargs or {}).items()}


@contextmanager
def float64_by_default() -> Iterator[None]:
    """Make torch create float64 tensors where no dtype is given."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def _to_float64(leaf: object) -> object:
    if isinstance(leaf, torch.dtype):
        return _widest(leaf)
    if not isinstance(leaf, torch.Tensor):
        array = tensor_of(leaf, to_compare=True)
        return leaf if array is None else array.to(_widest(array.dtype)).numpy()[()]
    dtype = leaf.dtype if leaf.is_quantized else _widest(leaf.dtype)
    wide = leaf.detach().clone() if dtype == leaf.dtype else leaf.detach().to(dtype)
    return wide.requires_grad_(leaf.requires_grad)


def _widest(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point and dtype_name(dtype) != "float4_e2m1fn_x2" else dtype


def check_golden(golden: object, factor: object) -> None:
    """Raise BadRequest for a golden that is neither "float64" nor a function, and a factor without one or below 1."""
    if golden is not None and golden != "float64" and not callable(golden):
        raise BadRequest(f"golden= must be 'float64' or a function, found {repr_of(golden)}")
    if golden is None and factor is not None:
        raise BadRequest(f"golden_factor={repr_of(factor)} is given without golden=: give both, or none")
    if factor is not None:
        argument("golden_factor={}", factor, at_least(1))


def golden_leaves(golden: object, expected: Mapping[str, object], rules: Rules) -> dict[str, object]:
    """Return golden's leaves by name; raise BadRequest where it does not fit the reference or the rules."""
    if not rules.tolerance.is_default:
        raise BadRequest("golden= and rtol=, atol= are two ways to say what is right: give one of them")
    truths = dict(flatten(golden))
    for name in [*expected, *truths]:
        if name not in truths or name not in expected:
            what = "lacks" if name in expected else "has, unlike the reference,"
            raise BadRequest(f"golden= {what} {name!r}: it must have the structure of the reference's outputs")
    return truths


def golden_components(name: str, golden: object, expected: Sequence[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Return the dense tensors of a golden leaf; raise BadRequest where they do not fit the reference's."""
    parts = components(name, golden.detach()) if isinstance(golden, torch.Tensor) else []
    if [part for part, _ in parts] != [part for part, _ in expected]:
        kind = f"{golden.layout} tensor" if isinstance(golden, torch.Tensor) else type(golden).__name__
        raise BadRequest(f"golden {name!r} is a {kind}, which the reference's is not")
    for (part, truth), (_, other) in zip(parts, expected, strict=True):
        _check_part(part, truth, other)
    return [truth for _, truth in parts]


def _check_part(name: str, golden: torch.Tensor, expected: torch.Tensor) -> None:
    if golden.shape != expected.shape:
        shapes = f"{tuple(golden.shape)}, the reference's {tuple(expected.shape)}"
        raise BadRequest(f"golden {name!r} has shape {shapes}: they must be the same")
    if not _is_finer(golden.dtype, expected.dtype):
        raise BadRequest(
            f"golden {name!r} is {dtype_name(golden.dtype)}, which cannot tell how wrong {dtype_name(expected.dtype)} "
            "is: give it in float64 (does the function convert inside?)"
        )


def _is_finer(golden: torch.dtype, dtype: torch.dtype) -> bool:
    """Tell whether a dtype can measure another's errors: it is of the same kind, and a thousand times finer."""
    kinds = [(one.is_floating_point, one.is_complex) for one in (golden, dtype)]
    if kinds[0] != kinds[1] or is_exact(dtype):
        return kinds[0] == kinds[1]
    return not is_exact(golden) and last_place(golden)[0] <= max(2.0**-52, last_place(dtype)[0] / 1000)


def judge_by_golden(pair: Pair, golden: torch.Tensor) -> tuple[Totals, GoldenErrors | None]:
    """Return the candidate's errors, and both sides' together; None for dtypes without a last place."""
    if is_exact(pair.found.dtype):
        return judge_chunks(pair.found, partial(_judge_exactly, pair, golden), pair.rules.poisoned), None
    elements = max(pair.found.numel(), 1)
    rtol = pair.rules.tolerance.of(pair.found.dtype)[0] if elements < FEW else 0.0
    reference = judge_chunks(pair.expected, partial(_judge_reference, pair, golden))
    judge = partial(_judge_golden, pair, golden, reference.max_abs_diff, rtol)
    seen = judge_chunks(pair.found, judge, pair.rules.poisoned)
    places = judge_chunks(golden, partial(_judge_last_place, pair, golden))
    reference_rms, place_rms = (math.sqrt(each.squares / elements) for each in (reference, places))
    rms = place_rms / torch.finfo(pair.found.dtype).eps
    errors = GoldenErrors(
        max_abs_diff=seen.max_abs_diff,
        rms_diff=math.sqrt(seen.squares / elements),
        reference_max_abs_diff=reference.max_abs_diff,
        reference_rms_diff=reference_rms,
        allowed_rms_diff=max(pair.rules.golden_factor * reference_rms + place_rms, rtol * rms),
        factor=pair.rules.golden_factor,
        rms=rms,
        rtol=rtol,
    )
    return seen, errors


def _judge_exactly(pair: Pair, golden: torch.Tensor, block: ChunkRange) -> JudgedChunk:
    """Allow only the reference's element or golden's: for dtypes without a last place."""
    found, expected = pair.found[block], pair.expected[block]
    truth = golden[block].to(device=found.device, dtype=found.dtype)
    diff = distances(found, expected, pair.rules.tolerance.equal_nan)
    diff = diff.masked_fill(distances(found, truth, pair.rules.tolerance.equal_nan) == 0, 0.0)
    return diff, diff.new_zeros(()).expand_as(diff)


def _judge_reference(pair: Pair, golden: torch.Tensor, block: ChunkRange) -> JudgedChunk:
    """Return the reference's errors; 0 where an error means nothing, so that it excuses no other element."""
    found, truth = as_numbers(pair.expected[block]), as_numbers(golden[block].to(pair.expected.device))
    diff = distances(found, truth, equal_nan=True).masked_fill(_is_beyond(pair.found.dtype, found, truth), 0.0)
    return diff, diff


def _judge_golden(
    pair: Pair, golden: torch.Tensor, reference_max: float, rtol: float, block: ChunkRange
) -> JudgedChunk:
    """Allow `golden_factor` times the reference's largest error and one unit in the last place, or `rtol` of golden."""
    found, expected = as_numbers(pair.found[block]), as_numbers(pair.expected[block])
    chunk = golden[block].to(pair.found.device)
    truth, rounded = as_numbers(chunk), as_numbers(chunk.to(pair.found.dtype))
    equal_nan = pair.rules.tolerance.equal_nan
    same = (distances(found, expected, equal_nan) == 0) | (distances(found, rounded, equal_nan) == 0)
    beyond = _is_beyond(pair.found.dtype, found, truth)
    diff = distances(found, truth, equal_nan).masked_fill(beyond & same, 0.0)
    allowed = pair.rules.golden_factor * reference_max + last_places(pair.found.dtype, magnitudes(truth))
    return diff, torch.maximum(allowed, rtol * magnitudes(truth)) if rtol else allowed


def _is_beyond(dtype: torch.dtype, found: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Tell for each element whether its error means nothing: it is not finite, or golden exceeds the dtype's range."""
    return ~(found.isfinite() & (truth.abs() <= torch.finfo(dtype).max))


def _judge_last_place(pair: Pair, golden: torch.Tensor, block: ChunkRange) -> JudgedChunk:
    """Return one unit in the last place for each element, as if it were its error."""
    units = last_places(pair.found.dtype, magnitudes(golden[block].to(pair.found.device)))
    return units, units
