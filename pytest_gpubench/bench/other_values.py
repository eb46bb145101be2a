"""Give calls other values in the same memory, for which the reference returns something else."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.output_rules import has_nan, is_finite, named_tensors
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness import Variation, compare_outputs
from pytest_gpubench.correctness.variation import Way, tensors_for, tensors_in
from pytest_gpubench.errors import UnfairComparison
from pytest_gpubench.units import name_of

UNVARIED = (
    "the reference {} returned the same when the values of its inputs were to change, so a candidate that remembers "
    "its result would not be noticed: pass tensors with differing elements as args=, not in a closure"
)


@contextmanager
def other_values(agreement: Agreement, expected: Ran) -> Iterator[bool]:
    """Give every call other values in the same memory; yield whether the reference then returns something else.

    It does not where it refuses them, where its outputs cease to be finite, or where nothing can be varied: a remark
    says so. Raises UnfairComparison where only the tolerance hides a change.
    """
    try:
        hidden: list[str] = []
        told = any(_are_other_values(agreement, way, expected, hidden) for way in _ways(agreement))
        if hidden and not told:
            raise UnfairComparison(hidden[0])
        # upstream gradients are varied too; single numbers, as a search draws them, have no order to change
        unvaried = UNVARIED.format(name_of(agreement.reference))
        if told:
            agreement.disproved.add(unvaried)
        elif agreement.backward == "forward" and not _has_single_numbers(agreement):
            agreement.remarks.append(unvaried)
        yield told
    finally:
        agreement.end_variation()


def _ways(agreement: Agreement) -> Iterator[Way]:
    """Yield the ways that change the arguments; one where none does, as it changes the random numbers too."""
    given = agreement.fresh()
    ways = (way for way in Variation.WAYS if tensors_for(way, given))
    yield next(ways, Variation.WAYS[0])
    yield from ways


def _has_single_numbers(agreement: Agreement) -> bool:
    """Tell whether the arguments' tensors have one element each, or none."""
    tensors = tensors_in(agreement.fresh())
    return bool(tensors) and all(tensor.numel() < 2 for tensor in tensors)


def _are_other_values(agreement: Agreement, way: Way, expected: Ran, hidden: list[str]) -> bool:
    """Tell whether the reference returns something else; add to `hidden` what only the tolerance hides."""
    try:
        agreement.vary(way)
        args, kwargs = agreement.fresh()
        outputs = agreement.with_changed(agreement.reference(*args, **kwargs), expected)
        differences = compare_outputs(outputs, expected.results, agreement.tolerance, briefly=True)
        are_finite = all(each.max_abs_diff is not None and math.isfinite(each.max_abs_diff) for each in differences)
        usable = are_finite or _is_comparable(agreement, outputs, expected.results)
    except Exception:  # the reference may refuse these values
        usable, differences = False, ()
    found = usable and any(not each.passed for each in differences)
    if usable and not found:
        hidden += _hidden_changes(agreement, outputs, expected.results)
    if not found:
        agreement.end_variation()
    return found


def _is_comparable(agreement: Agreement, outputs: object, expected: object) -> bool:
    """Tell whether outputs are finite, or not so only where the reference's were not finite to begin with."""
    before = named_tensors(expected)
    for name, found in named_tensors(outputs).items():
        if found.is_floating_point() and not is_finite(found):
            allowed = agreement.tolerance.equal_nan or not has_nan(found)
            if not allowed or name not in before or is_finite(before[name]):
                return False
    return True


def _hidden_changes(agreement: Agreement, outputs: object, expected: object) -> list[str]:
    """Return a sentence for each output that changed, by more than rounding can, within a tolerance that was given.

    A tolerance that was not given, and golden, are not what hides it.
    """
    tolerance = agreement.tolerance
    if tolerance.is_default or agreement.golden is not None:
        return []
    told = {each.name for each in compare_outputs(outputs, expected) if not each.passed and not each.may_be_rounding}
    return [
        f"{each.name} of the reference changes by {each.max_abs_diff:.3g} when the values of its inputs change, "
        f"which rtol={tolerance.rtol:g} and atol={tolerance.atol:g} allow: a result for other inputs would pass; give "
        'a smaller tolerance (the dtype\'s own would tell), or golden="float64"'
        for each in compare_outputs(outputs, expected, tolerance)
        if each.name in told
    ]
