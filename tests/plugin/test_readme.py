"""What the README shows is what happens."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]


@pytest.mark.parametrize("index", range(len(PYTHON)))
def test_every_python_snippet_runs(pytester: pytest.Pytester, index: int) -> None:
    """Each is a test file of its own; without a GPU its limits are shown, not enforced."""
    pytester.makepyfile(**{f"test_snippet_{index}": PYTHON[index]})
    quickly = ("--gpu-bench-cache=hot", "--gpu-bench-warmup=1", "--gpu-bench-max-time=0.05")
    result = pytester.runpytest_subprocess("-p", "no:benchmark", "-p", "no:cacheprovider", "-W", "error", *quickly)
    outcomes = result.parseoutcomes()
    assert result.ret == 0, result.stdout.str()
    assert outcomes.get("passed", 0) >= 1


def test_every_command_shown_is_understood(pytester: pytest.Pytester) -> None:
    """Options and all: each `pytest ...` line is tried on an empty folder, where nothing is collected."""
    lines = [line.split("#")[0].strip() for language, code in BLOCKS if language == "sh" for line in code.splitlines()]
    commands = [line for line in lines if line.startswith("pytest ")]
    assert commands
    for command in commands:
        arguments = [word for word in shlex.split(command)[1:] if not word.startswith(("example_suite", "tests"))]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments], cwd=pytester.path, capture_output=True, text=True, check=False
        )
        nothing = pytest.ExitCode.TESTS_FAILED if "-require=" in command else pytest.ExitCode.NO_TESTS_COLLECTED
        assert done.returncode == nothing, (command, done.stdout, done.stderr)
