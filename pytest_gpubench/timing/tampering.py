"""Notice when a test has replaced something that measuring or judging relies on.

Watched are the clocks and the profiler of Python and torch (`RELIED_ON`), and in every loaded module of this package:

- functions, methods, properties, classes, and the modules it imports: a replacement is named unless it comes from a
  library or from this package; so is a name that was deleted, or a new one that may hide a builtin function;
- `__code__`, `__defaults__` and `__kwdefaults__` of its functions;
- constants (names in capitals), the items of those that are dicts, and attributes of its classes.

Not seen: attributes of instances; items of lists; variables of closures; constants, defaults and attributes that were
replaced before the first look at their module. Code that rewrites this module can hide everything.
"""

import functools
import importlib
import inspect
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter, is_
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec

__tracebackhide__ = True

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
"""Functions that a measurement depends on and a test can replace, beside everything in this package."""
CODE = (FunctionType, property, staticmethod, classmethod, type(functools.cache(len)), type, ModuleType)
PLAIN = (bool, int, float, str)
"""Types of constants that may be set to an equal value."""
_MISSING = object()


def replaced() -> str | None:
    """Return the name of something that a measurement relies on and that is no longer the library's; None if all is.

    A function is the library's own if the file it is defined in lies where libraries are installed, or in this package.
    """
    library = next((name for name in RELIED_ON if is_foreign(find(name))), None)
    return library or _package.replaced()


OPERATIONS = ("torch", "torch.Tensor", "torch.nn.functional", "torch.linalg", "torch.fft")
"""Where torch's functions are that a reference calls."""


def operations() -> dict[str, dict[str, object]]:
    """Return what is in torch's namespaces now."""
    return {path: dict(vars(find(path))) for path in OPERATIONS}


def replaced_operation(before: Mapping[str, Mapping[str, object]]) -> str | None:
    """Return the name of a function of torch that a test has replaced since; None if there is none."""
    for path, earlier in before.items():
        owner: Any = find(path)
        if list(vars(owner)) == list(earlier) and all(map(is_, vars(owner).values(), earlier.values())):
            continue
        inherited = [vars(kind) for kind in getattr(owner, "__mro__", (owner,))[1:]]
        for name, value in list(vars(owner).items()):
            if value is earlier.get(name) or not any(name in names for names in (earlier, *inherited)):
                continue
            if callable(value) and is_foreign(value):
                return f"{path}.{name}"
    return None


def find(name: str) -> object:
    """Return the object that a dotted name stands for now."""
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


class _Objects:
    """All values in some namespaces, and the code and defaults of some functions."""

    def __init__(self, namespaces: Iterable[Mapping[Any, object]], functions: Iterable[FunctionType]) -> None:
        self.namespaces, self.functions = list(namespaces), list(functions)
        self._views = [namespace.values() for namespace in self.namespaces]
        self._with_defaults = [each for each in self.functions if each.__defaults__ or each.__kwdefaults__]
        self._sizes = list(map(len, self.namespaces))
        self._found = list(self._now())

    def are_the_same(self) -> bool:
        """Tell whether all are the same objects still: `is`, as an object of a test's may be equal to any other."""
        return list(map(len, self.namespaces)) == self._sizes and all(map(is_, self._now(), self._found))

    def _now(self) -> Iterator[object]:
        return chain(
            chain.from_iterable(self._views),
            map(attrgetter("__code__"), self.functions),
            map(attrgetter("__defaults__"), self._with_defaults),
            map(attrgetter("__kwdefaults__"), self._with_defaults),
        )


class _Module:
    """A module of this package: what is watched in it, by name."""

    def __init__(self, module: ModuleType) -> None:
        namespaces = list(_namespaces(module))
        self.values = {f"{path}.{name}": items[name] for path, items, watched in namespaces for name in watched}
        functions = [each for value in self.values.values() for each in _functions_of(value)]
        self.parts = {each: _parts_of(each) for each in functions}
        defaults = [each.__kwdefaults__ for each in self.parts if each.__kwdefaults__]
        self.objects = _Objects([*(items for _, items, _ in namespaces), *defaults], self.parts)

    def replaced(self, before: "_Module | None") -> Iterator[str]:
        """Yield the names of what is not the package's own, or not what it was before."""
        if before is None:
            yield from (path for path, value in self.values.items() if isinstance(value, CODE) and is_foreign(value))
            return
        for path, value in self.values.items():
            if not is_own(value, before.values.get(path, _MISSING)):
                yield path
        yield from (path for path in before.values if path not in self.values)
        for function, parts in self.parts.items():
            if not all(map(is_, parts, before.parts.get(function, parts))):
                yield f"{function.__module__}.{function.__qualname__}"


class _Package:
    """This package's modules as they were when everything in them was last found to be its own.

    A close look at everything takes 10 ms. That all objects are the same still is seen in about 0.5 ms.
    """

    def __init__(self) -> None:
        self._modules: dict[ModuleType, _Module] = {}
        self._objects = _Objects((), ())
        self._loaded: list[str] = []
        """The names of all modules, of other packages too."""

    def replaced(self) -> str | None:
        """Return the name of something that is not the package's own; None if all is."""
        return None if self._is_unchanged() else self._look()

    def _is_unchanged(self) -> bool:
        loaded = list(sys.modules)
        if loaded == self._loaded:
            modules = [sys.modules[module.__name__] for module in self._modules]
        else:
            modules = own_modules()
        same = len(modules) == len(self._modules) and all(map(is_, modules, self._modules))
        if not same or not modules or not self._objects.are_the_same():
            return False
        self._loaded = loaded  # modules of others alone came: the next look need not find ours among them
        return True

    def _look(self) -> str | None:
        """Look closely at the modules in which something changed; remember all of them if everything is fine."""
        modules = {}
        for module in own_modules():
            before = self._modules.get(module)
            if before is None or not before.objects.are_the_same():
                modules[module] = _Module(module)
                name = next(modules[module].replaced(before), None)
                if name is not None:
                    return name
            else:
                modules[module] = before
        self._modules, self._loaded = modules, list(sys.modules)
        known = [module.objects for module in modules.values()]
        namespaces = chain.from_iterable(each.namespaces for each in known)
        functions = chain.from_iterable(each.functions for each in known)
        self._objects = _Objects(namespaces, dict.fromkeys(functions))
        return None


_package = _Package()


def _namespaces(module: ModuleType) -> Iterator[tuple[str, Mapping[Any, object], list[Any]]]:
    """Yield a module, its classes and its tables, and the names in each that are watched.

    What a module remembers in variables, their names in small letters, may change.
    """
    items = dict(vars(module))
    watched = [name for name, value in items.items() if _is_code(value) or name.isupper()]
    yield module.__name__, vars(module), watched
    for name in watched:
        value, path = items[name], f"{module.__name__}.{name}"
        if isinstance(value, type) and value.__module__ == module.__name__:
            members = vars(value)
            yield path, members, [each for each in members if _is_code(members[each]) or not each.startswith("__")]
        elif type(value) is dict and name.isupper() and not name.startswith("_"):
            yield path, value, list(value)


def _is_code(value: object) -> bool:
    return callable(value) or isinstance(value, CODE)


def _functions_of(value: object) -> Iterator[FunctionType]:
    """Yield the functions that a value consists of: itself, the one it wraps, those of a property."""
    if isinstance(value, FunctionType):
        yield value
    if isinstance(value, property):
        yield from chain.from_iterable(map(_functions_of, (value.fget, value.fset, value.fdel)))
    elif isinstance(value, CODE) and not isinstance(value, (type, ModuleType)):
        yield from _functions_of(getattr(value, "__wrapped__", None))


def _parts_of(function: FunctionType) -> tuple[object, ...]:
    keywords = function.__kwdefaults__ or {}
    return function.__code__, function.__defaults__, function.__kwdefaults__, *keywords.values()


def is_own(value: object, before: object) -> bool:
    """Tell whether a value may stand where another stood before, or nothing."""
    if value is before:
        return True
    if isinstance(value, CODE) or isinstance(before, CODE) or (before is _MISSING and callable(value)):
        return not is_foreign(value)
    return before is _MISSING or (type(value) in PLAIN and type(value) is type(before) and value == before)


def is_foreign(value: object) -> bool:
    """Tell whether something is defined in a file that belongs to no library."""
    if isinstance(value, property):
        return any(is_foreign(each) for each in (value.fget, value.fset, value.fdel) if each is not None)
    if isinstance(value, (type, ModuleType)):
        module = value if isinstance(value, ModuleType) else sys.modules.get(value.__module__)
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
    path = Path(filename).resolve()
    return any(path.is_relative_to(folder) for folder in library_folders())


@functools.cache
def library_folders() -> tuple[Path, ...]:
    """Return the folders of the standard library, of installed packages, of torch and of this package.

    Packages may be installed for one user, or in any folder of PYTHONPATH: there msgspec tells which.
    """
    import torch

    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    homes = [Path(str(module.__file__)).parent for module in (torch, functools)]
    homes += [Path(str(msgspec.__file__)).parents[1], Path(__file__).parents[1]]
    return tuple(path.resolve() for path in [*map(Path, [*folders, site.getusersitepackages()]), *homes])
