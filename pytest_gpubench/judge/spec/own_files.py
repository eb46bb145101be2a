"""The files that a spec is read from, modules that it imports from its folder among them: each spec has its own."""

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from pytest_gpubench.results.provenance import INSTALLED

MODULE_PREFIX = "gpu_bench_file_"
"""The beginning of the names of modules that `load_source` makes."""


class OwnFiles(MetaPathFinder):
    """The texts that a spec was read from, and its modules, which `sys.modules` has while the spec is in use.

    What this process had imported before, packages that are installed in the folder, and modules from elsewhere are
    shared with other specs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._texts: dict[Path, bytes] = {}
        self._modules: dict[str, ModuleType] = {}
        self._packages: set[str] = set()
        """The top names of modules that were found in the folder."""
        self._path: Sequence[str] = ()
        """The `sys.path` that the spec left."""

    def read(self, path: Path) -> bytes:
        """Return the bytes of a file, which becomes one of the spec's."""
        self._texts[path] = path.read_bytes()
        return self._texts[path]

    @property
    def digest(self) -> str:
        """The sha256 of the texts read so far, in order."""
        return digest_of(*self._texts.values())

    @property
    def is_current(self) -> bool:
        """True if all have the same text still."""
        try:
            return all(path.read_bytes() == text for path, text in self._texts.items())
        except OSError:
            return False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let imports find the spec's own modules."""
        before, path = {**sys.modules}, sys.path[:]
        self._shared = before.keys() - self._modules.keys()
        sys.modules.update(self._modules)
        sys.path[:] = self._path or path
        sys.meta_path.insert(0, self)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            self._path, sys.path[:] = sys.path[:], path
            self._modules = {name: sys.modules.pop(name) for name in [*sys.modules] if self._is_own(name)}
            sys.modules.update({name: before[name] for name in self._modules.keys() & before.keys()})

    def _is_own(self, name: str) -> bool:
        return name not in self._shared and (name.partition(".")[0] in self._packages or name.startswith(MODULE_PREFIX))

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the place of a module in the folder, which is looked at last; None for any other module."""
        top = name.partition(".")[0]
        found = PathFinder.find_spec(name, [*sys.path, str(self._folder)] if path is None else path)
        if found is None or top in self._shared or not any(map(self.holds, _places(found))):
            return None
        self._packages.add(top)
        if type(found.loader) is SourceFileLoader:
            found.loader = TextLoader(name, found.loader.path, self.read)
        return found

    def holds(self, place: str) -> bool:
        """Tell whether a file or folder lies in the spec's folder, and is neither installed there nor Python's own."""
        inner = Path(place).resolve()
        below = inner.relative_to(self._folder).parts if inner.is_relative_to(self._folder) else INSTALLED
        return INSTALLED.isdisjoint(below) and not inner.is_relative_to(Path(os.__file__).resolve().parent)


def digest_of(*texts: bytes) -> str:
    """Return the sha256 of texts, in order."""
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def _places(found: ModuleSpec) -> list[str]:
    return [*([found.origin] if found.has_location and found.origin else ()), *(found.submodule_search_locations or ())]


class TextLoader(SourceFileLoader):
    """Runs a module's text, never its bytecode: that is taken for a file's while size and second are the same."""

    def __init__(self, name: str, path: str, read: Callable[[Path], bytes]) -> None:
        super().__init__(name, path)
        self._read = read

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file as it is."""
        return self.source_to_code(self._read(Path(self.path)), self.path)
