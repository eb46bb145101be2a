"""Other values for the inputs, in the same memory, for which the reference returns something else.

They are found before anything is timed. The timed calls of the reference, with the values as given, then write over
what it computed for the others, wherever it keeps that: no candidate can find it when it is given these values too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.output_rules import is_finite
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness import Variation, compare_outputs
from pytest_gpubench.correctness.chunks import blocks_of
from pytest_gpubench.correctness.leaves import flatten, tensors_of
from pytest_gpubench.correctness.variation import Way, tensors_for, tensors_in
from pytest_gpubench.errors import UnfairComparison
from pytest_gpubench.units import name_of

UNVARIED = (
    "the reference {} returned the same when the values of its inputs were to change, so a candidate that remembers "
    "its result would not be noticed: pass tensors with differing elements as args=, not in a closure"
)


@dataclass
class OtherValues:
    """Other values in the same memory, for which the reference returns something else."""

    agreement: Agreement
    expected: Ran
    hidden: list[str] = field(default_factory=list)
    """A sentence for each output that changes within a tolerance that was given."""

    def find(self) -> Way | None:
        """Return the first way to vary the inputs that tells; None, and a remark, where there is none.

        None is where the reference refuses the values of each, where its outputs cease to be finite, or where nothing
        can be varied; "as given" where upstream gradients can be. Raises UnfairComparison where only the tolerance
        hides a change.
        """
        agreement = self.agreement
        if (way := next(filter(self._tells_in, _ways(agreement)), None)) is not None:
            return way
        if self.hidden:
            raise UnfairComparison(self.hidden[0])
        if agreement.backward != "forward":
            return "as given"
        tensors = tensors_in(agreement.fresh())
        if not tensors or any(each.numel() >= 2 for each in tensors):  # single numbers of a search have no order
            agreement.remarks.append(UNVARIED.format(name_of(agreement.reference)))
        return None

    def _tells_in(self, way: Way) -> bool:
        """Tell whether the reference computes something else when the inputs are varied so."""
        agreement = self.agreement
        try:
            agreement.vary(way)
            args, kwargs = agreement.fresh()
            outputs = agreement.reference(*args, **kwargs)
            inputs = {} if agreement.memory is None else agreement.memory.contents(self.expected.changed)
            return self._tell(replace(self.expected, outputs=outputs, inputs=inputs).results)
        except Exception:  # it may refuse these values
            return False
        finally:
            agreement.end_variation()

    def _tell(self, results: object) -> bool:
        """Tell whether what the reference computes for other values is something else, and as finite as before."""
        agreement, before = self.agreement, self.expected.results
        differences = compare_outputs(results, before, agreement.tolerance, briefly=True)
        are_finite = all(each.max_abs_diff is not None and math.isfinite(each.max_abs_diff) for each in differences)
        if not are_finite and not _is_comparable(agreement, results, before):
            return False
        if all(each.passed for each in differences):
            self.hidden += _hidden_changes(agreement, results, before)
            return False
        agreement.disproved.add(UNVARIED.format(name_of(agreement.reference)))
        return True


def _ways(agreement: Agreement) -> Iterator[Way]:
    """Yield the ways that change the arguments; one where none does, as it changes the random numbers too."""
    given = agreement.fresh()
    ways = (way for way in Variation.WAYS if tensors_for(way, given))
    yield next(ways, Variation.WAYS[0])
    yield from ways


def _is_comparable(agreement: Agreement, outputs: object, expected: object) -> bool:
    """Tell whether outputs are finite, or not so only where the reference's were not finite to begin with."""
    before = dict(tensors_of(flatten(expected)))
    for name, found in tensors_of(flatten(outputs)):
        if found.is_floating_point() and not is_finite(found):
            blocks = [found[block] for block in blocks_of(found, temporaries=16)]
            allowed = agreement.tolerance.equal_nan or not any(bool(each.isnan().any()) for each in blocks)
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
