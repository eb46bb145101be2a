"""KernelBench problems: read as they are, with parameters that agree and a tolerance that tells."""

import pickle
from pathlib import Path

import pytest
import torch

from pytest_gpubench import BadFile, BadRequest
from pytest_gpubench.correctness import compare_outputs
from pytest_gpubench.judge.spec import Spec, read_spec
from pytest_gpubench.verdict.limits import Limits
from tests.judge.problems import PROBLEMS, Problem


def judged(spec: Spec, found: object, inputs: tuple[torch.Tensor, ...]) -> bool:
    """Tell whether outputs are right."""
    assert spec.tolerance is not None
    golden = spec.tolerance["golden"](*inputs)
    factor = spec.tolerance["golden_factor"]
    expected = spec.reference(*inputs)
    return all(each.passed for each in compare_outputs(found, expected, golden=golden, golden_factor=factor))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_read_and_its_own_reference_is_right(tmp_path: Path, name: str) -> None:
    path, candidate = PROBLEMS[name].write(tmp_path, smaller=16)
    spec = read_spec(path)
    inputs = spec.inputs({}, 1, "cpu")
    found = pickle.loads(pickle.dumps(spec.entry)).load(candidate)(*inputs)
    assert not found.requires_grad
    assert judged(spec, found, inputs)
    assert not judged(spec, torch.zeros_like(found), inputs)
    assert not judged(spec, found * 1.001, inputs)


def test_inputs_are_drawn_from_the_seed_and_leave_torchs_own_alone(tmp_path: Path) -> None:
    spec = read_spec(PROBLEMS["relu"].write(tmp_path, smaller=16)[0])
    state = torch.get_rng_state()
    first, again, other = (spec.inputs({}, seed, "cpu")[0] for seed in (1, 1, 2))
    assert first.equal(again)
    assert not first.equal(other)
    assert state.equal(torch.get_rng_state())


def test_a_problem_may_have_limits_and_a_tolerance_of_its_own(tmp_path: Path) -> None:
    path, _ = PROBLEMS["relu"].write(tmp_path)
    assert not read_spec(path).trust_claims
    rules = "limits = {'min_speedup': 1.2}\ntolerance = {'rtol': 1e-4, 'atol': 1e-4}\ntrust_claims = True\n"
    path.write_text(path.read_text() + rules)
    spec = read_spec(path)
    assert spec.trust_claims
    assert (spec.limits, spec.tolerance) == (Limits(min_speedup=1.2), {"rtol": 1e-4, "atol": 1e-4})


def test_parameters_are_new_for_each_spec(tmp_path: Path) -> None:
    path, _ = PROBLEMS["convolution"].write(tmp_path, smaller=16)
    x = read_spec(path).inputs({}, 1, "cpu")[0]
    first, second = (read_spec(path).reference(x) for _ in range(2))
    assert not first.equal(second)


@pytest.mark.parametrize(
    ("problem", "error", "message"),
    [
        (
            Problem("No initial inputs.", "", "1", "x").text.replace("get_init", "get"),
            BadRequest,
            "must define get_init_inputs",
        ),
        (
            Problem("An object of its own.", "", "1", "x", initial="Model()").text,
            BadRequest,
            r"returns Model of problem\.py, which",
        ),
        (Problem("Too few arguments.", "", "1", "x", parameters=", dim").text, BadFile, "it raises TypeError: .*'dim'"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, problem: str, error: type[Exception], message: str) -> None:
    (tmp_path / "problem.py").write_text(problem)
    with pytest.raises(error, match=message):
        read_spec(tmp_path / "problem.py")


def test_an_initial_argument_of_a_module_beside_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sizes_beside.py").write_text("class Sizes:\n    rows = 4\n")
    problem = Problem("Sizes.", "from sizes_beside import Sizes", "1", "x", parameters=", sizes", initial="[Sizes()]")
    path, _ = problem.write(tmp_path)
    with pytest.raises(BadRequest, match=r"returns Sizes of sizes_beside\.py, which the candidate's process cannot"):
        read_spec(path)


def test_a_candidate_without_modelnew_is_refused(tmp_path: Path) -> None:
    path, _ = PROBLEMS["relu"].write(tmp_path)
    with pytest.raises(BadRequest, match=r"problem.py must define ModelNew; it defines Model, get_inputs, get_init"):
        read_spec(path).entry.load(path)
