"""Notice when a test has replaced a function of Python or torch that measuring, or a reference, relies on.

A test does so by accident: it freezes the time, or patches torch and forgets to undo it. Replacements are named unless
a library made them; of clocks always. A candidate that wants to deceive can replace anything, this module included.
"""

import functools
import inspect
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from operator import attrgetter, is_
from pathlib import Path
from typing import Any

import msgspec

from pytest_gpubench.errors import InvalidResult

RELIED_ON = (
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.process_time_ns",
    "time.thread_time_ns",
    "os.open",
    "os.pread",
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
"""Functions that a measurement depends on and a test can replace."""


def replaced() -> str | None:
    """Return the name of a replaced function that a measurement relies on; None if none is.

    A function is a library's if the file it is defined in lies where libraries are installed, or in this package. The
    clocks are built in: a library that replaces one freezes or moves the time.
    """
    for name in RELIED_ON:
        value = find(name)
        if is_foreign(value) or (name.startswith("time.") and not inspect.isbuiltin(value)):
            return name
    return None


OPERATIONS = ("torch", "torch.Tensor", "torch.nn.functional", "torch.linalg", "torch.fft")
"""The modules of torch's functions that a reference calls."""


@contextmanager
def operations_kept() -> Iterator[None]:
    """Raise InvalidResult where a function of torch is replaced within a block."""
    before = {path: dict(vars(find(path))) for path in OPERATIONS}
    yield
    for path, earlier in before.items():
        owner: Any = find(path)
        if len(vars(owner)) == len(earlier) and all(map(is_, vars(owner).values(), earlier.values())):
            continue
        inherited = [vars(kind) for kind in getattr(owner, "__mro__", (owner,))[1:]]
        for name, value in list(vars(owner).items()):
            if value is earlier.get(name) or not any(name in names for names in (earlier, *inherited)):
                continue
            if callable(value) and is_foreign(value):
                raise InvalidResult(
                    f"{path}.{name} was replaced while the functions were compared, and each of them may call it: "
                    "leave torch's functions as they are"
                )


def find(name: str) -> object:
    """Return the object that a dotted name stands for now."""
    module, _, path = name.partition(".")
    return attrgetter(path)(import_module(module)) if path else import_module(module)


def is_foreign(value: object) -> bool:
    """Tell whether something is defined in a file that belongs to no library."""
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        return not is_library_file(getattr(module, "__file__", None) or "<builtin>")
    code = getattr(value, "__code__", None)
    if code is not None and not is_library_file(code.co_filename):
        return True
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None:  # by a library, of what may not be one's
        return is_foreign(wrapped)
    return code is None and not (inspect.isbuiltin(value) or inspect.ismethoddescriptor(value))


@functools.cache
def is_library_file(filename: str) -> bool:
    """Tell whether a source lies where libraries are installed, or in this package; generated code is a library's."""
    if filename.startswith("<"):
        return True
    path = Path(filename).absolute()  # by which it was imported, though it may be a link to anywhere
    return any(each.is_relative_to(folder) for each in (path, path.resolve()) for folder in library_folders())


@functools.cache
def library_folders() -> tuple[Path, ...]:
    """Return the folders of the standard library, of installed packages, of torch and of this package.

    Packages may be installed for one user, or in any folder of PYTHONPATH: there msgspec tells which.
    """
    import torch

    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    homes = [Path(str(module.__file__)).parent for module in (torch, functools)]
    homes += [Path(str(msgspec.__file__)).parents[1], Path(__file__).parents[1]]
    found = [path.absolute() for path in [*map(Path, [*folders, site.getusersitepackages()]), *homes]]
    return (*found, *(path.resolve() for path in found))
