"""What a call of a comparison did: its outputs, gradients, and the arguments that it changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from pytest_gpubench.correctness import Difference


@dataclass(frozen=True)
class Ran:
    """The outputs of a function, and the gradients of its inputs if they were asked for."""

    outputs: object
    gradients: dict[str, torch.Tensor | None]
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    """The arguments that calls change, as this one left them, by name."""
    changed: tuple[str, ...] = ()
    """The names of those that it changed."""
    own: object = None
    """The outputs that are no memory of an argument that calls change, where others are; None where all are."""

    @property
    def own_outputs(self) -> object:
        """The outputs that have memory of their own."""
        return self.outputs if self.own is None else self.own

    @property
    def results(self) -> object:
        """All that it computed: its outputs, and the arguments that it changed."""
        return with_changed(self.outputs, self.inputs, self.changed)


def with_changed(outputs: object, inputs: Mapping[str, torch.Tensor], changed: Sequence[str]) -> object:
    """Return outputs, with the arguments that were changed where there are any."""
    return (outputs, {name: inputs[name] for name in changed}) if changed else outputs


def difference_of_changed(difference: Difference, name: str, found: Ran, expected: Ran) -> Difference:
    """Return the difference of an argument, which says so where only one of the calls changed it."""
    both = name in expected.changed and name in found.changed
    if difference.passed or both:
        return replace(difference, name=name)
    problem = (
        "the candidate leaves it as it was, the reference overwrites it"
        if name in expected.changed
        else "the candidate overwrites it, the reference leaves it alone"
    )
    return replace(difference, name=name, problem=f"{problem}; if that is meant, give overwrites=({name!r},)")
