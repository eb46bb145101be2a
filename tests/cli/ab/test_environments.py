"""`ab` with two environments: real ones, of which one has a slowed module, and what cannot be one."""

import json
import os
import platform
import re
import sys
from pathlib import Path

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.cli.ab.environments import with_environments
from pytest_gpubench.results.baseline import toolchain
from tests.cli.ab.environment import environment
from tests.cli.ab.faked import FakePytest, Git, call, commit, left

HERE = Path()
TESTS = """
from slowed import SPEED
from pytest_gpubench import scripted

@scripted([10.0 * SPEED])
def kernel(): pass

def test_kernel(gpu_bench): gpu_bench(kernel)
"""


def checkout(**others: object) -> Checkout:
    return Checkout("BASE", HERE, HERE, HERE, HERE, "main (0123)", **others)  # type: ignore[arg-type]


def test_one_commit_in_two_environments(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert re.search(r"^FAIL .*: kernel is slower than in BASE: 1\.060x", shown.out, re.MULTILINE)
    assert re.search(r"^ +with it: old-one 0\.1 -> not installed, slowed 1\.0 -> 1\.1$", shown.out, re.MULTILINE)
    found = json.loads(Path("found.json").read_text())
    assert found["packages"][1] == {"name": "slowed", "base": "1.0", "head": "1.1"}
    assert found["base"].endswith(f", with {fast}")
    assert "<code>slowed</code> | 1.0 | 1.1 |" in Path("found.md").read_text()
    assert left(tmp_path) == []


def differing(base: str, head: str | None = None) -> dict[str, tuple[str, str]]:
    """Return the packages that differ between two environments, given by their interpreters; None is this one's."""
    found = with_environments({"BASE": checkout(), "HEAD": checkout()}, base, head)
    return {name: (was, found["HEAD"].packages[name]) for name, was in found["BASE"].packages.items()}


def test_what_differs_is_a_version_a_package_or_its_files(tmp_path: Path) -> None:
    base = {"a": ("1", "x"), "b": ("1", "x"), "c": ("1", "x"), "d": ("1", "x")}
    head = {"a": ("2", "x"), "b": ("1", "y"), "d": ("1", "x"), "E": ("3", "")}
    for name, packages in (("base", base), ("head", head)):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{json.dumps([packages, True])}'\n")
        (tmp_path / name).chmod(0o755)
    assert list(differing(str(tmp_path / "base"), str(tmp_path / "head")).items()) == [
        ("a", ("1", "2")),
        ("b", ("1", "1 with other files")),
        ("c", ("1", "not installed")),
        ("E", ("not installed", "3")),
    ]


def test_files_of_an_installer_and_scripts_with_the_path_of_an_environment_do_not_differ(tmp_path: Path) -> None:
    """The same package in two folders, and one whose module was built again."""
    sources = {"one": "x = 1", "two": "x = 1", "three": "x = 2"}
    one, two, three = (environment(tmp_path / each, ("Some.Thing", "1.0", source)) for each, source in sources.items())
    assert differing(one, two) == {}
    assert differing(one, three) == {"some-thing": ("1.0", "1.0 with other files")}


def test_python_itself_is_one_of_the_packages(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text('#!/bin/sh\necho \'[{"Python": ["3.9", ""]}, true]\'\n')
    other.chmod(0o755)
    assert differing(str(other))["Python"] == ("3.9", platform.python_version())


def test_packages_are_facts_of_a_run() -> None:
    info = {"torch": "2.11", "ptxas": None, "packages": {"slowed": "1.0"}}
    assert toolchain(info) == {"torch": "2.11", "slowed": "1.0"}
    assert toolchain({"packages": None}) == {}


def test_an_interpreter_is_found_as_a_shell_finds_it_and_its_link_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link in an environment leads to an interpreter that does not know the environment."""
    python = environment(tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    found = with_environments({"BASE": checkout(), "HEAD": checkout()}, "own/bin/python", None)
    assert found["BASE"].python == python
    assert found["BASE"].environment()["PATH"].startswith(f"{tmp_path}/own/bin{os.pathsep}")
    assert found["BASE"].title == "main (0123), with own/bin/python"
    assert found["HEAD"].python == sys.executable
    assert found["HEAD"].environment()["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (None, "--base-python {}: there is no such program; give the interpreter of an environment, as in *"),
        ("echo no module >&2; exit 1", "--base-python {}: it does not list its packages (no module); *"),
        ("echo '[{{}}, false]'", "--base-python {}: pytest-gpubench is not installed there; install it with *"),
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


def test_each_version_is_run_by_its_own_interpreter(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    commit(git, {"us": "10"})
    python = environment(tmp_path / "own")
    assert call("HEAD", "HEAD", "--head-python", python, "--rounds", "1") == 0
    assert [command[0] for command in fake.commands] == [sys.executable, python, python, sys.executable]
