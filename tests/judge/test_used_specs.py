"""The specs that a judge uses: what is made ready for them, kept and freed."""

import gc
import os
import sys
import weakref
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench import BadFile, BadRequest
from pytest_gpubench.judge.judgement import Judgement
from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.verdict.limits import Limits
from tests.judge.test_spec_flashinfer import line, write


def test_a_judge_takes_another_spec_and_its_own_again(judge: Judge, spec: Path, tmp_path: Path) -> None:
    """What was made ready is kept while the file is the same; one that cannot be used changes nothing."""
    judge.use_spec()
    ready: Any = judge._ready_cases()
    judge.use_spec(spec)
    assert judge._ready_cases() is ready
    left = weakref.ref(ready[0].reference.runner)
    del ready
    other = tmp_path / "other.py"
    other.write_text("def reference(x): return x\nlimits = {'min_speedup': 3}\ndef inputs(seed): return ()\n")
    judge.use_spec(other)
    assert (judge.name, judge._cases, judge.rules.limits) == (str(other), (), Limits(min_speedup=3))
    assert left() is None, "its inputs and images are held"
    assert not judge.spec.trust_claims
    other.write_text(f"{other.read_text()}trust_claims = 1\n")
    with pytest.raises(BadRequest, match="trust_claims = 1 is not valid: give True or False"):
        judge.use_spec(other)
    assert judge.name == str(other)
    judge.use_spec()
    assert (judge.name, judge._cases, judge.rules.limits) == (str(spec), (), Limits())


def test_a_spec_has_its_modules_while_a_candidate_is_judged(
    judge: Judge, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that its functions import when they are called."""
    found: list[bool] = []

    def noting(path: Path) -> Judgement:
        found.append("gpu_bench_file_spec" in sys.modules)
        return Judgement(status="pass", reason="", candidate="", spec="", spec_digest="")

    judge.use_spec()
    monkeypatch.setattr(judge, "_judge", noting)
    judge(spec)
    assert found == [True]
    assert "gpu_bench_file_spec" not in sys.modules


def test_a_spec_whose_workloads_are_edited_is_read_again(judge: Judge, tmp_path: Path) -> None:
    path = write(tmp_path)
    [workloads] = tmp_path.glob("workloads/*/*")
    judge.use_spec(path)
    read = judge.spec
    os.utime(path)
    judge.use_spec(path)
    assert judge.spec is read
    workloads.write_text(line(3))
    judge.use_spec(path)
    assert [case["batch_size"] for case in judge.spec.cases] == [3]
    workloads.unlink()
    with pytest.raises(BadFile, match="has no workloads"):
        judge.use_spec(path)


def test_what_a_spec_holds_whose_cases_cannot_all_be_made_ready_is_freed(spec: Path, tmp_path: Path) -> None:
    def runners() -> int:
        return sum(type(each) is Runner for each in gc.get_objects())

    (tmp_path / "two.py").write_text(
        "import torch\ndef reference(x): return x / (x[3] > 0)\n"
        "def inputs(case, seed): return torch.rand(case['n'])\ncases = [{'n': 4}, {'n': 3}]\n"
    )
    alone, ended = ExitStack(), list[str]()
    alone.callback(ended.append, "what a reference costs is measured where nothing else uses the GPU")
    gc.collect()
    before = runners()
    with Judge(tmp_path / "two.py", "cpu") as judge:
        judge._pool.alone = lambda: alone  # type: ignore[method-assign,assignment,return-value]
        with pytest.raises(BadRequest, match="the spec's reference raises IndexError: index 3 is out of bounds"):
            judge._ready_cases()
        assert ended == ["what a reference costs is measured where nothing else uses the GPU"]
        assert runners() > before
        emptied: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(judge, "device", SimpleNamespace(type="cuda"))
            patch.setattr("torch.cuda.empty_cache", lambda: emptied.append("processes of candidates need that memory"))
            judge.use_spec(spec)
        assert (runners(), len(emptied)) == (before, 1)


def test_references_are_unloaded_with_the_spec_and_the_judge(spec: Path, tmp_path: Path) -> None:
    """By the end of the interpreter CUDA and much of Python are gone."""
    unloaded: list[str] = []
    case: Any = SimpleNamespace(reference=SimpleNamespace(close=lambda: unloaded.append("reference")))
    (tmp_path / "other.py").write_text(spec.read_text())
    with Judge(spec, "cpu") as judge:
        judge._cases = [case]
        judge.use_spec(tmp_path / "other.py")
        assert unloaded == ["reference"]
        judge._cases = [case]
    assert unloaded == ["reference", "reference"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("x" * 5000 + ".py", r"cannot be used as a spec, it raises OSError: .*File name too long"),
        ("x" * 5000 + ".json", r"cannot be used as a spec, it raises OSError: .*File name too long"),
        ("a\0b", "there is no file .*: give the path of a Python file"),
        ("\ud800", "there is no file "),
    ],
)
def test_a_spec_with_a_name_that_no_file_has_is_refused(judge: Judge, name: str, found: str) -> None:
    before = judge.name
    with pytest.raises(BadFile, match=found):
        judge.use_spec(name)
    assert judge.name == before


def test_cases_cannot_be_drawn_without_a_strategy(spec: Path) -> None:
    with pytest.raises(BadRequest, match="50 cases are to be drawn, and the spec has no strategy"):
        Judge(spec, "cpu", search=50)
