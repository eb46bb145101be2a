"""Compare a candidate's outputs with the reference's, one by one."""

from numbers import Number as AnyNumber
from typing import Any

import torch

from pytest_gpubench.correctness.difference import Difference, GoldenErrors, Number
from pytest_gpubench.correctness.elementwise import Pair, Rules, as_numbers, judge_by_tolerance
from pytest_gpubench.correctness.golden import golden_components, golden_leaves, judge_by_golden
from pytest_gpubench.correctness.leaves import components, flatten, tensor_of, wraps_tensors
from pytest_gpubench.correctness.tolerance import Tolerance, is_exact
from pytest_gpubench.units import repr_of

GOLDEN_FACTOR = 2.0
"""The multiple of the reference's error that a candidate may have by default."""


def compare_outputs(
    candidate: object,
    reference: object,
    tolerance: Tolerance | None = None,
    *,
    golden: object = None,
    golden_factor: float | None = None,
    poisoned: bool = False,
    briefly: bool = False,
) -> tuple[Difference, ...]:
    """Compare what two functions returned, leaf by leaf; return a difference for each, passed or not.

    An element passes where it equals the reference's (infinities of one sign do), or is within the tolerance of it. NaN
    passes only where both have it and `equal_nan` is set. Arrays of NumPy count as tensors of their dtypes, two floats
    or complex numbers as float64 and complex128 ones; all other leaves that are no tensors must be equal. Lists and
    tuples are alike. Where there are no leaves, there are no differences, and `None` equals `None`: the caller decides
    whether that proves anything.

    golden: outputs of the same structure, in float64 or at least a thousand times finer than the candidate's dtype.
    Candidate and reference are then judged by their errors against it, and only the tolerance's `equal_nan` counts. The
    candidate passes if no element's error exceeds `golden_factor` times the reference's largest error plus one unit in
    the last place (of the candidate's dtype, at golden's magnitude), and its RMS error does not exceed `golden_factor`
    times the reference's plus the RMS of that unit. Where the reference happens to be exact, every element may thus be
    off by its last place; one of few, whose errors are chance, also by the dtype's usual rtol. An element that is not
    finite, or for which golden is beyond the dtype's range (float16 overflows where float64 does not), also passes if
    it is the reference's or golden's rounded to the dtype, and the reference's error there does not count. An element
    without a last place (integers, bools) must be the reference's or golden's. A `golden_factor` of None is 2.

    poisoned: whether `poison_free_memory` filled free memory before the candidate ran; wrong elements that still hold
    those bytes are counted.

    briefly: whether only `passed` is to be right, for which a part of a wrong output is enough.

    Raises BadRequest for a golden that does not fit, and for rtol or atol beside golden.
    """
    rules = Rules(
        tolerance or Tolerance(), float(golden_factor or GOLDEN_FACTOR), golden is not None, poisoned, briefly
    )
    found, expected = dict(flatten(candidate)), dict(flatten(reference))
    truths = {} if golden is None else golden_leaves(golden, expected, rules)
    differences: list[Difference] = []
    for name in [*expected, *(name for name in found if name not in expected)]:
        if name in found and name in expected:
            differences += _compare_leaves(name, found[name], expected[name], truths.get(name), rules)
        else:
            what = "returns it, the reference does not" if name in found else "does not return it"
            differences.append(Difference(name, passed=False, problem=f"the candidate {what}"))
    return tuple(differences)


def _compare_leaves(name: str, found: object, expected: object, golden: object, rules: Rules) -> list[Difference]:
    found, expected, golden = _as_tensors(found, expected, golden)
    if not (isinstance(found, torch.Tensor) and isinstance(expected, torch.Tensor)):
        return [_compare_objects(name, found, expected)]
    problem = _tensor_problem(found, expected)
    if problem is not None:
        return [Difference(name, passed=False, elements=found.numel(), problem=problem)]
    parts = [components(name, one.detach()) for one in (found, expected)]
    truths = golden_components(name, golden, parts[1]) if rules.has_golden else [None] * len(parts[1])
    return [
        _compare_parts(part, Pair(one, other, truth, rules))
        for (part, one), (_, other), truth in zip(*parts, truths, strict=True)
    ]


def _as_tensors(*leaves: object) -> tuple[object, ...]:
    """Return the leaves, arrays of NumPy and floats as tensors: they are compared within a tolerance too.

    A number of Python's own has the dtype of a float of NumPy's beside it.
    """
    if any(isinstance(leaf, torch.Tensor) for leaf in leaves[:2]):
        return leaves
    made = [tensor_of(leaf, to_compare=True) for leaf in leaves]
    dtypes = [each.dtype for each in made[:2] if each is not None and not each.ndim and not is_exact(each.dtype)]
    if dtypes or all(isinstance(leaf, (float, complex)) for leaf in leaves[:2]):
        dtype = dtypes[0] if dtypes else torch.float64
        if any(isinstance(leaf, complex) for leaf in leaves[:2]) and not dtype.is_complex:
            dtype = torch.complex128
        numbers = (bool, int, float, complex)
        made = [
            torch.tensor(leaf, dtype=dtype) if each is None and isinstance(leaf, numbers) else each
            for leaf, each in zip(leaves, made, strict=True)
        ]
    if made[0] is None or made[1] is None:
        return leaves
    return tuple(leaf if each is None else each for leaf, each in zip(leaves, made, strict=True))


def _compare_objects(name: str, found: object, expected: object) -> Difference:
    kinds = ["a tensor" if isinstance(one, torch.Tensor) else type(one).__name__ for one in (found, expected)]
    if "a tensor" in kinds:
        advice = ": let it return its output, undetached if gradients are compared" if found is None else ""
        return Difference(name, passed=False, problem=f"found {kinds[0]}, expected {kinds[1]}{advice}")
    try:
        passed = _are_equal(found, expected)
    except Exception as error:
        return Difference(name, passed=False, problem=f"{kinds[0]} and {kinds[1]} cannot be compared: {error}")
    problem = f"found {repr_of(found):.80}, expected {repr_of(expected):.80}"
    return Difference(name, passed, problem=None if passed else problem)


def _are_equal(one: Any, other: Any) -> bool:
    """Tell whether two values of one class, and of one shape where they are arrays, or two numbers, are equal."""
    is_same_kind = type(one) is type(other) and getattr(one, "shape", None) == getattr(other, "shape", None)
    equal: Any = (is_same_kind or (_is_number(one) and _is_number(other))) and one == other
    return bool(equal.all() if hasattr(equal, "all") else equal)


def _is_number(value: object) -> bool:
    """Tell whether a value is a number of Python's or NumPy's own: one of another class may be equal to anything."""
    is_one = isinstance(value, AnyNumber) or type(value).__name__ in ("bool", "bool_")  # NumPy's is no Number
    return is_one and type(value).__module__ in ("builtins", "numpy")


def _tensor_problem(found: torch.Tensor, expected: torch.Tensor) -> str | None:
    """Return the reason why the elements of two tensors cannot be compared; None if they can."""
    pairs = {
        "shape": (tuple(found.shape), tuple(expected.shape)),
        "dtype": (found.dtype, expected.dtype),
        "layout": (found.layout, expected.layout),
        "wrapper": tuple(type(one).__name__ if wraps_tensors(one) else None for one in (found, expected)),
        "device": (found.device, expected.device),
    }
    odd = [f"{what} {one}, expected {other}" for what, (one, other) in pairs.items() if one != other]
    if found.device != expected.device:
        odd[-1] += ": let both compute on one device"
    if not odd and found.is_meta:
        odd = ["it is on device meta, which holds no elements to compare"]
    return "; ".join(odd) or None


def _compare_parts(name: str, pair: Pair) -> Difference:
    """Compare two dense tensors; those of sparse tensors may differ in shape."""
    problem = _tensor_problem(pair.found, pair.expected)
    if problem is not None:
        return Difference(name, passed=False, elements=pair.found.numel(), problem=problem)
    golden: GoldenErrors | None = None
    if pair.golden is None:
        seen = judge_by_tolerance(pair)
    else:
        seen, golden = judge_by_golden(pair, pair.golden)
    expected = pair.expected if golden is None or pair.golden is None else pair.golden
    worst: dict[str, Any] = {}
    if seen.where is not None:
        worst = {"where": seen.where, "abs_diff": seen.abs_diff, "allowed": seen.allowed}
        worst |= {"found": _element(pair.found, seen.where), "expected": _element(expected, seen.where)}
    return Difference(
        name,
        passed=not seen.mismatched and (golden is None or golden.rms_diff <= golden.allowed_rms_diff),
        max_abs_diff=seen.max_abs_diff,
        mismatched=seen.mismatched,
        elements=pair.found.numel(),
        unwritten=seen.unwritten,
        nans=seen.nans,
        golden=golden,
        **worst,
    )


def _element(tensor: torch.Tensor, where: tuple[int, ...]) -> Number:
    one = tensor[where]
    return as_numbers(one).item() if one.dtype.is_floating_point or one.dtype.is_complex else one.item()
