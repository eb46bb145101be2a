"""KernelBench problems, unmodified: `Model`, `get_inputs` and `get_init_inputs`; a candidate defines `ModelNew`.

Both models are built on the CPU after torch.manual_seed with the same seed, new for each spec that is read, as
KernelBench does: their parameters agree where both create them in the same order. Parameters are not copied.
"""

import copy
import io
import pickle
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.spec.model import Entry, Spec, draw_inputs, load_source, required
from pytest_gpubench.judge.spec.own_files import OwnFiles
from pytest_gpubench.judge.spec.python_file import rules_of

if TYPE_CHECKING:
    import torch

NAMES = ("Model", "get_inputs", "get_init_inputs")
GOLDEN_FACTOR = 4.0
"""The error allowed, as a multiple of the reference's own against a float64 run.

KernelBench allows 1e-4 + 1e-4 * |reference|, which zeros keep where outputs are small, as those of a softmax are.
"""


class PlacedModule:
    """A module that moves to the device of its inputs in its first call; its parameters require no gradients."""

    def __init__(self, module: "torch.nn.Module") -> None:
        self.module = module.requires_grad_(False)
        self._is_placed = False

    def __call__(self, *inputs: Any) -> Any:
        """Run the module."""
        import torch

        from pytest_gpubench.correctness import flatten

        if not self._is_placed:
            devices = [leaf.device for _, leaf in flatten(inputs) if isinstance(leaf, torch.Tensor)]
            self.module.to(devices[0] if devices else "cpu")
            self._is_placed = True
        return self.module(*inputs)


class _Sent(pickle.Unpickler):
    """Reads what the candidate's process is sent; raises BadRequest for what it cannot import there."""

    path: Path

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function of a module that is not the spec's own."""
        found, file = super().find_class(module, name), getattr(sys.modules[module], "__file__", None)
        if file and OwnFiles(self.path.parent).holds(file):
            raise BadRequest(
                f"{self.path.name}: get_init_inputs() returns {name} of {Path(file).name}, which the candidate's "
                "process cannot import: return numbers, texts, tensors, lists and dicts"
            )
        return found


@dataclass(frozen=True)
class ModelEntry(Entry):
    """The entry of a module: its class, its initial arguments, and the seed of its parameters."""

    arguments: tuple[Any, ...] = ()
    seed: int = 0

    def load(self, path: Path) -> Callable[..., Any]:
        """Run the candidate's file and return its module."""
        return PlacedModule(_build_model(required(load_source(path), path, *self.names), self.arguments, self.seed))


def _build_model(model: Callable[..., Any], arguments: tuple[Any, ...], seed: int) -> Any:
    """Return a module whose parameters are drawn from this seed."""
    import torch

    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return model(*arguments)


def spec_of_problem(module: ModuleType, path: Path) -> Spec:
    """Return the spec of a KernelBench problem."""
    from pytest_gpubench.correctness import float64_by_default, widened

    model, get_inputs, get_init_inputs = (required(module, path, name) for name in NAMES)
    rules = rules_of(module, path)
    seed = secrets.randbits(31)
    arguments = tuple(draw_inputs(get_init_inputs, seed, "cpu"))
    sent = _Sent(io.BytesIO(pickle.dumps(arguments)))
    sent.path = path
    sent.load()
    reference = PlacedModule(_build_model(model, arguments, seed))
    wide = cache(lambda: PlacedModule(copy.deepcopy(reference.module).double()))

    def golden(*inputs: Any) -> Any:
        with float64_by_default():
            return wide()(*widened(inputs)[0])

    rules["tolerance"] = rules["tolerance"] or {"golden": golden, "golden_factor": GOLDEN_FACTOR}
    return Spec(
        name="ModelNew",
        cases=({},),
        reference=reference,
        inputs=lambda case, seed, device: draw_inputs(get_inputs, seed, device),
        entry=ModelEntry(("ModelNew",), arguments, seed),
        **rules,
    )
