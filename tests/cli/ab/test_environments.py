"""`ab` with two environments: real ones, of which one has a slowed module, and what cannot be one."""

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import BadRequest
from tests.cli.ab.environment import environment
from tests.cli.ab.faked import FakePytest, Git, call, commit, left

TESTS = """
import sys
import types
import pytest
from slowed import SPEED
from pytest_gpubench import scripted

sys.modules["made_up"] = types.SimpleNamespace(__file__="test_a.py")

@scripted([10.0 * SPEED])
def kernel(): pass

def test_kernel(gpu_bench): gpu_bench(kernel)

def test_that_starts_pytest(tmp_path):
    inner = tmp_path / "test_inner.py"
    inner.write_text("def test_failing(): assert 0")
    assert pytest.main([str(inner), "-p", "no:cacheprovider"]) == 1
"""


def test_one_commit_in_two_environments(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file's name that a module has made up, and a run that a test starts, are none of the runs'."""
    monkeypatch.setattr("pytest_gpubench.cli.ab.runs.READY_S", None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    stub = Path(__file__).parents[2].joinpath("plugin", "stub_torch.py").read_text()
    same, torch = ("same", "2.0", ""), ("torch", "2.0", stub)  # scripted functions need no more of it
    fast = environment(tmp_path / "fast", ("slowed", "1.0", "SPEED = 1.0"), same, torch, ("old-one", "0.1", ""))
    slow = environment(tmp_path / "slow", ("slowed", "1.1", "SPEED = 1.06"), same, torch)
    commit(git, {"test_a.py": TESTS})
    options = ["--gpu-bench-timer=scripted", "--gpu-bench-device=cpu", "-p", "no:benchmark", "-p", "no:randomly"]
    words = ["HEAD", "HEAD", "--base-python", fast, "--head-python", slow, "--rounds", "1", "--json", "found.json"]
    assert call(*words, "--markdown", "found.md", "--", *options) == 1
    shown = capsys.readouterr()
    print(shown.err, shown.out)
    assert "2 packages differ between the environments" in shown.err
    assert "every difference is noise" not in shown.err
    assert [line.split() for line in shown.out.splitlines()[2:4]] == [
        ["old-one", "0.1", "not", "installed"],
        ["slowed", "1.0", "1.1"],
    ]
    assert "test_failing" not in shown.out
    assert re.search(r"^FAIL .*: kernel is slower than in BASE: 1\.060x", shown.out, re.MULTILINE)
    assert re.search(r"^ +with it: old-one 0\.1 -> not installed, slowed 1\.0 -> 1\.1$", shown.out, re.MULTILINE)
    found = json.loads(Path("found.json").read_text())
    assert found["packages"][1] == {"name": "slowed", "base": "1.0", "head": "1.1"}
    assert found["base"].endswith(f", with {fast}")
    assert "<code>slowed</code> | 1.0 | 1.1 |" in Path("found.md").read_text()
    assert left(tmp_path) == []


@pytest.fixture
def differing(git: Git, fake: FakePytest) -> Callable[..., dict[str, tuple[str, str]]]:
    """Return the packages that differ between two environments, given by their interpreters."""
    commit(git, {"us": "10"})

    def compare(base: str, head: str) -> dict[str, tuple[str, str]]:
        words = ("--base-python", base, "--head-python", head, "--rounds", "1", "--json", "found.json")
        assert call("HEAD", "HEAD", *words) == 0
        return {
            each["name"]: (each["base"], each["head"])
            for each in json.loads(Path("found.json").read_text())["packages"]
        }

    return compare


def lister(path: Path, packages: Mapping[str, tuple[str, str]]) -> str:
    """Write a program that lists these packages as an interpreter does, each with its version and its files."""
    path.write_text(f"#!/bin/sh\necho noise\necho '{json.dumps([packages, True, []])}'\n")
    path.chmod(0o755)
    return str(path)


def test_what_differs_is_a_version_a_package_or_its_files(differing: Any, tmp_path: Path) -> None:
    """Python itself is one of them."""
    base = {"a": ("1", "x"), "b": ("1", "x"), "c": ("1", "x"), "d": ("1", "x"), "Python": ("3.9", "")}
    head = {"a": ("2", "x"), "b": ("1", "y"), "d": ("1", "x"), "E": ("3", "")}
    found = differing(lister(tmp_path / "base", base), lister(tmp_path / "head", head))
    assert list(found.items()) == [
        ("a", ("1", "2")),
        ("b", ("1", "1 with other files")),
        ("c", ("1", "not installed")),
        ("E", ("not installed", "3")),
        ("Python", ("3.9", "not installed")),
    ]
    assert differing(str(tmp_path / "base"), sys.executable)["Python"] == ("3.9", platform.python_version())


def test_files_of_an_installer_and_scripts_with_the_path_of_an_environment_do_not_differ(
    differing: Any, tmp_path: Path
) -> None:
    """The same package in two folders, and one whose module was built again."""
    sources = {"one": "x = 1", "two": "x = 1", "three": "x = 2"}
    one, two, three = (environment(tmp_path / each, ("Some.Thing", "1.0", source)) for each, source in sources.items())
    assert differing(one, two) == {}
    assert differing(one, three) == {"some-thing": ("1.0", "1.0 with other files")}


def test_an_interpreter_is_found_as_a_shell_finds_it_and_its_link_is_kept(
    git: Git, fake: FakePytest, tmp_path: Path
) -> None:
    """A link in an environment leads to an interpreter that does not know the environment."""
    commit(git, {"us": "10"})
    python = environment(tmp_path / "own")
    assert call("HEAD", "HEAD", "--head-python", os.path.relpath(python), "--rounds", "1") == 0
    assert [command[0] for command in fake.commands] == [sys.executable, python, python, sys.executable]
    own, others = fake.environments[1]["PATH"], fake.environments[0]["PATH"]
    assert (others, own) == (os.environ["PATH"], f"{tmp_path}/own/bin{os.pathsep}{others}")


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (None, "--base-python {}: there is no such program; give the interpreter of an environment, as in *"),
        ("echo no module >&2; exit 1", "--base-python {}: it does not list its packages (no module); *"),
        ("true", "--base-python {}: it does not list its packages (no reason given); *"),
        ("echo '[{{}}, false, []]'", "--base-python {}: pytest-gpubench is not installed there; install it with *"),
    ],
)
def test_what_is_no_environment_is_refused(
    script: str | None, sentence: str, git: Git, fake: FakePytest, tmp_path: Path
) -> None:
    commit(git, {"us": "10"})
    program = tmp_path / "python"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script.format()}\n")
        program.chmod(0o755)
    with pytest.raises(BadRequest) as refused:
        call("HEAD", "HEAD", "--base-python", str(program))
    assert str(refused.value).startswith(sentence.format(program).removesuffix("*"))
    assert fake.commands == []
    assert left(tmp_path) == []
