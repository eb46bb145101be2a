"""`ab`: arguments, runs and output, with a fake of pytest and with pytest itself."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.cli import main, parse
from pytest_gpubench.gpu.visible import VisibleGpu
from tests import fork_server
from tests.cli.ab.faked import NODEID, FakePytest, Git, call, commit, left

FIND_VISIBLE = "pytest_gpubench.gpu.visible.find_visible"

# the command line


@pytest.mark.parametrize(
    ("words", "base", "head", "rest"),
    [
        (["main"], "main", None, []),
        (["main", "--"], "main", None, []),
        (["main", "--", "tests", "-q"], "main", None, ["tests", "-q"]),
        (["main", "topic", "--", "tests", "--", "x"], "main", "topic", ["tests", "--", "x"]),
        (["--rounds", "5", "main", "--", "--rounds", "7"], "main", None, ["--rounds", "7"]),
    ],
)
def test_what_follows_the_dashes_is_pytests(words: list[str], base: str, head: str | None, rest: list[str]) -> None:
    found = parse(["ab", *words])
    assert (found.base, found.head, found.pytest_arguments) == (base, head, rest)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required: BASE"),
        (["--", "tests"], "the following arguments are required: BASE"),
        (["a", "b", "c"], "unrecognized arguments: c"),
        (["a", "--rounds", "0"], "argument --rounds: '0' is not valid, it must be at least 1"),
        (["a", "--fail-slower", "nan"], "argument --fail-slower: 'nan' is not valid, it must be above 0 and finite"),
        (["a", "--fail-slower", "fast"], "argument --fail-slower: 'fast' is not valid, it must be a number, or *"),
        (["a", "--metric", "min"], "argument --metric: invalid choice: 'min' *"),
    ],
)
def test_bad_usage_gets_a_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(["ab", *words])
    assert stopped.value.code == 2
    assert sentence.removesuffix("*") in capsys.readouterr().err


# what is run


def test_two_commits(git: Git, fake: FakePytest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10"})
    git("tag", "old")
    commit(git, {"us": "10.4"})
    Path("us").write_text("99")
    assert call("old", "main", "--", "tests", "-q") == 1
    assert fake.arms == "BHHBHBBH", "two rounds decide it"
    shown = capsys.readouterr()
    assert f"FAIL          {NODEID} [f]: f is slower than in BASE: 1.040x [1.040, 1.040] of its" in shown.out
    assert shown.out.splitlines()[-1] == "gpu_bench: 1 measurement compared: 1 fail"
    said = shown.err.splitlines()
    assert re.fullmatch(r"gpu_bench: BASE is old \(\w{8}\)", said[0])
    assert re.fullmatch(r"gpu_bench: HEAD is main \(\w{8}\); 1 changed file of the working tree left out", said[1])
    assert said[2] == "gpu_bench: run 1 of at most 16: BASE, 1 test, 1 measurement, 0 s"
    assert left(tmp_path) == []
    assert len(git("worktree", "list").splitlines()) == 1
    assert Path("us").read_text() == "99"


def test_the_working_tree_as_it_is(git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10"})
    assert call("main", "--rounds", "1") == 0
    assert fake.arms == "BWWB"
    said = capsys.readouterr().err
    assert "HEAD is the working tree as it is, which is clean, at " in said
    assert "BASE and HEAD are the same commit" not in said
    Path("us").write_text("10.5")
    Path("new").touch()
    assert call("main", "--rounds", "1") == 1
    assert "HEAD is the working tree as it is, with 2 changed files, at " in capsys.readouterr().err
    assert call("main", "HEAD", "--rounds", "1") == 0
    assert "BASE and HEAD are the same commit: every difference is noise" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (
            {"a": "2", "b": "1"},
            "warning: HEAD changes the source of a, so BASE and HEAD run other tests, which are not",
        ),
        (
            {"a": "2", "c": "1"},
            "nothing can be compared: HEAD changes the source of a, so BASE and HEAD run other tests: ",
        ),
        ({"a": "", "b": "1", "c": "1"}, ""),
        ({"a": "1"}, ""),
    ],
)
def test_a_test_that_head_changes_is_told_before_anything_runs(
    head: dict[str, str], told: str, git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(git, {"us": "10", "sources": json.dumps({"a": "1", "b": "1"})})
    Path("sources").write_text(json.dumps(head))
    refused = told.startswith("nothing")
    assert main(["ab", "main", "--rounds", "1"]) == 2 * refused
    assert len(fake.commands) == 4 * (not refused)
    said = capsys.readouterr().err
    assert (told in said, "--tests PATH takes HEAD's for both" in said) == (True, bool(told))


# all of it, with pytest itself


TESTS = """
import os
import pytest
from kernels.fast import SPEED
from pytest_gpubench import scripted

def note(word):
    with open(os.environ["NOTES"], "a") as notes:
        print(word, file=notes)

note("collected")

@scripted([10.0 * SPEED])
def kernel(x): return x

@scripted([5.0])
def steady(x): return x

@scripted([30.0])
def reference(x): return x

@pytest.mark.parametrize("size", ["4/8"])
def test_slower(gpu_bench, size): gpu_bench(kernel, 1)
def test_as_before(gpu_bench):
    note(os.path.basename(os.getcwd()))
    gpu_bench(steady, 1)
def test_changed(gpu_bench): gpu_bench(steady, NUMBER)
def test_without_numbers(): pass
"""
COMPARES = """
def test_speedup(gpu_bench):
    import torch
    gpu_bench.compare(kernel, reference, (torch.ones(3),))
"""


@pytest.mark.parametrize("compares", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_commits_with_pytest_itself(
    compares: bool, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs start together and measure in turn; each imports its own commit, though the working tree is on the path.

    Only a comparison needs torch itself, which each of the eight runs would import.
    """
    source = TESTS.replace("NUMBER", "1") + COMPARES * compares
    monkeypatch.setattr("pytest_gpubench.cli.ab.runs.READY_S", None)  # as long as a busy machine takes to start all
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    if not compares:
        monkeypatch.setattr("subprocess.Popen", fork_server.Popen)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (Path.cwd(), tmp_path, Path(__file__).parents[3]))))
    commit(git, {"kernels/__init__.py": "", "kernels/fast.py": "SPEED = 1.0", "tests/test_a.py": source})
    git("tag", "old")
    commit(
        git,
        {
            "kernels/fast.py": "SPEED = 1.06",
            "tests/test_b.py": "def test_new(gpu_bench): pass\n",
            "tests/test_a.py": source.replace("steady, 1)\ndef test_w", "steady, 2)\ndef test_w") + "\n# a comment\n",
        },
    )
    Path("kernels/fast.py").write_text("SPEED = 100.0")
    options = ["--gpu-bench-timer=scripted", "--gpu-bench-device=cpu", "-p", "no:benchmark", "-p", "no:randomly"]
    assert call("old", "main", "--rounds", "2", "--", "tests", *options) == 1
    out, err = capsys.readouterr()
    print(out)
    assert err.count("warning: HEAD changes the source of tests/test_a.py::test_changed, so BASE and") == 1
    assert re.search(r"^NOT JUDGED +tests\S*test_changed: its own source changed", out, re.MULTILINE)
    alone = r"\[kernel\]: kernel is slower than in BASE: 1\.060x"
    assert re.search(rf"^FAIL +tests/test_a.py::test_slower\[4/8\] {alone}", out, re.MULTILINE)
    against = r"\[kernel\]: kernel is slower against its reference than in BASE: 1\.060x"
    assert bool(re.search(rf"^FAIL +tests/test_a.py::test_speedup {against}", out, re.MULTILINE)) is compares
    assert re.search(
        r"^PASS +tests\S*test_as_before \[steady\]: steady is as fast as in BASE: 1\.000x", out, re.MULTILINE
    )
    assert re.search(r"^NOT JUDGED +tests\S*test_new\S*: HEAD alone has it: a new test", out, re.MULTILINE)
    turns = "base head head base head base base head"
    assert (tmp_path / "notes").read_text().split() == ["collected"] * 8 + turns.split()
    assert left(tmp_path) == []
    assert Path("kernels/fast.py").read_text() == "SPEED = 100.0"


# one GPU for both


def test_of_several_gpus_one_is_held(
    git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second command takes the other one, which is less taken; without a choice nothing is pinned."""
    commit(git, {"us": "10"})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = [VisibleGpu(f"GPU-{number}", 0, "a GPU") for number in (1, 2)]
    held: list[Any] = []
    monkeypatch.setattr("pytest_gpubench.cli.ab.command.HELD", held)
    for number in (1, 2, 2):
        monkeypatch.setattr(FIND_VISIBLE, lambda: gpus[:number])  # noqa: B023 # called at once
        assert call("main", "--rounds", "1") == 0
    assert "both are measured on a GPU GPU-1, one of 2 GPUs" in capsys.readouterr().err
    pinned = [each.get("CUDA_VISIBLE_DEVICES") for each in fake.environments]
    assert pinned == [None] * 4 + ["GPU-1"] * 4 + ["GPU-2"] * 4
    assert len(held) == 2, "claims last as long as they are referred to"
    for claim in held:
        claim.file.release()


@pytest.mark.parametrize(
    ("base", "head", "margin", "status"),
    [
        ("f=10! g=10", "f=10 h=10", "3%", 2),
        ("f=10", "f=10 h=10", "3%", 0),
        ("f=10", "f=10,11", "3%", 0),
        ("f=10 g=10", "f=10 g=11", "3%", 1),
        ("f=10 g=10", "f=10 g=failed", "3%", 1),
        ("g=10", "g=failed", "3%", 1),
        ("f=10 g=10", "f=10 g=10!", "3%", 1),
        ("g=10!", "g=failed", "3%", 1),
        *(("10", "10.4", margin, status) for margin, status in (("3.9%", 1), ("0.039", 1), ("4.1 %", 0))),
    ],
)
def test_the_exit_status(base: str, head: str, margin: str, status: int, git: Git, fake: FakePytest) -> None:
    commit(git, {"us": base})
    Path("us").write_text(head)
    assert call("main", "--rounds", "1", "--fail-slower", margin) == status
