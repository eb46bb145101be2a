"""Solutions of flashinfer-trace: sources in one JSON file, built in the candidate's process."""

import importlib
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.spec.source import required

__tracebackhide__ = True

COMPILED = (".cu", ".cpp", ".cc", ".cxx", ".c")


class SourceFile(msgspec.Struct, frozen=True):
    """A file of a solution."""

    path: str
    content: str


class Build(msgspec.Struct, frozen=True):
    """The build and the entry point of a solution."""

    language: str
    entry_point: str
    destination_passing_style: bool = True
    binding: Literal["tvm-ffi", "torch"] | None = None


class Solution(msgspec.Struct, frozen=True):
    """A solution of a definition."""

    name: str
    definition: str
    spec: Build
    sources: tuple[SourceFile, ...]


def solution_function(solution: Solution) -> Callable[..., Any]:
    """Write the sources to a new folder, build them, and return the function of the entry point.

    Errors of the sources and compilers pass through.
    """
    file, _, function = solution.spec.entry_point.partition("::")
    package = Path(tempfile.mkdtemp(prefix="gpu_bench_")) / f"gpu_bench_solution_{secrets.token_hex(4)}"
    for source in solution.sources:
        _write(package, source)
    if file.endswith(".py"):
        sys.path.insert(0, str(package.parent))
        name = ".".join([package.name, *PurePosixPath(file).with_suffix("").parts])
        return required(importlib.import_module(name), Path(file), function)
    if solution.spec.binding != "torch":
        raise BadRequest(
            f"{solution.name} has the binding tvm-ffi, which is not built here: "
            'give it "binding": "torch", or call it from Python'
        )
    from torch.utils.cpp_extension import load

    sources = [str(package / each.path) for each in solution.sources if each.path.endswith(COMPILED)]
    is_cuda = solution.spec.language == "cuda"
    module = load(
        package.name, sources, extra_include_paths=[str(package)], with_cuda=is_cuda, build_directory=str(package)
    )
    return getattr(module, function)  # type: ignore[no-any-return]


def _write(folder: Path, source: SourceFile) -> None:
    """Write a file below a folder; raise BadRequest for a path that leads out of the folder."""
    parts = PurePosixPath(source.path)
    if parts.is_absolute() or ".." in parts.parts:
        raise BadRequest(f"the solution's path {source.path!r} leads out of its folder: give a relative one")
    path = folder / parts
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source.content)
