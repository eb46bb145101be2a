"""flashinfer-trace: definitions with their workloads are specs, solutions are candidates."""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_gpubench import BadFile, BadRequest
from pytest_gpubench.judge.spec import Spec, read_spec

REFERENCE = """
import torch

def run(hidden, weight, eps):
    x = hidden.to(torch.float32)
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return {"out": (x * scale * weight).to(hidden.dtype), "scale": scale[:, 0]}
"""
DEFINITION: dict[str, Any] = {
    "name": "rmsnorm_h64",
    "op_type": "rmsnorm",
    "axes": {"batch_size": {"type": "var"}, "hidden_size": {"type": "const", "value": 64}},
    "inputs": {
        "hidden": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden_size"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "out": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"},
        "scale": {"shape": ["batch_size"], "dtype": "float32"},
    },
    "reference": REFERENCE,
    "tags": ["status:verified"],
}
INPUTS = {"hidden": {"type": "random"}, "weight": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-5}}
WRITES = """
from . import parts

def run(hidden, weight, eps, out, scale):
    found = parts.run(hidden, weight, eps)
    out.copy_(found["out"])
    scale.copy_(found["scale"])
"""


def line(number: int, definition: str = "rmsnorm_h64", axis: str = "batch_size") -> str:
    """Return a workload as a line of its file."""
    workload = {"uuid": f"w{number}", "axes": {axis: number}, "inputs": INPUTS}
    return json.dumps({"definition": definition, "workload": workload, "solution": None, "evaluation": None})


def write(root: Path, definition: dict[str, Any] = DEFINITION, lines: tuple[str, ...] = (line(2), line(5))) -> Path:
    """Write a data set; return the path of its definition."""
    path = root / "definitions" / "rmsnorm" / "rmsnorm_h64.json"
    workloads = root / "workloads" / "rmsnorm" / "rmsnorm_h64.jsonl"
    for each in (path, workloads):
        each.parent.mkdir(parents=True)
    path.write_text(json.dumps(definition))
    workloads.write_text("\n".join(lines))
    return path


def solution(
    folder: Path,
    sources: dict[str, str],
    entry: str = "main.py::run",
    definition: str = "rmsnorm_h64",
    **changed: object,
) -> Path:
    """Write a solution; return its path."""
    build = {"language": "python", "target_hardware": ["cpu"], "entry_point": entry, "dependencies": [], **changed}
    files = [{"path": path, "content": content} for path, content in sources.items()]
    path = folder / "solution.json"
    path.write_text(
        json.dumps({"name": "mine", "definition": definition, "author": "me", "spec": build, "sources": files})
    )
    return path


@pytest.fixture(autouse=True)
def folder_of_solutions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solutions are written to a folder that pytest removes, and imported from there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.path", [*sys.path])


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    return read_spec(write(tmp_path))


def test_each_workload_is_a_case(spec: Spec) -> None:
    assert spec.cases == ({"batch_size": 2, "workload": "w2"}, {"batch_size": 5, "workload": "w5"})
    hidden, weight, eps = spec.inputs(spec.cases[1], 3, "cpu")
    assert (hidden.shape, hidden.dtype, weight.shape, eps) == ((5, 64), torch.bfloat16, (64,), 1e-5)
    assert hidden.equal(spec.inputs(spec.cases[1], 3, "cpu")[0])
    out, scale = spec.reference(hidden, weight, eps)
    assert (out.shape, scale.shape) == ((5, 64), (5,))


@pytest.mark.parametrize(
    ("sources", "changed"),
    [
        ({"main.py": WRITES, "parts.py": REFERENCE}, {}),
        ({"main.py": REFERENCE}, {"destination_passing_style": False}),
        ({"deep/er.py": REFERENCE}, {"entry": "deep/er.py::run", "destination_passing_style": False}),
    ],
)
def test_a_solution_returns_the_outputs_in_order(
    spec: Spec, tmp_path: Path, sources: dict[str, str], changed: dict[str, Any]
) -> None:
    entry = pickle.loads(pickle.dumps(spec.entry))
    inputs = spec.inputs(spec.cases[0], 1, "cpu")
    found, expected = entry.load(solution(tmp_path, sources, **changed))(*inputs), spec.reference(*inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_python_file_is_a_candidate_too(spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REFERENCE)
    inputs = spec.inputs(spec.cases[0], 1, "cpu")
    torch.testing.assert_close(spec.entry.load(tmp_path / "mine.py")(*inputs), spec.reference(*inputs))


def test_the_reference_is_not_in_what_the_candidate_gets(spec: Spec) -> None:
    assert b"rsqrt" not in pickle.dumps(spec.entry)


def test_workloads_may_lie_beside_the_definition(tmp_path: Path) -> None:
    (tmp_path / "rmsnorm.json").write_text(json.dumps(DEFINITION))
    (tmp_path / "rmsnorm_h64.jsonl").write_text(line(3))
    assert read_spec(tmp_path / "rmsnorm.json").cases == ({"batch_size": 3, "workload": "w3"},)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float8_e4m3fn", "int8", "int64", "bool"])
def test_random_inputs_of_every_dtype_vary(tmp_path: Path, dtype: str) -> None:
    inputs = {**DEFINITION["inputs"], "weight": {"shape": ["hidden_size"], "dtype": dtype}}
    spec = read_spec(write(tmp_path, {**DEFINITION, "inputs": inputs}))
    first, second = (spec.inputs(spec.cases[0], seed, "cpu")[1].float() for seed in (1, 2))
    assert not first.equal(second)


def test_values_come_from_safetensors(tmp_path: Path) -> None:
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file({"w": torch.arange(64.0)}, tmp_path / "blob.safetensors")
    source = {"type": "safetensors", "path": "./blob.safetensors", "tensor_key": "w"}
    text = line(2).replace(json.dumps({"type": "random"}) + ', "eps"', json.dumps(source) + ', "eps"')
    spec = read_spec(write(tmp_path, lines=(text,)))
    assert spec.inputs(spec.cases[0], 1, "cpu")[1].tolist() == list(range(64))


@pytest.mark.parametrize(
    ("change", "lines", "error", "message"),
    [
        ({"axes": 5}, (line(2),), BadFile, r"is no Definition of flashinfer-trace: Expected `object`.*\$.axes"),
        ({"reference": "def walk(): pass"}, (line(2),), BadRequest, "must define run; it defines "),
        ({"reference": "def run(:"}, (line(2),), BadFile, "it raises SyntaxError"),
        ({"op_type": "sampling"}, (line(2),), BadRequest, "are random, and are not compared one by one"),
        ({}, (line(2, "other"),), BadFile, "has no workload of rmsnorm_h64: add one"),
        ({}, (line(2, axis="rows"),), BadFile, "workload w2 gives no value to the axis batch_size"),
        ({}, ("{}",), BadFile, "is no Trace of flashinfer-trace: .*missing required field `definition`"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, change: dict[str, Any], lines: tuple[str, ...], error: type[Exception], message: str
) -> None:
    path = write(tmp_path, {**DEFINITION, **change}, lines)
    with pytest.raises(error, match=message):
        read_spec(path)


def test_a_definition_without_workloads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "alone.json").write_text(json.dumps(DEFINITION))
    with pytest.raises(BadFile, match=r"alone.json has no workloads: none of .*rmsnorm_h64.jsonl is there"):
        read_spec(tmp_path / "alone.json")


@pytest.mark.parametrize(
    ("sources", "changed", "message"),
    [
        ({"main.py": "x = 1"}, {}, "main.py must define run; it defines no function"),
        ({"../main.py": REFERENCE}, {}, r"path '../main.py' leads out of its folder"),
        ({"main.cu": "//"}, {"entry": "main.cu::run", "language": "cuda"}, "has the binding tvm-ffi"),
        ({}, {"definition": "gemm"}, "is a solution of gemm, and the spec defines rmsnorm_h64"),
    ],
)
def test_a_solution_that_cannot_be_used_is_refused(
    spec: Spec, tmp_path: Path, sources: dict[str, str], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        spec.entry.load(solution(tmp_path, sources, **changed))
