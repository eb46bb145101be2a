"""Run a Python file as a module."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from pytest_gpubench.errors import BadFile

__tracebackhide__ = True


def load_source(path: Path) -> ModuleType:
    """Run a Python file as a new module; what it raises goes through."""
    if not path.is_file():
        raise BadFile(f"{path} is not there: give the path of a Python file")
    found = importlib.util.spec_from_file_location(f"gpu_bench_file_{path.stem}", path)
    if found is None or found.loader is None:
        raise BadFile(f"{path} cannot be run: its name must end with .py")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # Triton and pickle look a module up by its name
    found.loader.exec_module(module)
    return module
