"""Specs of our own, and the part of them that the candidate's process gets."""

import pickle
from pathlib import Path

import pytest

from pytest_gpubench import BadFile, BadRequest
from pytest_gpubench.judge.spec import Spec, read_spec
from pytest_gpubench.verdict.limits import Limits

DOUBLE = """
import torch

cases = ({"n": 3}, {"n": 5})
tolerance = {"rtol": 0, "atol": 0}
limits = {"min_speedup": 0.5}


def double(x):
    return x * 2


reference = double


def inputs(case, seed):
    return (torch.randn(case["n"], generator=torch.Generator().manual_seed(seed)),)
"""


def spec_of(tmp_path: Path, text: str) -> Spec:
    """Return the spec of this text."""
    path = tmp_path / "spec.py"
    path.write_text(text)
    return read_spec(path)


def test_a_spec_has_a_reference_inputs_and_what_the_candidate_needs(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, DOUBLE)
    assert (spec.name, spec.cases) == ("double", ({"n": 3}, {"n": 5}))
    assert (spec.tolerance, spec.limits) == ({"rtol": 0, "atol": 0}, Limits(min_speedup=0.5))
    (x,) = spec.inputs(spec.cases[1], 7, "cpu")
    assert x.shape == (5,)
    assert spec.reference(x).tolist() == (2 * x).tolist()
    assert len(spec.digest) == 64


@pytest.mark.parametrize("words", ["Model = None", "def get_inputs(): pass"])
def test_a_spec_of_our_own_may_have_a_name_of_kernelbenchs(tmp_path: Path, words: str) -> None:
    """A problem of KernelBench has both."""
    assert spec_of(tmp_path, f"{DOUBLE}\n{words}\n").name == "double"


@pytest.mark.parametrize("name", ["double", "candidate"])
def test_the_candidate_is_found_by_the_references_name_or_as_candidate(tmp_path: Path, name: str) -> None:
    entry = pickle.loads(pickle.dumps(spec_of(tmp_path, DOUBLE).entry))
    (tmp_path / "mine.py").write_text(f"def {name}(x):\n    return x + x\n")
    assert entry.load(tmp_path / "mine.py")(2) == 4


def test_a_candidates_file_without_the_function_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def twice(x):\n    return x + x\n")
    with pytest.raises(BadRequest, match=r"mine.py must define double or candidate; it defines twice: add def double"):
        spec_of(tmp_path, DOUBLE).entry.load(tmp_path / "mine.py")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reference = double", "", r"spec.py must define reference; it defines double, inputs: add def reference"),
        ("def inputs(case, seed)", "def make(case, seed)", r"must define inputs; it defines double, reference, make"),
        ("(case, seed)", "(case, number)", r"inputs\(case, number\) is not valid: write inputs\(seed\), or"),
        ("cases = (", "sizes = (", r"has inputs\(case, seed\) and not cases: give both"),
        ("cases = (", "cases = () and (", "give a list of dicts, one for each case"),
        ('"rtol": 0', '"rtoll": 0', "tolerance has no 'rtoll': did you mean rtol"),
        ('{"rtol": 0, "atol": 0}', "1e-3", "tolerance = 0.001 is not valid: give a dict, of rtol, atol"),
        ("min_speedup", "max_regression", "limits has no 'max_regression': legal are min_speedup, max_time_us"),
        ('"min_speedup": 0.5', '"min_speedup": -1', r"perf\(min_speedup=-1\): it must be above 0"),
    ],
)
def test_a_spec_that_is_not_valid_is_refused_in_a_sentence(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in DOUBLE
    with pytest.raises(BadRequest, match=message):
        spec_of(tmp_path, DOUBLE.replace(old, new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module"),
        ("def f(:", "SyntaxError"),
        ("import sys; sys.exit('enough')", "SystemExit: enough"),
    ],
)
def test_a_spec_that_raises_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadFile, match=f"cannot be used as a spec, it raises {message}"):
        spec_of(tmp_path, text)


@pytest.mark.parametrize(
    ("inputs", "shapes"),
    [
        ("def inputs(seed): return torch.ones(2)", [(2,)]),
        ("def inputs(seed): return [torch.ones(2), torch.ones(3)]", [(2,), (3,)]),
        ("def inputs(seed, device): return (torch.ones(4, device=device),)", [(4,)]),
    ],
)
def test_inputs_without_cases(tmp_path: Path, inputs: str, shapes: list[tuple[int]]) -> None:
    spec = spec_of(tmp_path, f"import torch\ndef reference(*x): return x\n{inputs}\n")
    assert (spec.name, spec.cases, spec.tolerance, spec.limits) == ("candidate", ({},), None, Limits())
    assert [tuple(each.shape) for each in spec.inputs({}, 0, "cpu")] == shapes


def test_inputs_that_raise_are_the_specs_fault(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, DOUBLE.replace("torch.randn(", "torch.random("))
    with pytest.raises(BadRequest, match="the spec's inputs cannot be made, TypeError: 'module' object"):
        spec.inputs(spec.cases[0], 0, "cpu")
