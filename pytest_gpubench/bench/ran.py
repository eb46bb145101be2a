"""The results of a call of a comparison: its outputs, gradients, and the arguments that it changed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from pytest_gpubench.bench.arguments import covers
from pytest_gpubench.bench.output_rules import differentiable
from pytest_gpubench.correctness import Difference
from pytest_gpubench.correctness.leaves import flatten, inputs_of, map_leaves
from pytest_gpubench.correctness.memory import copied
from pytest_gpubench.errors import annotating
from pytest_gpubench.timing.calls import GRADIENT_SEED, upstream_gradient

PRIVATE = r"""(?:[^[]|\[(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^]'"])*\])*?\._\w+"""
"""A private attribute of an argument, by its name: a key of a container, such as `['a._b']`, is none."""


@dataclass(frozen=True)
class Ran:
    """The outputs of a function, and the gradients of its inputs if they were asked for."""

    outputs: object
    gradients: dict[str, torch.Tensor | None]
    inputs: Mapping[str, object] = field(default_factory=dict)
    """The arguments that calls change, as this one left them, by name; None for what it dropped."""
    changed: tuple[str, ...] = ()
    """The names of those that it changed."""
    in_given: frozenset[str] = frozenset()
    """The names of the outputs that lie in memory of arguments, or in other memory that is put back."""
    in_arguments: frozenset[str] = frozenset()
    """The names of those that lie in memory of arguments."""
    left: frozenset[str] = frozenset()
    """The work that the results leave to whoever reads them, or left before they were copied."""

    @property
    def own_outputs(self) -> dict[str, object]:
        """The outputs that have memory of their own, by name."""
        return {name: leaf for name, leaf in flatten(self.outputs) if name not in self.in_given}

    def copied(self) -> "Ran":
        """Return copies of the results, which no later call writes over."""
        gradients = {name: copied(leaf) for name, leaf in self.gradients.items()}
        return replace(self, outputs=map_leaves(copied, self.outputs), gradients=gradients)

    @property
    def results(self) -> object:
        """All that it computed: its outputs, and the arguments that it changed."""
        return (self.outputs, {name: self.inputs[name] for name in self.changed}) if self.changed else self.outputs

    def lets_add(self, name: str, given: Mapping[str, object]) -> bool:
        """Tell whether another call may leave something where its arguments had nothing, such as a workspace.

        It is put back, so that no later call finds it. It may be in a private attribute that this call left alone.
        """
        private = re.match(PRIVATE, name)
        if private is None or given.get(name) is not None:
            return False
        return not any(covers(private[0], each) for each in self.changed)


def difference_of_changed(difference: Difference, name: str, found: Ran, expected: Ran) -> Difference:
    """Return the difference of an argument, which says so where only one of the calls changed or left it."""
    part = name + difference.name.removeprefix("out")  # of a sparse gradient
    if difference.passed:
        return replace(difference, name=part)
    if name in found.inputs and found.inputs[name] is None:
        problem = "the candidate leaves nothing there, the reference does"
    elif name in expected.inputs and expected.inputs[name] is None:
        problem = "the reference leaves nothing there, the candidate does"
    elif name in expected.changed and name in found.changed:
        return replace(difference, name=part)
    elif name in expected.changed:
        problem = "the candidate leaves it as it was, the reference overwrites it"
    else:
        problem = "the candidate overwrites it, the reference leaves it alone"
    return replace(difference, name=part, problem=f"{problem}; if that is meant, give overwrites=({name!r},)")


def input_gradients(
    outputs: object, args: Sequence[object], kwargs: Mapping[str, object], like: object
) -> dict[str, torch.Tensor | None]:
    """Return the gradient of every input that requires one, under the same upstream gradients in all calls.

    like: outputs in whose dtypes the upstream gradients are drawn. Empty where no input requires a gradient, or no
    output has one.
    """
    leaves = dict(differentiable(inputs_of(args, kwargs)))
    roots = [tensor for _, tensor in differentiable(flatten(outputs))]
    if not leaves or not roots:
        return {}
    drawn = [
        upstream_gradient(root, GRADIENT_SEED + index) for index, (_, root) in enumerate(differentiable(flatten(like)))
    ]
    upstream = [one.to(root.dtype) for one, root in zip(drawn, roots, strict=True)]
    with annotating(lambda: "gpu_bench: raised by torch.autograd.grad, with which gradients are compared"):
        found = torch.autograd.grad(roots, list(leaves.values()), upstream, allow_unused=True)
    return dict(zip(leaves, found, strict=True))
