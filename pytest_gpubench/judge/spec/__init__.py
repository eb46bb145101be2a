"""The spec of a candidate: what it computes, on which inputs, how exactly and how fast."""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.spec.source import load_source

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

Case = Mapping[str, object]


@dataclass(frozen=True)
class Entry:
    """Plain data that says how the candidate's process gets its callable; it is pickled and holds nothing secret."""

    names: tuple[str, ...]
    """The functions that the candidate's file may define, the first that is there is taken."""

    def load(self, path: Path) -> Callable[..., Any]:
        """Run the candidate's file and return its callable; raise BadRequest where the file defines none.

        Only the candidate's process may call it. What the file itself raises goes through.
        """
        return found_in(load_source(path), self.names, path)


def found_in(module: ModuleType, names: tuple[str, ...], path: Path) -> Callable[..., Any]:
    """Return the first of these names that a candidate's module defines, or raise BadRequest."""
    for name in names:
        if callable(value := getattr(module, name, None)):
            return value  # type: ignore[no-any-return]
    wanted = " or ".join(names)
    defined = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    raise BadRequest(f"{path.name} must define {wanted}; it defines {', '.join(defined) or 'nothing that is called'}")


@dataclass(frozen=True)
class Spec:
    """What a candidate is judged by. Only the referee's process may hold one."""

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


def digest_of(*texts: bytes) -> str:
    """Return the sha256 of texts, in order."""
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def read_spec(path: "Path | str") -> Spec:
    """Read a spec; raise BadRequest or BadFile where it cannot be used."""
    path = Path(path)
    module = load_source(path)
    reference, inputs = module.reference, module.inputs
    name = "candidate" if reference.__name__ == "reference" else reference.__name__
    takes_case = len(inspect.signature(inputs).parameters) == 2

    def made(case: Case, seed: int, device: "torch.device | str") -> tuple[Any, ...]:
        import torch

        with torch.device(device):
            values = inputs(case, seed) if takes_case else inputs(seed)
        return values if isinstance(values, tuple) else (values,)

    return Spec(
        name=name,
        cases=tuple(getattr(module, "cases", ({},))),
        reference=lambda case: reference,
        inputs=made,
        entry=Entry(tuple(dict.fromkeys((name, "candidate")))),
        digest=digest_of(path.read_bytes()),
        tolerance=getattr(module, "tolerance", None),
        limits=getattr(module, "limits", {}),
    )
