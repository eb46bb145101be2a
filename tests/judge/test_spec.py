"""Specs: our own SPEC.py, read into what the referee and the candidate's process need."""

import pickle
from pathlib import Path

import pytest

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.spec import Spec, read_spec

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
    assert (spec.tolerance, spec.limits) == ({"rtol": 0, "atol": 0}, {"min_speedup": 0.5})
    (x,) = spec.inputs(spec.cases[1], 7, "cpu")
    assert x.shape == (5,)
    assert spec.reference(spec.cases[1])(x).tolist() == (2 * x).tolist()
    assert len(spec.digest) == 64


@pytest.mark.parametrize("name", ["double", "candidate"])
def test_the_candidate_is_found_by_the_references_name_or_as_candidate(tmp_path: Path, name: str) -> None:
    entry = pickle.loads(pickle.dumps(spec_of(tmp_path, DOUBLE).entry))
    (tmp_path / "mine.py").write_text(f"def {name}(x):\n    return x + x\n")
    assert entry.load(tmp_path / "mine.py")(2) == 4


def test_a_candidates_file_without_the_function_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def twice(x):\n    return x + x\n")
    with pytest.raises(BadRequest, match=r"mine.py must define double or candidate; it defines twice"):
        spec_of(tmp_path, DOUBLE).entry.load(tmp_path / "mine.py")
