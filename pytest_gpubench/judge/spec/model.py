"""The spec of a candidate, and the plain data that its process gets of it."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.spec.source import load_source, required

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

Case = Mapping[str, object]


@dataclass(frozen=True)
class Entry:
    """Plain data that says how the candidate's process gets its callable; it is pickled and holds nothing secret."""

    names: tuple[str, ...]
    """The functions that the candidate's file may define; the first that is there is taken."""

    def load(self, path: Path) -> Callable[..., Any]:
        """Run the candidate's file and return its callable; raise BadRequest where the file defines none.

        Only the candidate's process may call it. What the file itself raises goes through.
        """
        return required(load_source(path), path, *self.names)


@dataclass(frozen=True)
class Spec:
    """The rules that a candidate is judged by. Only the referee's process may hold one."""

    name: str
    """The function that the candidate's file has to define; "candidate" works too."""
    cases: tuple[Case, ...]
    """The parameters of each case; one empty mapping where there are none."""
    reference: Callable[[Case], Callable[..., Any]]
    """Returns the torch reference of a case, which is called with the case's inputs as `reference(*inputs)`."""
    inputs: Callable[[Case, int, "torch.device | str"], tuple[Any, ...]]
    """Returns new inputs on a device from a case and a seed: a tuple whose items are tensors, containers, numbers."""
    entry: Entry
    digest: str
    """The sha256 of the spec's text."""
    tolerance: Mapping[str, Any] | None = None
    """Keywords of `compare`: rtol, atol, equal_nan, golden, golden_factor; None takes torch's for the dtype."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the `perf` marker."""
    search: Any = None
    """A strategy of hypothesis that draws cases; None where only those listed are known."""


def digest_of(*texts: bytes) -> str:
    """Return the sha256 of texts, in order."""
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def drawn(make: Callable[[], Any], seed: int, device: "torch.device | str") -> tuple[Any, ...]:
    """Return the inputs that a spec's function makes, drawn from this seed, on a device."""
    import torch
    from torch.utils._pytree import tree_map_only

    gpus = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(gpus), torch.device(device):
        torch.default_generator.manual_seed(seed)  # without a GPU, torch.manual_seed takes 2 ms for stacks it formats
        if gpus:
            torch.cuda.manual_seed_all(seed)
        made = _made(make)
    values = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if all(type(each) is torch.Tensor and each.device == torch.device(device) for each in values):
        return values  # they are many: the general way takes 40 us
    return tuple(tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), values))


def _made(make: Callable[[], Any]) -> Any:
    """Return what a spec's function makes; raise BadRequest where it raises, unless the memory is full."""
    import torch

    try:
        return make()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise BadRequest(f"the spec's inputs cannot be made, {type(error).__name__}: {error}") from error
