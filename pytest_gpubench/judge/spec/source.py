"""Run a Python file as a module, and find the functions that it must define."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_gpubench.errors import BadFile, BadRequest

MODULE_PREFIX = "gpu_bench_file_"


def load_source(path: Path) -> ModuleType:
    """Run a Python file as a new module; its errors pass through."""
    if not path.is_file():
        raise BadFile(f"there is no file {path}: give the path of a Python file")
    found = importlib.util.spec_from_file_location(f"{MODULE_PREFIX}{path.stem}", path)
    if found is None or found.loader is None:
        raise BadFile(f"{path} cannot be run: its name must end with .py")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # Triton and pickle look a module up by its name
    found.loader.exec_module(module)
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
