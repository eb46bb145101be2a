"""`judge`: input, output and exit status; judging itself is tested in tests/judge."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import BadRequest, Judgement
from pytest_gpubench.cli import judge, main, parse
from pytest_gpubench.gpu import visible
from pytest_gpubench.judge import judging
from pytest_gpubench.judge.serving import is_answered


class FakeJudge(nullcontext[Any]):
    chosen: Mapping[str, object] = {}

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(self)
        FakeJudge.chosen = more
        print("the spec is loaded")

    def use_spec(self, path: str | None) -> None:
        if path is not None:
            raise BadRequest("a bad spec")

    def __call__(self, path: Path) -> Judgement:
        """Also print, as a spec may: standard output is for judgements."""
        print("the reference is called")
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
    for place in (str(tmp_path / "one.json"), "-"):
        assert main(["judge", "pass.py", "--spec", "spec.py", "--json", place]) == 0
    text, line = capsys.readouterr().out.splitlines()
    assert text == "PASS pass.py: a reason"
    assert json.loads(line) == json.loads((tmp_path / "one.json").read_text())
    assert json.loads(line)["version"] == 4


def test_a_judgement_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths and objects are read, empty lines are not; one that does not pass, or a bad spec, is enough for 1."""
    lines = ["pass.py", "", '{"candidate": "wrong.py"}', '{"candidate": "pass.py", "spec": "bad.py"}', "pass.py"]
    for given, status in ((lines[:1], 0), (lines[:3], 1), (lines[3:], 1)):
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(given)))
        assert main(["judge", "--jsonl", "--spec", "spec.py"]) == status
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each.get("status", each.get("error")) for each in found] == ["pass", "pass", "wrong", "a bad spec", "pass"]


def test_a_bad_spec_of_all_is_bad_usage(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(self: FakeJudge, path: Path) -> Judgement:
        raise BadRequest("zeros are right")

    monkeypatch.setattr(FakeJudge, "__call__", bad)
    monkeypatch.setattr(sys, "stdin", io.StringIO("pass.py\npass.py\n"))
    assert main(["judge", "--jsonl", "--spec", "spec.py"]) == 2
    assert capsys.readouterr().err.count("zeros are right") == 1


PRINTS = """
import os, sys
from contextlib import nullcontext
from types import SimpleNamespace
from pytest_gpubench import Judgement
from pytest_gpubench.cli import main

class Judge(nullcontext):
    def __init__(self, *given, **named):
        os.system("echo the spec is compiled")
        super().__init__(self)

    def use_spec(self, path):
        pass

    def __call__(self, path):
        print("in Python")
        return Judgement(status="pass", reason="", candidate=str(path), spec="", spec_digest="")

sys.modules["pytest_gpubench.judge.judging"] = SimpleNamespace(Judge=Judge)  # imports no torch
sys.exit(main(["judge", "--spec", "spec.py", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("words", [["--jsonl"], ["pass.py", "--json", "-"]])
def test_what_a_spec_writes_by_any_means_goes_to_standard_error(words: list[str]) -> None:
    """In C, by a compiler that it starts, by a kernel that prints."""
    done = subprocess.run(
        [sys.executable, "-c", PRINTS, *words], input="pass.py\n", capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["candidate"] == "pass.py"
    assert {"the spec is compiled", "in Python"} == {*done.stderr.splitlines()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one candidate, or --jsonl to read many"),
        (["a.py", "--jsonl"], "give one candidate, or --jsonl to read many"),
        (["a.py", "--serve", "socket"], "give one candidate, or --jsonl to read many from standard input, or --serve"),
        (["--jsonl", "--serve", "socket"], "give one candidate, or --jsonl to read many"),
        (["--serve", "socket", "--json", "one.json"], "--json writes one judgement: leave it out"),
        (["a.py", "-n", "2"], "-n is for many candidates: give --jsonl"),
        (["a.py", "--ahead", "2"], "--ahead is for many candidates: give --jsonl"),
        (["--jsonl", "--json", "one.json"], "leave it out, as --jsonl and --serve write all"),
    ],
)
def test_one_candidate_or_many(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["judge", "--spec", "spec.py", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_line_that_names_no_candidate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken for a path, where nothing is; the lines after it are judged."""
    lines = ['{"path": "a.py"}', '{"candidate": 3}', "{bad", '{"a":' * 10_000, "3", "\udcff", "pass.py"]
    given = io.BytesIO("\n".join(lines).encode(errors="surrogateescape"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given, "utf-8"))
    assert main(["judge", "--jsonl", "--spec", "spec.py"]) == 1
    found = [json.loads(line)["candidate"] for line in capsys.readouterr().out.splitlines()]
    assert found == [*lines[:-2], r"\xff", "pass.py"]


@pytest.mark.parametrize("words", [[], ["--trust-claims"]])
def test_claims_are_trusted_where_it_is_asked_for(words: list[str]) -> None:
    main(["judge", "pass.py", "--spec", "spec.py", *words])
    assert FakeJudge.chosen["trust_claims"] is bool(words)


REFEREE = """
import json, os, sys
from pathlib import Path
for line in sys.stdin:
    name = Path(json.loads(line)["candidate"] if line[0] == "{" else line.strip()).stem
    if name == "ends": sys.exit(3)
    Path(f"seen {os.getpid()}").touch()
    while name == "pass" and len(list(Path().glob("seen *"))) < 2: pass
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    print(json.dumps({"status": name, "gpu": gpu, "words": sys.argv[1:]}), flush=True)
"""
"""Judges like FakeJudge; a pass takes until another referee has judged, too."""


@pytest.fixture
def referees(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Replace the command of each GPU's referee, on a machine with two GPUs."""
    monkeypatch.setattr(judge, "COMMAND", (sys.executable, "-S", "-c", REFEREE))
    gpus = [visible.VisibleGpu(f"GPU-{number}", number, "H200") for number in range(2)]
    monkeypatch.setattr(visible, "find_visible", lambda: gpus)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("referees")
@pytest.mark.parametrize(
    ("words", "gpus"), [(["-n", "auto"], {"GPU-0", "GPU-1"}), (["-n", "2", "--device", "cpu"], {None})]
)
def test_candidates_are_shared_out_among_gpus(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], gpus: set[str | None]
) -> None:
    """Each has a referee of its own with the same options."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("pass.py\npass.py\nwrong.py\nfail.py\n"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert main(["judge", "--jsonl", "--spec", "spec.py", "--timeout", "7", "--ahead", "3", *words]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(each["status"] for each in found) == ["fail", "pass", "pass", "wrong"]
    assert {each["gpu"] for each in found} == gpus
    given = parse(["judge", "--jsonl", *found[0]["words"]])
    assert (given.timeout, given.ahead, given.memory, str(given.spec)) == (7, 3, 16 * 2**30, "spec.py")


@pytest.mark.usefixtures("referees")
def test_a_referee_that_ends_costs_one_candidate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an error in its line; the other judges the rest, and the command says so."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("ends.py\nwrong.py\nwrong.py\n"))
    assert main(["judge", "--jsonl", "--spec", "spec.py", "-n", "auto"]) == 2
    out, err = capsys.readouterr()
    assert out.count('"status": "wrong"') == 2
    assert out.count("ended with exit status 3, and ends.py is not judged") == 1
    assert err.endswith("ended with exit status 3\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("ends.py\n" * 100))  # not read for ever: all referees end
    assert main(["judge", "--jsonl", "--spec", "spec.py", "-n", "2"]) == 2


@pytest.mark.parametrize("device", [[], ["--device", "cpu"]])
def test_without_a_gpu_one_process_serves(monkeypatch: pytest.MonkeyPatch, device: list[str]) -> None:
    monkeypatch.setattr(visible, "find_visible", list)
    assert judge._gpus(parse(["judge", "--serve", "socket", "-n", "auto", "--spec", "spec.py", *device])) == [None]


@pytest.mark.usefixtures("referees")
def test_requests_are_answered_on_all_gpus_until_sigterm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that were sent before are answered; the status is 0, and the socket is gone."""
    path, answers = tmp_path / "socket", []

    def ask() -> None:
        while not is_answered(path):
            time.sleep(0.01)
        with socket.socket(socket.AF_UNIX) as end, end.makefile() as lines:
            end.connect(str(path))
            end.sendall(b'{"candidate": "pass.py"}\n' * 2)
            answers.append(lines.readline())
            os.kill(os.getpid(), signal.SIGTERM)
            answers.extend(lines)

    client = threading.Thread(target=ask)
    client.start()
    assert main(["judge", "--serve", str(path), "-n", "auto", "--spec", "spec.py"]) == 0
    client.join()
    assert {json.loads(each)["judgement"]["gpu"] for each in answers} == {"GPU-0", "GPU-1"}
    assert capsys.readouterr().out == f"listening on {path}\n"
    assert not path.exists()
    assert main(["judge", "--serve", str(path / "nowhere"), "--spec", "spec.py"]) == 2
    assert capsys.readouterr().out == "", "nobody listens"
