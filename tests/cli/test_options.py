import pytest

from pytest_gpubench.cli import main
from pytest_gpubench.plugin.options import markdown_table


def test_options_prints_the_readme_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options"]) == 0
    assert capsys.readouterr().out.strip() == markdown_table()
