"""Modules of a project's commit, imported without the project."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

BARE_PACKAGES = {
    "liger_kernel",
    "liger_kernel.ops",
    "fast_llm",
    "fast_llm.functional",
    "flash_attn",
    "flash_attn.ops",
    "flash_attn.ops.triton",
}
"""Packages whose `__init__` is left out: it imports all there is, and more than is installed."""


@dataclass(frozen=True)
class Side:
    """The sources of one commit."""

    root: Path

    def load(self, name: str) -> Any:
        """Import a module of this commit, and leave no trace of it in sys.modules for the other commit to find."""
        top = name.partition(".")[0]
        with only_modules(top, bare_packages(top, self.root) | stand_ins(top)):
            sys.path.insert(0, str(self.root))
            try:
                importlib.invalidate_caches()
                return importlib.import_module(name)
            finally:
                sys.path.remove(str(self.root))


@contextmanager
def only_modules(top: str, modules: dict[str, ModuleType]) -> Iterator[None]:
    """Let a top-level package consist of these modules, and of what is imported meanwhile."""
    held = {name: sys.modules.pop(name) for name in modules_of(top)}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules_of(top):
            del sys.modules[name]
        sys.modules.update(held)


def modules_of(top: str) -> list[str]:
    return [name for name in sys.modules if name == top or name.startswith(f"{top}.")]


def bare_packages(top: str, root: Path) -> dict[str, ModuleType]:
    """Return packages that know where their modules lie, and nothing else."""
    packages: dict[str, ModuleType] = {}
    for name in sorted(BARE_PACKAGES):
        if name.partition(".")[0] == top:
            packages[name] = ModuleType(name)
            packages[name].__path__ = [str(root.joinpath(*name.split(".")))]
    return packages


def stand_ins(top: str) -> dict[str, ModuleType]:
    """Return what stands for modules that would import a whole training framework."""
    if top != "fast_llm":
        return {}

    def is_first_gradient(param: Any) -> bool:
        first = bool(param.param_grad_is_zero)
        param.param_grad_is_zero = False
        return first

    given: dict[str, dict[str, object]] = {
        "fast_llm.utils": {"try_decorate": lambda find: find(), "InvalidObject": object},
        "fast_llm.tensor": {"param_get_and_unset_is_zero": is_first_gradient},
        "fast_llm.functional.utils": {"wrap_forward_backward": lambda forward, backward: (forward, backward)},
    }
    modules = {name: ModuleType(name) for name in given}
    for name, contents in given.items():
        vars(modules[name]).update(contents)
    return modules
