"""How many floating-point operations a call takes, as torch counts them."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_gpubench.correctness.dtypes import name_of

__tracebackhide__ = True

Formula = Callable[..., int]

ON_THE_CPU = {
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "_scaled_dot_product_flash_attention_backward",
}
"""Attention that torch does not count, by what it counts the same way."""


@dataclass(frozen=True)
class Counted:
    """What torch counted in a call."""

    flops: int | None
    """A multiply-add being two; None where it counted none, or could not."""
    dtype: str | None
    """What most of them were computed from, autocast considered: `bfloat16`; None where none were counted."""


def counted(
    function: Callable[..., object], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
) -> Counted:
    """Run a function once and count the operations of its matmuls, convolutions and attention; never raise for it.

    A backward run within it counts. What torch does not know counts for nothing: elementwise work, reductions and
    kernels of one's own; a function of only those is not known, rather than free. Masked attention counts in full,
    causal too: a kernel that leaves out what is masked has half as much to do. A function that torch.compile made
    is counted as it was before.
    """
    try:
        return _counted(_eager(function), args, dict(kwargs or {}))
    except Exception:  # whatever it is, the measurement that follows meets it too, and says so
        return Counted(None, None)


def _counted(function: Callable[..., object], args: Sequence[object], kwargs: dict[str, object]) -> Counted:
    from torch.utils.flop_counter import FlopCounterMode

    by_dtype: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the timed calls warn of the same, outside of the counting
        mode = FlopCounterMode(display=False, custom_mapping=_noting(by_dtype))
        with mode:
            function(*args, **kwargs)
    total = int(mode.get_total_flops())
    if not total:
        return Counted(None, None)
    return Counted(total, by_dtype.most_common(1)[0][0] if by_dtype else None)


def _eager(function: Callable[..., object]) -> Callable[..., object]:
    """Return what torch.compile was given: counting would make it compile another time."""
    for name in ("_torchdynamo_orig_callable", "_orig_mod"):
        found: Callable[..., object] | None = getattr(function, name, None)
        if callable(found):
            return found
    return function


def _noting(by_dtype: Counter[str]) -> dict[Any, Formula]:
    """Return torch's formulas, each noting what it counts by the dtype of its first tensor."""
    import torch
    from torch.utils.flop_counter import flop_registry

    formulas: dict[Any, Formula] = dict(flop_registry)
    for name, same in ON_THE_CPU.items():
        operator, counted_as = getattr(torch.ops.aten, name, None), getattr(torch.ops.aten, same)
        if operator is not None and counted_as in flop_registry:
            formulas.setdefault(operator, flop_registry[counted_as])
    return {operator: _noted(formula, by_dtype) for operator, formula in formulas.items()}


def _noted(formula: Formula, by_dtype: Counter[str]) -> Formula:
    import torch

    def count(*args: object, **kwargs: object) -> int:
        flops = formula(*args, **kwargs)
        dtype = next((name_of(each.dtype) for each in args if isinstance(each, torch.Tensor)), None)
        if dtype is not None:
            by_dtype[dtype] += flops
        return flops

    count._get_raw = True  # type: ignore[attr-defined] # torch then passes the tensors themselves, not their shapes
    return count
