"""What the README and the pages show is run: each snippet as a test file, each command line as far as its options."""

import re
import shlex
from xml.etree import ElementTree

import pytest

from pytest_gpubench.cli import parse
from tests.docs.pages import blocks

FEW_EXAMPLES = """
from hypothesis import settings

settings.register_profile("few", max_examples=1, database=None)
settings.load_profile("few")
"""
SCRIPT = "\n\ndef test_it_was_run_while_it_was_imported():\n    pass\n"
QUICKLY = ("--gpu-bench-cache=hot", "--gpu-bench-warmup=0", "--gpu-bench-reps=1", "--gpu-bench-given-budget-s=1")
PLAIN = ("-p", "no:benchmark", "-p", "no:cacheprovider")
SHELL = {line.split("  #")[0].strip() for block in blocks("sh") for line in block.text.splitlines()}
SCRIPTS = " ".join(
    " ".join(block.text.replace("\\\n", " ").split()) for name in ("yaml", "bash") for block in blocks(name)
)
COMMANDS = SHELL | set(re.findall(r"pytest(?: (?:-[mn] \w+|--[\w-]+(?:=\S+)?))+", SCRIPTS))


@pytest.mark.usefixtures("forked")
def test_every_python_snippet_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a test file of its own, all of one process; without a GPU limits are shown, not enforced."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.makeconftest(FEW_EXAMPLES)
    snippets = {block.file: block.text for block in blocks("python")}
    assert len(snippets) == len(blocks("python"))
    for name, text in snippets.items():
        (pytester.path / name).write_text(text if "def test_" in text else text + SCRIPT)
    ignored = ("limits are not enforced", "Module already imported so cannot be rewritten")
    warnings = ["-Werror", *(f"-Wignore:{each}" for each in ignored)]
    result = pytester.runpytest_subprocess(*PLAIN, *warnings, "--junitxml=run.xml", *QUICKLY)
    assert result.ret == 0, result.stdout.str()
    cases = {case.get("classname") for case in ElementTree.parse(pytester.path / "run.xml").iter("testcase")}
    assert cases == {name.removesuffix(".py") for name in snippets}


@pytest.mark.parametrize("command", sorted(line for line in COMMANDS if line.startswith("pytest ")))
def test_every_pytest_command_is_understood(pytester: pytest.Pytester, command: str) -> None:
    """It is tried on an empty folder, where nothing is collected and nothing is saved."""
    arguments = shlex.split(command.replace("-n auto", "-n 0"))[1:]
    arguments += ["--gpu-bench-missing-baseline=ignore"] if "-compare-fail" in command else []
    result = pytester.runpytest_inprocess(*PLAIN, *arguments)
    fails = "-require=" in command or "-save=" in command
    nothing = pytest.ExitCode.TESTS_FAILED if fails else pytest.ExitCode.NO_TESTS_COLLECTED
    assert result.ret == nothing, (result.stdout.str(), result.stderr.str())


@pytest.mark.parametrize("command", sorted(line for line in COMMANDS if line.startswith("pytest-gpubench ")))
def test_every_command_is_understood(command: str) -> None:
    words = shlex.split(command)[1:]
    assert parse(words).command == words[0]
