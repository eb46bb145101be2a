"""Whether what the clocks and the profiler are made of is still what it was: a function under test can replace it."""

import functools
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

__tracebackhide__ = True

RELIED_ON = (
    "time.perf_counter",
    "time.perf_counter_ns",
    "torch.cuda.synchronize",
    "torch.cuda.Event.record",
    "torch.cuda.Event.elapsed_time",
    "torch.cuda.Event.synchronize",
    "torch.cuda.Event.query",
    "torch.cuda._sleep",
    "torch.cuda.CUDAGraph.replay",
    "torch.autograd.profiler.profile.__enter__",
    "torch.autograd.profiler.profile.__exit__",
)
"""What a measurement stands on and a test can reach, beside every function of this package."""


def replaced() -> str | None:
    """Return the name of something that a measurement relies on and that is no longer the library's; None if all is.

    A function is the library's own if the file it is defined in lies where libraries are installed, or in this package.
    """
    return next((name for name, value in relied_on() if is_foreign(value)), None)


def relied_on() -> Iterator[tuple[str, object]]:
    """Yield what measuring relies on, by name."""
    for name in RELIED_ON:
        yield name, find(name)
    for module in own_modules():
        for name, value in list(vars(module).items()):
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value
            elif inspect.isclass(value) and value.__module__ == module.__name__:
                methods = [(each, found) for each, found in vars(value).items() if inspect.isfunction(found)]
                yield from ((f"{module.__name__}.{name}.{each}", found) for each, found in methods)


def find(name: str) -> object:
    """Return what a dotted name stands for now."""
    first, *rest = name.split(".")
    value: object = importlib.import_module(first)
    for part in rest:
        value = getattr(value, part)
    return value


def own_modules() -> list[ModuleType]:
    """Return the loaded modules of this package: what measures, judges or reports could be replaced in any of them."""
    package = __name__.partition(".")[0]
    loaded = list(sys.modules.items())
    return [module for name, module in loaded if name.partition(".")[0] == package]


def is_foreign(value: object) -> bool:
    """Tell whether something is defined in a file that belongs to no library."""
    code = getattr(value, "__code__", None)
    wrapped = getattr(value, "__wrapped__", None)
    if code is not None and not is_library_file(code.co_filename):
        return True
    if wrapped is not None:  # by a library, of what may not be one's
        return is_foreign(wrapped)
    known = inspect.isbuiltin(value) or inspect.ismethoddescriptor(value) or inspect.isclass(value)
    return code is None and not known


@functools.cache
def is_library_file(filename: str) -> bool:
    """Tell whether a source lies where libraries are installed, or in this package; generated code is a library's."""
    if filename.startswith("<"):
        return True
    path = Path(filename).resolve()
    return any(path.is_relative_to(folder) for folder in library_folders())


@functools.cache
def library_folders() -> tuple[Path, ...]:
    """Return the folders of the standard library, of installed packages, of torch and of this package."""
    import torch

    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    homes = [Path(str(module.__file__)).parent for module in (torch, functools)]
    return tuple(path.resolve() for path in [*map(Path, folders), *homes, Path(__file__).parent.parent])
