"""The spec of a candidate, the part of it that the candidate's process gets, and Python files run as modules."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.judge.spec.own_files import MODULE_PREFIX, OwnFiles, TextLoader
from pytest_gpubench.verdict.limits import Limits

if TYPE_CHECKING:
    import torch

Case = Mapping[str, object]


@dataclass(frozen=True)
class Entry:
    """Plain data by which the candidate's process finds its callable; it is pickled and holds nothing secret."""

    names: tuple[str, ...]
    """The functions that the candidate's file may define; the first that it defines is taken."""

    def load(self, path: Path) -> Callable[..., Any]:
        """Run the candidate's file and return its callable; raise BadRequest where the file defines none.

        Only the candidate's process may call it. Errors of the file itself pass through.
        """
        return required(load_source(path), path, *self.names)


@dataclass(frozen=True)
class Spec:
    """The rules that a candidate is judged by. Only the referee's process may hold one."""

    name: str
    """The function that the candidate's file must define, unless it defines "candidate"."""
    cases: tuple[Case, ...]
    """The parameters of each case; one empty mapping where there are none."""
    reference: Callable[..., Any]
    """The torch reference, which is called with the inputs of a case as `reference(*inputs)`."""
    inputs: Callable[[Case, int, "torch.device | str"], tuple[Any, ...]]
    """Returns new inputs for a case and a seed on a device: a tuple of tensors, containers and numbers."""
    entry: Entry
    digest: str = ""
    """The sha256 of the texts of its files."""
    tolerance: Mapping[str, Any] | None = None
    """Keywords of `compare`: rtol, atol, equal_nan, golden, golden_factor; None takes torch's for the dtype."""
    tries_each: bool = True
    """True if no output alone may be zeros or one number within the tolerance; False where no user has chosen that."""
    limits: Limits = field(default_factory=Limits)
    trust_claims: bool = False
    """True if a PASS may rest on times that the candidate's own process claims."""
    search: Any = None
    """A strategy of hypothesis that draws cases; None where there is none."""
    files: OwnFiles | None = None
    """The files that it was read from, and their modules; None where a test gives the reference."""

    @property
    def is_current(self) -> bool:
        """True if its files have the same texts still."""
        return self.files is None or self.files.is_current

    def in_use(self) -> AbstractContextManager[object]:
        """Let it import its own modules."""
        return nullcontext() if self.files is None else self.files.in_use()


def entry_named(name: str) -> Entry:
    """Return the entry of a candidate that defines a function of this name, unless it is none, or "candidate"."""
    return Entry(tuple(dict.fromkeys((name, "candidate") if name.isidentifier() else ("candidate",))))


def draw_inputs(make: Callable[[], Any], seed: int, device: "torch.device | str") -> tuple[Any, ...]:
    """Return the inputs that a spec's function makes on a device, from this seed.

    Raises BadRequest where the function raises, unless the memory is full.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    gpus = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(gpus), torch.device(device):
        torch.default_generator.manual_seed(seed)  # without a GPU, torch.manual_seed takes 2 ms for stacks it formats
        if gpus:
            torch.cuda.manual_seed_all(seed)
        try:
            made = make()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise BadRequest(f"the spec's inputs cannot be made, {type(error).__name__}: {error}") from error
    values = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if all(type(each) is torch.Tensor and each.device == torch.device(device) for each in values):
        return values  # the general way takes 40 us, and inputs are drawn often
    return tuple(tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), values))


def load_source(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> ModuleType:
    """Run a Python file as a new module; its errors pass through."""
    if not path.is_file():
        raise BadFile(f"there is no file {path}: give the path of a Python file")
    if path.suffix != ".py":
        raise BadFile(f"{path} cannot be run: its name must end with .py")
    loader = TextLoader(f"{MODULE_PREFIX}{path.stem}", str(path), read)
    found = spec_from_file_location(loader.name, path, loader=loader)
    assert found is not None, "it has a loader"
    module = sys.modules[loader.name] = module_from_spec(found)  # Triton and pickle look a module up by its name
    loader.exec_module(module)
    return module


def required(module: ModuleType, path: Path, *names: str) -> Callable[..., Any]:
    """Return the first of these callables that a module defines; raise BadRequest where it defines none."""
    for name in names:
        if callable(value := getattr(module, name, None)):
            return value  # type: ignore[no-any-return]
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    raise BadRequest(
        f"{path.name} must define {' or '.join(names)}; it defines {', '.join(defined) or 'no function'}: "
        f"add def {names[0]}(...)"
    )
