import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_gpubench import __version__
from pytest_gpubench.cli import main
from pytest_gpubench.results.store import write_run
from tests.cli.stored import COMMANDS, Command, fill
from tests.results.saved import make_run

HEAVY = ("torch", "triton", "pytest", "hypothesis", "pynvml", "numpy")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        *(([], 2), (["cure"], 2), (["show"], 2), (["compare", "one"], 2)),
        # `git bisect run` takes every other status below 128 than 125 for a verdict
        *((["bisect"], 125), (["bisect", "good", "bad", "odd"], 125), (["bisect", "good", "--odd"], 125)),
    ],
)
def test_the_status_of_bad_usage(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == status
    assert "usage: pytest-gpubench" in capsys.readouterr().err


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert re.findall(r"^    (\w+)  ", out, re.MULTILINE) == [*COMMANDS]
    assert "exit status" in out
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ab", "main", "HEAD", "-k", "softmax"], "-k softmax: arguments of pytest follow --"),
        (["bisect", "good", "bad", "test_it.py"], "test_it.py: arguments of pytest follow --"),
        (["docs", "limits", "more"], "more"),
    ],
)
def test_arguments_that_are_not_known_are_named(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert capsys.readouterr().err.endswith(f"error: unrecognized arguments: {said}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_begins_with_what_it_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    out = capsys.readouterr().out
    usage, about, *_ = out.split("\n\n")
    assert usage.startswith(f"usage: pytest-gpubench {name} ")
    assert about.endswith(".")
    assert (f"examples:\n  pytest-gpubench {name}" in out) == (name not in ("ab", "bisect"))


@pytest.mark.parametrize("content", [None, b"[1, 2]"], ids=["missing", "not a run"])
@pytest.mark.parametrize(
    "words",
    [
        ("show", "{}"),
        ("compare", "{}", "good.json"),
        ("compare", "good.json", "{}"),
        ("merge", "good.json", "{}", "-o", "out.json"),
        ("show", "{}", "--csv"),
    ],
)
def test_a_bad_file_is_one_sentence(
    content: bytes | None, words: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    write_run(make_run(), tmp_path / "good.json")
    if content is not None:
        (tmp_path / "bad.json").write_bytes(content)
    status, out, err = command(*(word.format("bad.json") for word in words))
    assert (status, out) == (2, "")
    assert err.startswith(f"pytest-gpubench {words[0]}: ")
    assert "bad.json" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(("name", "status"), [("ab", 2), ("bisect", 125)])
@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        ("ab.checkouts._git_or_refuse", OSError(28, "No space left"), "pytest-gpubench {}: [Errno 28] No space left\n"),
        ("ab.checkouts._git_or_refuse", KeyError("a bug"), "Traceback"),
        ("import_module", ImportError("a package is missing"), "Traceback"),
    ],
)
def test_an_error_is_no_regression(
    place: str, error: Exception, said: str, name: str, status: int, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python's own status of an error would be."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(f"pytest_gpubench.cli.{place}", fail)
    found, _, err = command(name, "main", "HEAD")
    assert (found, err.startswith(said.format(name))) == (status, True)
    monkeypatch.setattr("sys.stderr", Mock(write=Mock(side_effect=BrokenPipeError)))
    assert command(name, "main", "HEAD")[0] == status, "without a reader too"


LIGHT = f"""
import sys
from pytest_gpubench.cli import main

for words in ("list", "show latest", "compare 1 2", "history softmax", "show 1 --csv"):
    assert main(words.split()) == 0, words
    loaded = [name for name in {HEAVY} if name in sys.modules]
    assert not loaded, (words, loaded)
"""


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    fill(tmp_path / ".gpu_benchmarks", days=2)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", LIGHT], cwd=tmp_path, env=environ, capture_output=True)
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_reader_that_stops_is_no_error(tmp_path: Path) -> None:
    """Of what `| head` does not read nothing is said, and the verdict stays; run as a module."""
    fill(tmp_path / ".gpu_benchmarks", days=2, slower_from=2, tests=200, slower=1.7)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command, (reading, writing) = [sys.executable, "-m", "pytest_gpubench", "compare", "1", "2"], os.pipe()
    os.close(reading)
    done = subprocess.run(command, cwd=tmp_path, env=environ, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_standard_input_may_be_closed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as closed:
        monkeypatch.setattr("sys.stdin", closed)
    assert command("list")[0] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the full device of Linux")
@pytest.mark.parametrize("words", [("list",), ("docs", "limits")])
def test_a_full_disk_is_one_sentence(words: tuple[str, ...], command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no regression, as the status 1 of `compare` is."""
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        status, _, err = command(*words)
        full.write("more")  # as the interpreter flushes once more at its end
    said = f"pytest-gpubench {words[0]}: standard output cannot be written: No space left on device\n"
    assert (status, err) == (2, said)
