"""The check that a candidate's outputs agree with its reference's, before and after it is timed."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from pytest_gpubench.bench.output_rules import (
    differentiable,
    lent_memory,
    named_tensors,
    refuse_opaque_tensors,
    refuse_strange_tensors,
)
from pytest_gpubench.bench.switches import readings, refuse_switching
from pytest_gpubench.correctness import (
    Difference,
    Tolerance,
    Variation,
    aliases,
    changed,
    compare_outputs,
    flatten,
    float64_by_default,
    poison_free_memory,
    snapshot,
    widened,
)
from pytest_gpubench.correctness.constant_outputs import extents_of
from pytest_gpubench.correctness.leaves import inputs_of
from pytest_gpubench.correctness.memory import overlaps
from pytest_gpubench.correctness.snapshot import Snapshot
from pytest_gpubench.correctness.variation import Way
from pytest_gpubench.errors import (
    BadRequest,
    GpuBenchError,
    UnfairComparison,
    WrongResult,
    annotate,
    annotating,
)
from pytest_gpubench.timing.calls import GRADIENT_SEED, Arguments, Backward, name_of, refuse_lazy, upstream_gradient
from pytest_gpubench.units import repr_of

__tracebackhide__ = True

Function = Callable[..., object]
Golden = Literal["float64"] | Function | None
ROUNDING_HINT = 'if only rounding differs, compare with golden="float64", or give rtol= and atol='


def check_golden(golden: object, factor: object) -> None:
    """Raise BadRequest for a golden that is neither "float64" nor a function, and for a factor without one."""
    if golden is not None and golden != "float64" and not callable(golden):
        raise BadRequest(f"golden= must be 'float64' or a function, found {repr_of(golden)}")
    if golden is None and factor is not None:
        raise BadRequest(f"golden_factor={repr_of(factor)} is given without golden=: give both, or none")


@dataclass(frozen=True)
class Ran:
    """The outputs of a function, and the gradients of its inputs if they were asked for."""

    outputs: object
    gradients: dict[str, torch.Tensor | None]


@dataclass(frozen=True)
class VariedArguments(Arguments):
    """Arguments of each rep, with other values while they are varied."""

    variation: Variation = field(default_factory=Variation)

    @classmethod
    def of(cls, plain: Arguments) -> "VariedArguments":
        """Return arguments that can be varied."""
        return cls(plain.args, plain.kwargs, plain.setup)

    def fresh(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments of the next rep."""
        arguments = super().fresh()
        self.variation.apply(arguments)
        return arguments


@dataclass(frozen=True)
class Agreement:
    """The rules by which outputs are compared."""

    reference: Function
    arguments: VariedArguments
    tolerance: Tolerance
    golden: Golden
    golden_factor: float | None
    grads: bool
    """True if gradients have to be compared; where `backward` is timed they are, if any input requires one."""
    backward: Backward
    device: torch.device
    remarks: list[str] = field(default_factory=list)
    disproved: set[str] = field(default_factory=set)
    """Remarks that do not hold, which another example of a search may have led to."""
    """Remarks on the functions."""
    other_seed: int = field(default_factory=lambda: secrets.randbits(31))
    """The seed of the random numbers that calls draw while values are varied; it cannot be known beforehand."""
    known: list[Snapshot] = field(default_factory=list)
    """The inputs as they were before the first call, if each call is given the same."""

    def __post_init__(self) -> None:
        check_golden(self.golden, self.golden_factor)

    @property
    def variation(self) -> Variation:
        """The variation of the arguments' values."""
        return self.arguments.variation

    def run_reference(self) -> Ran:
        """Run the reference; raise UnfairComparison if it overwrites what the candidate would be given."""
        expected = self._run(self.reference, f"the reference {name_of(self.reference)!r}")
        if all(leaf is None for _, leaf in flatten(expected.outputs)):
            raise BadRequest("there is nothing to compare: the reference returns no output; let it return its results")
        return expected

    def refuse_flat(self, expected: Ran) -> None:
        """Raise UnfairComparison if one number would pass for every output; add a remark if it would for some."""
        if self.golden is not None:
            return
        extents = list(extents_of(expected.outputs, self.tolerance))
        flat = [each.sentence for each in extents if each.is_flat]
        if flat and all(each.is_flat or (each.is_constant and each.allows_zeros) for each in extents):
            raise UnfairComparison(
                f'a candidate that computes nothing would pass: {"; ".join(flat)} (or golden="float64")'
            )
        self.remarks.extend(f"a candidate that computes nothing would pass there: {sentence}" for sentence in flat)

    def check(self, name: str, candidate: Function, expected: Ran, when: str = "") -> tuple[Difference, ...]:
        """Run a candidate in poisoned memory; return how each of its outputs differs, or raise WrongResult."""
        found = self._run(candidate, f"{name!r}", expected=expected)
        refuse_strange_tensors(name, found.outputs, expected.outputs)
        differences = self.compare(found, expected, poisoned=True)
        self.require(name, differences, when)
        return differences

    def require(self, name: str, differences: Sequence[Difference], when: str) -> None:
        """Raise WrongResult naming every output that differs by more than is allowed."""
        failed = [difference for difference in differences if not difference.passed]
        if not failed:
            return
        if not self._are_arguments_repeated():
            raise UnfairComparison(
                "setup= makes other arguments each time, so that no outputs can be compared: draw them from torch's "
                "global generators, which are reset before each call, or from one that setup seeds"
            )
        hint = [ROUNDING_HINT] if all(difference.may_be_rounding for difference in failed) else []
        raise WrongResult(f"{name} is wrong{when}: " + "; ".join([*(each.sentence for each in failed), *hint]))

    def compare(self, found: Ran, expected: Ran, poisoned: bool = False) -> tuple[Difference, ...]:
        """Return the differences of outputs and gradients."""
        golden = self._run_golden(expected)
        differences = compare_outputs(
            found.outputs,
            expected.outputs,
            self.tolerance,
            golden=golden and golden.outputs,
            golden_factor=self.golden_factor,
            poisoned=poisoned,
        )
        self.remarks[:] = dict.fromkeys([*self.remarks, *filter(None, (each.doubt for each in differences))])
        return differences + tuple(
            replace(difference, name=f"grad {name}")
            for name in expected.gradients
            for difference in compare_outputs(
                found.gradients.get(name),
                expected.gradients[name],
                self.tolerance,
                golden=golden and golden.gradients.get(name),
                golden_factor=self.golden_factor,
            )
        )

    def _run_golden(self, expected: Ran) -> Ran | None:
        """Run golden; it has gradients where it is "float64", as its inputs are in float64 too."""
        if self.golden is None:
            return None
        args, kwargs = self.fresh()
        if self.golden == "float64":
            args, kwargs = widened(args, kwargs)
            with float64_by_default():
                outputs = self.reference(*args, **kwargs)
                # an output of a timed call may be a copy, which has no gradient
                gradients = self._gradients(outputs, args, kwargs, expected.outputs) if expected.gradients else {}
                return Ran(outputs, gradients)
        before = self.inputs_as_given()
        outputs = self.golden(*args, **kwargs)
        self.refuse_overwriting("golden=", before)
        if all(leaf is None for _, leaf in flatten(outputs)):
            raise BadRequest("golden= returns no output: let it return what the reference does, more precisely")
        return Ran(outputs, {})

    def inputs_as_given(self) -> Snapshot | None:
        """Return a snapshot of the arguments as given; None where each call gets its own."""
        if self.arguments.setup is not None or self.variation.way != "as given":
            return None
        if not self.known:
            self.known.append(snapshot(self.arguments.args, self.arguments.kwargs))
        return self.known[0]

    def refuse_overwriting(self, who: str, before: "Snapshot | None") -> None:
        """Raise UnfairComparison naming the inputs that have changed."""
        if before is not None and (names := changed(before)):
            raise UnfairComparison(
                f"{who} overwrote {', '.join(names)}: the next call would get other inputs; "
                "give setup=, which makes new arguments for each call"
            )

    def _run(self, function: Function, who: str, expected: Ran | None = None) -> Ran:
        """Run a function; a candidate, for which outputs are expected, in memory poisoned at the last moment."""
        args, kwargs = self.fresh()
        before, switches = self.inputs_as_given(), readings()
        if expected is not None:
            poison_free_memory(expected.outputs, self.device)
        try:
            outputs = function(*args, **kwargs)
        except GpuBenchError:
            raise
        except Exception as error:
            annotate(error, f"gpu_bench: raised by {who}, whose outputs were to be compared")
            raise
        refuse_lazy(outputs, name_of(function))
        refuse_opaque_tensors(who, outputs)
        refuse_switching(who, switches)
        self.refuse_overwriting(who, before)
        if expected is not None:
            self._refuse_shared_memory(who, outputs, expected.outputs, args, kwargs)
        return Ran(outputs, self._gradients(outputs, args, kwargs, outputs))

    def _refuse_shared_memory(
        self, who: str, outputs: object, expected: object, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None:
        """Raise UnfairComparison for an output that is memory of an input, unlike the reference's, or of the latter."""
        if self.arguments.setup is None and (shared := aliases(outputs, args, kwargs)):
            if not aliases(self.reference(*args, **kwargs), args, kwargs):
                output, argument = shared[0]
                raise UnfairComparison(
                    f"{output} of {who} is memory of {argument}, the reference's is its own: return a copy"
                )
        elif lent := overlaps(flatten(outputs), flatten(expected)):
            raise UnfairComparison(lent_memory(who, *lent[0]))

    def _gradients(
        self, outputs: object, args: Sequence[object], kwargs: Mapping[str, object], like: object
    ) -> dict[str, torch.Tensor | None]:
        """Return the gradient of every input that requires one, under the same upstream gradient for all arms.

        like: outputs in whose dtypes the upstream gradient is drawn.
        """
        if not self.grads and self.backward == "forward":
            return {}
        leaves = dict(differentiable(inputs_of(args, kwargs)))
        roots = [tensor for _, tensor in differentiable(flatten(outputs))]
        if not leaves or not roots:
            if not self.grads:
                return {}
            raise BadRequest("grads=True compares gradients of the inputs, but none requires one: set requires_grad")
        drawn = [
            upstream_gradient(root, GRADIENT_SEED + index)
            for index, (_, root) in enumerate(differentiable(flatten(like)))
        ]
        upstream = [one.to(root.dtype) for one, root in zip(drawn, roots, strict=True)]
        with annotating(lambda: "gpu_bench: raised by torch.autograd.grad, with which gradients are compared"):
            found = torch.autograd.grad(roots, list(leaves.values()), upstream, allow_unused=True)
        return dict(zip(leaves, found, strict=True))

    def vary(self, way: Way) -> None:
        """Give every call other values in the same memory, until the variation ends."""
        if self.arguments.setup is None:
            self.variation.begin(way, self.fresh(), self.fresh())
        else:
            self.variation.begin_with_setup(way, self._plain_arguments)

    def _plain_arguments(self) -> tuple[object, ...]:
        self.seed()
        return super(VariedArguments, self.arguments).fresh()

    def seed(self) -> None:
        """Let the next call and its `setup` draw the same random numbers as the last, as for dropout."""
        number = GRADIENT_SEED if self.variation.way == "as given" else self.other_seed
        torch.default_generator.manual_seed(number)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(number)

    @contextmanager
    def own_random_numbers(self) -> Iterator[None]:
        """Leave torch's generators as they were."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            yield

    def fresh(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return arguments, the same each time where `setup` draws them at random."""
        self.seed()
        return self.arguments.fresh()

    def _are_arguments_repeated(self) -> bool:
        """Tell whether `setup` makes the same tensors again."""
        if self.arguments.setup is None:
            return True
        first, second = named_tensors(self.fresh()), named_tensors(self.fresh())
        return all(each.passed for each in compare_outputs(first, second, Tolerance(0, 0, equal_nan=True)))
