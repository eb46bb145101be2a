"""Record the calls of operators that a program makes, and read them again."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import find, given, settings
from hypothesis.errors import InvalidArgument

from pytest_gpubench import BadFile, BadRequest
from pytest_gpubench import strategies as gst
from pytest_gpubench.record import RecordedCall, main, read, recording

PROGRAM = """
import os, sys, torch
from beside import WIDTH
model = torch.nn.Linear(WIDTH, 2)
for rows in map(int, sys.argv[1:]):
    model(torch.ones(rows, WIDTH)).sum().backward()
os.chdir("..")
"""


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    with recording(tmp_path / "shapes.json"):
        for rows in (3, 3, 5):
            torch.ones(rows, 4).mul(2)
        torch.cat([torch.ones(2), torch.ones(1)])
    return tmp_path / "shapes.json"


def test_calls_are_counted_by_shapes_and_dtypes(shapes: Path) -> None:
    assert read(shapes, "aten.mul") == (
        RecordedCall("aten.mul.Tensor", ((3, 4),), ("float32",), 2),
        RecordedCall("aten.mul.Tensor", ((5, 4),), ("float32",), 1),
    )
    assert read(shapes, "aten.cat.default") == (
        RecordedCall("aten.cat.default", ((2,), (1,)), ("float32", "float32"), 1),
    )
    numbers = [each.calls for each in read(shapes)]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_program_may_use_nested_tensors(tmp_path: Path, layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=layout)
    with recording(tmp_path / "shapes.json"):
        (nested * 2).unbind()
        torch.ones(3)
    assert read(tmp_path / "shapes.json", "aten.ones")[0].calls == 1


@pytest.mark.usefixtures("forked")
def test_a_program_is_run_as_by_its_own_command(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WIDTH = 7")
    (tmp_path / "model.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest_gpubench.record", "-o", "calls.json", "model.py", "3", "3", "5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("calls.json: ")
    assert [(each.shapes, each.calls) for each in read(tmp_path / "calls.json", "aten.addmm")] == [
        (((2,), (3, 7), (7, 2)), 2),
        (((2,), (5, 7), (7, 2)), 1),
    ]
    assert read(tmp_path / "calls.json", "aten.mm")[0].calls == 2, "of the backward pass"


@pytest.mark.parametrize(("code", "is_written"), [("None", True), ("0", True), ("3", False)])
def test_a_program_that_failed_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, is_written: bool
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "model.py").write_text(f"import sys, torch; torch.ones(2); sys.exit({code})")
    arguments = ["-o", str(tmp_path / "calls.json"), str(tmp_path / "model.py")]
    if is_written:
        assert main(arguments) == 0
    else:
        with pytest.raises(SystemExit):
            main(arguments)
    assert (tmp_path / "calls.json").exists() == is_written


def test_a_file_that_cannot_be_written_and_one_that_an_error_leaves(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), recording(tmp_path / "shapes.json"):
        raise ZeroDivisionError
    assert not (tmp_path / "shapes.json").exists()
    (tmp_path / "no").touch()
    with pytest.raises(BadFile, match="shapes cannot be written: Not a dir"), recording(tmp_path / "no" / "shapes"):
        pass


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "is no file of recorded calls (No such file or directory)"),
        ("{}", "is no file of recorded calls (Object missing required field `calls`)"),
        ("{", "is no file of recorded calls (Input data was truncated)"),
        ('{"calls": [{"op": "\udcff"}]}', "is no file of recorded calls ('utf-8' codec can't decode byte 0xff"),
        ('{"a": ' + "[" * 100_000, "is no file of recorded calls (maximum recursion depth exceeded"),
        ('{"calls": [], "version": 2}', "has version 2 of recorded calls, not 1: record them again"),
        ('{"calls": []}', "holds no calls: record a program that calls torch"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "shapes.json"
    if text is not None:
        path.write_text(text, errors="surrogateescape")
    with pytest.raises((BadFile, BadRequest)) as caught:
        read(path)
    assert words in str(caught.value)


def test_an_operator_that_was_not_called(shapes: Path) -> None:
    with pytest.raises(BadRequest, match=r"holds no calls of 'aten.mull', but of aten.mul.Tensor and 2 others$"):
        read(shapes, "aten.mull")
    with pytest.raises(BadRequest, match=r"holds no calls of 'none', but of aten.\S+, aten.\S+, aten.\S+$"):
        read(shapes, "none")
    with pytest.raises(InvalidArgument, match=r"^recorded\('.*shapes.json'\): .*'aten.mu', but of aten.mul.Tensor"):
        gst.recorded(shapes, "aten.mu")


def test_examples_shrink_towards_the_most_frequent_call(shapes: Path) -> None:
    calls = gst.recorded(shapes, "aten.mul")
    assert find(calls, lambda call: True).shapes == ((3, 4),)
    assert find(calls, lambda call: call.calls == 1).shapes == ((5, 4),)


def test_calls_are_drawn_about_as_often_as_they_were_made(tmp_path: Path) -> None:
    with recording(tmp_path / "shapes.json"):
        for rows, calls in ((3, 300), (4, 100), (5, 1)):
            for _ in range(calls):
                torch.ones(rows, 2).mul(2)
    drawn: Counter[int] = Counter()

    @settings(max_examples=400, database=None, derandomize=True)
    @given(gst.recorded(tmp_path / "shapes.json", "aten.mul"))
    def draw(call: RecordedCall) -> None:
        drawn[call.calls] += 1

    draw()
    assert drawn[300] > 2 * drawn[100] > 50 * drawn[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-o", "absent/calls.json", "model.py"], "--output=absent/calls.json: there is no folder "),
        (["no_model.py"], "no_model.py is no file: give the Python file of a program"),
    ],
)
def test_what_is_not_there_is_told_before_the_program_runs(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("raise AssertionError")
    with pytest.raises(SystemExit):
        main(arguments)
    assert told in capsys.readouterr().err
