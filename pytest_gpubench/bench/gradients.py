"""The gradients of a call's inputs, which are compared beside its outputs."""

from collections.abc import Mapping, Sequence

import torch

from pytest_gpubench.bench.output_rules import differentiable
from pytest_gpubench.correctness.leaves import flatten, inputs_of
from pytest_gpubench.errors import annotating
from pytest_gpubench.timing.calls import GRADIENT_SEED, upstream_gradient


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
