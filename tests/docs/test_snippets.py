"""What the README and the pages show is run: each snippet as a test file, each command line as far as its options."""

import shlex
from xml.etree import ElementTree

import pytest

from pytest_gpubench.cli import make_parser
from tests.docs.pages import Block, blocks

QUICKLY = ("--gpu-bench-cache=hot", "--gpu-bench-warmup=1", "--gpu-bench-max-time=0.05")
PLAIN = ("-p", "no:benchmark", "-p", "no:cacheprovider")
SHELL = [line.split("#")[0].strip() for block in blocks("sh") for line in block.text.splitlines()]


def name_of(block: Block) -> str:
    """Return the name of a block's test, the same in every run."""
    return f"{block.page}_{block.line}"


def test_every_python_snippet_runs(pytester: pytest.Pytester) -> None:
    """Each is a test file of its own, all of one process; without a GPU limits are shown, not enforced."""
    snippets = blocks("python")
    pytester.makepyfile(**{f"test_{name_of(block)}": block.text for block in snippets})
    result = pytester.runpytest_subprocess(*PLAIN, "-W", "error", "--junitxml=run.xml", *QUICKLY)
    assert result.ret == 0, result.stdout.str()
    cases = {case.get("classname") for case in ElementTree.parse(pytester.path / "run.xml").iter("testcase")}
    assert cases == {f"test_{name_of(block)}" for block in snippets}


@pytest.mark.parametrize("command", [line for line in SHELL if line.startswith("pytest ")])
def test_every_pytest_command_is_understood(pytester: pytest.Pytester, command: str) -> None:
    """It is tried on an empty folder, where nothing is collected."""
    arguments = [word for word in shlex.split(command)[1:] if not word.startswith(("example_suite", "tests", "test_"))]
    result = pytester.runpytest_inprocess(*PLAIN, *arguments)
    nothing = pytest.ExitCode.TESTS_FAILED if "-require=" in command else pytest.ExitCode.NO_TESTS_COLLECTED
    assert result.ret == nothing, (result.stdout.str(), result.stderr.str())


@pytest.mark.parametrize("command", [line for line in SHELL if line.startswith("pytest-gpubench ")])
def test_every_command_is_understood(command: str) -> None:
    words = shlex.split(command)[1:]
    assert make_parser(words).parse_args(words).command == words[0]
