"""`pytest-gpubench judge`: what it reads and writes, and its exit status; judging itself has tests of its own."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.cli import main
from pytest_gpubench.judge import judging
from pytest_gpubench.judge.judgement import Judgement


class FakeJudge:
    """Return the status that a candidate's name says."""

    def __init__(self, *given: object, **more: object) -> None:
        self.given = given

    def __enter__(self) -> "FakeJudge":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __call__(self, path: Path) -> Judgement:
        status: Any = path.stem
        return Judgement(
            status=status, reason="a reason", detail="line", candidate=str(path), spec="s", spec_digest="d"
        )


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "Judge", FakeJudge)


@pytest.mark.parametrize(
    ("name", "status", "out"),
    [("pass.py", 0, "PASS pass.py: a reason\n"), ("fail.py", 1, "FAIL fail.py: a reason\nline\n")],
)
def test_only_a_pass_ends_with_0(capsys: pytest.CaptureFixture[str], name: str, status: int, out: str) -> None:
    assert main(["judge", name, "--spec", "spec.py"]) == status
    assert capsys.readouterr().out == out


def test_the_judgement_is_written_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """To a file beside the text, or to standard output alone."""
    assert main(["judge", "pass.py", "--spec", "spec.py", "--json", str(tmp_path / "one.json")]) == 0
    assert main(["judge", "pass.py", "--spec", "spec.py", "--json", "-"]) == 0
    text, line = capsys.readouterr().out.splitlines()
    assert text == "PASS pass.py: a reason"
    assert json.loads(line) == json.loads((tmp_path / "one.json").read_text())
    assert json.loads(line)["version"] == 1


def test_a_judgement_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths and objects are read, empty lines are not; one that does not pass is enough for 1."""
    monkeypatch.setattr(sys, "stdin", io.StringIO('pass.py\n\n{"candidate": "wrong.py"}\npass.py\n'))
    assert main(["judge", "--jsonl", "--spec", "spec.py"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["status"] for each in found] == ["pass", "wrong", "pass"]


@pytest.mark.parametrize("words", [["--spec", "spec.py"], ["a.py", "--jsonl", "--spec", "spec.py"]])
def test_one_candidate_or_many(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["judge", *words]) == 2
    assert "give one candidate, or --jsonl to read many" in capsys.readouterr().err


def test_a_line_that_names_no_candidate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"path": "a.py"}\n'))
    assert main(["judge", "--jsonl", "--spec", "spec.py"]) == 2
    assert 'is no candidate: give a path or {"candidate": path} a line' in capsys.readouterr().err
