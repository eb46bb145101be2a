"""flashinfer-trace, unmodified: a `Definition` with its `Workload`s is a spec, and a `Solution` a candidate.

The schema is that of https://github.com/flashinfer-ai/flashinfer-bench (docs/flashinfer-trace).
"""

import importlib
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.judge.spec.model import Case, Entry, Spec, draw_inputs, required
from pytest_gpubench.judge.spec.own_files import OwnFiles
from pytest_gpubench.results.files import UNREADABLE

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
TOLERANCE = {"rtol": 1e-2, "atol": 1e-2}
"""The default of flashinfer-bench, where an element is wrong only if it exceeds both."""
INTEGERS = {"int8": (-128, 128), "int16": (-1024, 1024), "int32": (-1024, 1024), "int64": (-1024, 1024)}
"""Random integers lie between these, the second excluded, as in flashinfer-bench."""
TORCH_NAMES = {"float4_e2m1": "float4_e2m1fn_x2"}
COMPILED = (".cu", ".cpp", ".cc", ".cxx", ".c")
"""Endings of sources for a compiler."""
UUID = "workload"
"""The key of a case that names its workload; the others are its axes."""


class Axis(msgspec.Struct, frozen=True):
    """A dimension: a constant, or one that each workload gives."""

    type: Literal["const", "var"]
    value: int | None = None


class Tensor(msgspec.Struct, frozen=True):
    """An input or output: the axes of its shape, None for a number; and its dtype."""

    shape: tuple[str, ...] | None
    dtype: str

    @property
    def torch_dtype(self) -> "torch.dtype":
        """The dtype as torch's."""
        import torch

        found = getattr(torch, TORCH_NAMES.get(self.dtype, self.dtype), None)
        if not isinstance(found, torch.dtype):
            raise BadRequest(f"dtype {self.dtype!r} is not one of torch {torch.__version__}: use a newer one")
        return found


class Definition(msgspec.Struct, frozen=True):
    """The definition of a kernel."""

    name: str
    op_type: str
    axes: dict[str, Axis]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    reference: str

    def shape(self, tensor: Tensor, axes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of a tensor, given the values of a workload's axes."""
        sizes = {name: axis.value for name, axis in self.axes.items() if axis.value is not None} | dict(axes)
        return tuple(sizes[name] for name in tensor.shape or ())

    def new_outputs(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return memory for the outputs of a call with these inputs."""
        import torch

        given = [(each, value) for each, value in zip(self.inputs.values(), inputs, strict=True) if each.shape]
        axes = {name: size for each, value in given for name, size in zip(each.shape or (), value.shape, strict=True)}
        device = given[0][1].device if given else None
        wanted = self.outputs.values()
        return tuple(torch.empty(self.shape(each, axes), dtype=each.torch_dtype, device=device) for each in wanted)

    def call(self, function: Callable[..., Any], writes_outputs: bool, *inputs: Any) -> tuple[Any, ...]:
        """Return the outputs of a function, which may write them to its last arguments, as a tuple in order."""
        if writes_outputs:
            outputs = self.new_outputs(inputs)
            function(*inputs, *outputs)
            return outputs
        found = function(*inputs)
        if isinstance(found, Mapping):
            return tuple(found[name] for name in self.outputs)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)


class Source(msgspec.Struct, frozen=True):
    """The source of an input's values."""

    type: Literal["random", "scalar", "safetensors"]
    value: bool | int | float | None = None
    path: str = ""
    tensor_key: str = ""


class Workload(msgspec.Struct, frozen=True):
    """The axes and inputs of a case."""

    uuid: str
    axes: dict[str, int]
    inputs: dict[str, Source]


class Trace(msgspec.Struct, frozen=True):
    """A line of a file of workloads."""

    definition: str
    workload: Workload


@dataclass(frozen=True)
class SolutionEntry(Entry):
    """The entry of a solution; its definition lacks the reference."""

    definition: Definition

    def load(self, path: Path) -> Callable[..., Any]:
        """Build the solution in a `.json` file, or run a Python file that defines `run`; return its function."""
        if path.suffix != ".json":
            return partial(self.definition.call, super().load(path), False)
        solution = decode(path.read_bytes(), Solution, path)
        if solution.definition != self.definition.name:
            raise BadRequest(
                f"{path.name} is a solution of {solution.definition}, and the spec defines {self.definition.name}: "
                "give the definition that it is for"
            )
        return partial(self.definition.call, solution_function(solution), solution.spec.destination_passing_style)


def spec_of_definition(path: Path, files: OwnFiles) -> Spec:
    """Return the spec of a definition and its workloads."""
    if not path.is_file():
        raise BadFile(f"there is no file {path}: give the path of a flashinfer-trace definition")
    definition = decode(files.read(path), Definition, path)
    if definition.op_type == "sampling":
        raise BadRequest(f"{path.name}: outputs of op_type 'sampling' are random, and are not compared one by one")
    root, workloads_path = _workloads_path(path, definition)
    workloads = {each.uuid: each for each in _workloads(files.read(workloads_path), definition, workloads_path)}
    module = ModuleType(f"reference of {definition.name}")
    exec(compile(definition.reference, f"<{module.__name__}>", "exec"), vars(module))  # the referee trusts its spec
    reference = partial(definition.call, required(module, path, "run"), False)

    def inputs(case: Case, seed: int, device: "torch.device | str") -> tuple[Any, ...]:
        workload = workloads[str(case[UUID])]
        return draw_inputs(lambda: list(_values(definition, workload, root)), seed, device)

    return Spec(
        name="run",
        cases=tuple({**each.axes, UUID: each.uuid} for each in workloads.values()),
        reference=reference,
        inputs=inputs,
        entry=SolutionEntry(("run", "candidate"), msgspec.structs.replace(definition, reference="")),
        tolerance=TOLERANCE,
        tries_each=False,  # logarithms of sums of attention are 1 % from one number
    )


def decode(text: bytes, kind: type[T], path: Path) -> T:
    """Return the value of a JSON text; raise BadFile, saying where, if it is of another kind."""
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        raise BadFile(f"{path} is no {kind.__name__} of flashinfer-trace: {error}") from None


def _workloads_path(path: Path, definition: Definition) -> tuple[Path, Path]:
    """Return the root of a data set and its file of workloads: in `workloads`, or beside the definition."""
    tried = [(path.parent, path.parent / f"{definition.name}.jsonl")]
    for folder in path.absolute().parents:
        if folder.name == "definitions":
            inner = path.absolute().relative_to(folder).with_suffix(".jsonl")
            tried.insert(0, (folder.parent, folder.parent / "workloads" / inner))
    for root, file in tried:
        if file.is_file():
            return root, file
    looked = ", ".join(str(file) for _, file in tried)
    raise BadFile(
        f"{path.name} has no workloads: none of {looked} is there; lay the files out as flashinfer-trace does"
    )


def _workloads(lines: bytes, definition: Definition, path: Path) -> list[Workload]:
    traces = [decode(line, Trace, path) for line in lines.splitlines() if line.strip()]
    found = [trace.workload for trace in traces if trace.definition == definition.name]
    if not found:
        raise BadFile(f"{path} has no workload of {definition.name}: add one")
    variable = {name for name, axis in definition.axes.items() if axis.type == "var"}
    for workload in found:
        if missing := sorted(variable - set(workload.axes)):
            raise BadFile(f"{path}: workload {workload.uuid} gives no value to the axis {missing[0]}")
    return found


def _values(definition: Definition, workload: Workload, root: Path) -> Iterator[Any]:
    """Yield the inputs of a workload, in the order of the definition."""
    for name, tensor in definition.inputs.items():
        source = workload.inputs.get(name, Source("random"))
        if source.type == "scalar":
            yield source.value
        elif source.type == "safetensors":
            yield _loaded(root / source.path, source.tensor_key)
        else:
            value = _random(definition.shape(tensor, workload.axes), tensor)
            yield value.item() if tensor.shape is None else value


def _random(shape: tuple[int, ...], tensor: Tensor) -> "torch.Tensor":
    """Return random values on torch's current device, as flashinfer-bench draws them."""
    import torch

    dtype = tensor.torch_dtype
    if tensor.dtype == "bool":
        return torch.randint(0, 2, shape, dtype=dtype)
    if tensor.dtype in INTEGERS:
        return torch.randint(*INTEGERS[tensor.dtype], shape, dtype=dtype)
    if tensor.dtype in ("float32", "float16", "bfloat16"):
        return torch.randn(shape, dtype=dtype)
    return torch.randn(shape).clamp(-2, 2).to(dtype)


def _loaded(path: Path, key: str) -> Any:
    """Return a tensor of a safetensors file."""
    try:
        from safetensors import safe_open
    except ImportError:
        raise BadRequest(f"{path.name} is read by the package safetensors: pip install safetensors") from None
    try:
        with safe_open(str(path), "pt") as file:
            return file.get_tensor(key)
    except Exception as error:
        raise BadFile(f"{path}: {key} cannot be read ({error}): is it a Git LFS pointer? see git lfs pull") from None


# solutions


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

    Raises BadRequest for a path that leads out of the folder. Errors of the sources and compilers pass through.
    """
    file, _, function = solution.spec.entry_point.partition("::")
    package = Path(tempfile.mkdtemp(prefix="gpu_bench_")) / f"gpu_bench_solution_{secrets.token_hex(4)}"
    for source in solution.sources:
        parts = PurePosixPath(source.path)
        if parts.is_absolute() or ".." in parts.parts:
            raise BadRequest(f"the solution's path {source.path!r} leads out of its folder: give a relative one")
        (package / parts).parent.mkdir(parents=True, exist_ok=True)
        (package / parts).write_text(source.content)
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
