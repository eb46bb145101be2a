import subprocess
import sys

import pytest
import torch

from pytest_gpubench import __version__
from pytest_gpubench.cli import main
from pytest_gpubench.options import markdown_table


def test_options_prints_the_readme_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options"]) == 0
    assert capsys.readouterr().out.strip() == markdown_table()


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_doctor_without_a_gpu_fails_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "name: " in out
    assert "GPU: none, " in out


@pytest.mark.parametrize("arguments", [[], ["cure"]])
def test_an_unknown_command_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: pytest-gpubench" in capsys.readouterr().err


def test_as_a_module() -> None:
    command = [sys.executable, "-m", "pytest_gpubench", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == __version__
