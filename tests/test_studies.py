"""The studies need a GPU; that they can be started needs none."""

import importlib
import statistics
from pathlib import Path

import pytest

from tests.on_gpu.study.__main__ import NAMES
from tests.on_gpu.study.harness import in_fresh_process


@pytest.mark.parametrize("name", NAMES)
def test_a_study_says_what_it_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"tests.on_gpu.study.{name}").main(["--help"])
    assert end.value.code == 0
    assert name in capsys.readouterr().out


@pytest.mark.parametrize("name", ["itself", "checks"])
def test_no_call_is_chosen(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--only=nothing matches none of add 2 x 1 MiB, "):
        importlib.import_module(f"tests.on_gpu.study.{name}").main(["--only=nothing", f"--out={tmp_path / 'out'}"])


def test_a_function_in_a_fresh_process() -> None:
    assert in_fresh_process(statistics.median, [1.0, 2.0, 4.0]) == 2.0
