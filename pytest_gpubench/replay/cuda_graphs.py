"""CUDA graphs that torch.compile makes, as with mode="reduce-overhead": their memory is their own."""

import sys
from typing import Any

MODULE = "torch._inductor.cudagraph_trees"
"""Not public. Every torch.compile imports it."""


def has_cuda_graphs() -> bool:
    """Tell whether some have been made in this process."""
    return bool(_managers())


def used_cuda_graphs() -> bool:
    """Tell whether one was made or replayed since `torch.compiler.cudagraph_mark_step_begin` was called last."""
    step = getattr(getattr(sys.modules.get(MODULE), "MarkStepBox", None), "mark_step_counter", None)
    return any(step is None or getattr(manager, "current_gen", step) == step for manager in _managers())


def _managers() -> list[Any]:
    """Return what manages the graphs of each GPU."""
    containers = getattr(getattr(sys.modules.get(MODULE), "local", None), "tree_manager_containers", {})
    found = [getattr(each, "tree_manager", each) for each in containers.values()]
    return [manager for manager in found if manager is not None]
