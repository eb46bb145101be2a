"""Hostile saved runs: no text of theirs reaches the terminal or the log of a CI job as a command."""

from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.results.store import Storage, write_run
from tests.cli.stored import Command
from tests.results.hostile import ATTACK, attacks_in, hostile_run


@pytest.mark.parametrize(
    "words",
    [
        "show run.json",
        "show run.json --verbose",
        "show run.json --markdown -",
        "show run.json --test nothing",
        "compare run.json run.json --verbose",
        "compare run.json other.json --host-mismatch=warn",
        "compare run.json other.json",
        "history * --storage saved",
        "history nothing --storage saved",
        "list --storage saved",
        "list --storage saved --device none",
        "merge run.json other.json -o merged.json",
        "merge run.json run.json other.json -o merged.json --any-commit --keep first",
        "list --prune --storage saved --keep 1 --named",
        "show latest --storage saved",
        "show nothing --storage saved",
        "show run.json --csv",
        "show run.json --markdown",
    ],
)
def test_no_text_of_a_saved_run_is_a_command(command: Command, words: str) -> None:
    write_run(hostile_run(), Path("run.json"))
    write_run(msgspec.structs.replace(hostile_run(nodeid="a.py::test_a", name=f"{ATTACK}other")), Path("other.json"))
    Storage(Path("saved")).save_each(hostile_run(datetime="2026-03-01T12:30:45+00:00"), "main")
    folder = Path(f"saved/{ATTACK.replace('/', '')}")
    folder.mkdir()
    write_run(hostile_run(), folder / f"0001_{ATTACK}.json")
    (folder / "0002_damaged.json").write_text("{")
    _, out, err = command(*words.split())
    assert out + err
    assert attacks_in(out + err) == []


def test_what_is_no_command_stays(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours are ours."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    write_run(hostile_run(nodeid="a.py::test_it[1] é ☃ … #[x] a::b"), Path("run.json"))
    out = command("show", "run.json")[1]
    assert "a.py::test_it[1] é ☃ … #[x] a::b" in out
    assert ("\x1b[1;31m" in out, attacks_in(out)) == (True, [])
