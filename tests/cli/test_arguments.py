"""`--alpha`, and files to write: parsed and refused in the same way by all commands that take them."""

import pytest

from pytest_gpubench.cli import main, parse
from pytest_gpubench.cli.show import FORMS

COMMANDS = [("compare", "a", "b"), ("history", "x"), ("ab", "main")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("abc", "it must be a number"),
        ("0", "it must be above 0 and finite"),
        ("nan", "it must be above 0 and finite"),
        ("0.5", "it must be below 0.5, or chance decides"),
        ("50%", "it must be below 0.5, or chance decides"),
        ("2", "it must be below 1 (or 100%)"),
    ],
)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_fraction_or_a_percentage(
    words: tuple[str, ...], text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, alpha in {"0.01": 0.01, "1%": 0.01, "0.1 %": 0.001, "49.9%": 0.499}.items():
        assert parse([*words, "--alpha", given]).alpha == pytest.approx(alpha)
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--alpha", text])
    assert stopped.value.code == 2
    assert f"argument --alpha: {text!r} is not valid, {reason}\n" in capsys.readouterr().err


FILES = (
    ("ab", "main", "--markdown"),
    ("ab", "main", "--json"),
    ("ab", "main", "--html"),
    ("doctor", "--noise", "--json"),
    ("merge", "a.json", "-o"),
)
STREAMS = ("judge", "candidate.py", "--spec", "spec.py", "--json"), *(("show", "main", f"--{form}") for form in FORMS)
"""Options that take - for standard output, too."""


@pytest.mark.parametrize("words", [*FILES, *STREAMS], ids=lambda words: f"{words[0]} {words[-1]}")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/absent/out", "there is no folder /absent: make it first, or correct the path"),
        ("/", "it must be the path of a file, and is a folder"),
        ("-", "it must be the path of a file: standard output has the table (./- is a file of this name)"),
    ],
)
def test_a_file_that_cannot_be_written(
    words: tuple[str, ...], path: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if path == "-" and words in STREAMS:
        parse([*words, path])
        return
    with pytest.raises(SystemExit) as stopped:
        main([*words, path])
    assert stopped.value.code == 2
    assert f"{path!r} is not valid, {reason}\n" in capsys.readouterr().err
