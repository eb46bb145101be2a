"""Floating-point operations of a call, as torch counts them."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_gpubench.correctness.tolerance import dtype_name

Formula = Callable[..., int]

ON_THE_CPU = {
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "_scaled_dot_product_flash_attention_backward",
}
"""Attention operators that torch does not count, and those that take as many operations."""


@dataclass(frozen=True)
class Counted:
    """The operations that torch counted in a call."""

    flops: int | None
    """A multiply-add counts as two; None where torch counted none, or could not."""
    dtype: str | None
    """The dtype of most of their inputs, under autocast its own: `bfloat16`; None where none were counted."""


def counted(
    function: Callable[..., object], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
) -> Counted:
    """Run a function once and count the operations of its matmuls, convolutions and attention; never raise.

    A backward run inside counts too. Elementwise work, reductions and custom kernels do not count, and a function of
    only those is unknown, not free. Masked attention counts in full, causal attention too: a kernel that skips what is
    masked has half as much to do. A function that torch.compile made is counted as it was before.
    """
    try:
        return _counted(_eager(function), args, dict(kwargs or {}))
    except Exception:  # the measurement that follows raises it too
        return Counted(None, None)


def _counted(function: Callable[..., object], args: Sequence[object], kwargs: dict[str, object]) -> Counted:
    from torch.utils.flop_counter import FlopCounterMode

    by_dtype: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the timed calls give the same warnings
        mode = FlopCounterMode(display=False, custom_mapping=_noting(by_dtype))
        with mode:
            function(*args, **kwargs)
    total = int(mode.get_total_flops())
    if not total:
        return Counted(None, None)
    return Counted(total, by_dtype.most_common(1)[0][0] if by_dtype else None)


def _eager(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function that torch.compile was given: counting would compile it another time."""
    for name in ("_torchdynamo_orig_callable", "_orig_mod"):
        found: Callable[..., object] | None = getattr(function, name, None)
        if callable(found):
            return found
    return function


def _noting(by_dtype: Counter[str]) -> dict[Any, Formula]:
    """Return torch's formulas, each adding what it counts to the dtype of its first tensor."""
    from torch.utils.flop_counter import flop_registry

    formulas: dict[Any, Formula] = dict(flop_registry)
    for name, same in ON_THE_CPU.items():
        operator, counted_as = getattr(torch.ops.aten, name, None), getattr(torch.ops.aten, same)
        if operator is not None and counted_as in flop_registry:
            formulas.setdefault(operator, flop_registry[counted_as])

    def noted(formula: Formula) -> Formula:
        def count(*args: object, **kwargs: object) -> int:
            flops = formula(*args, **kwargs)
            dtype = next((dtype_name(each.dtype) for each in args if isinstance(each, torch.Tensor)), None)
            if dtype is not None:
                by_dtype[dtype] += flops
            return flops

        count._get_raw = True  # type: ignore[attr-defined] # torch then passes the tensors themselves, not their shapes
        return count

    return {operator: noted(formula) for operator, formula in formulas.items()}
