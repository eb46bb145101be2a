"""Run the commands that a page shows, and compare what they print with what it shows."""

import io
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

import pytest

from pytest_gpubench.cli import main
from tests.cli.ab.faked import replace_processes

CPU = "AMD EPYC"
"""The CPU of the pages."""
MASKS = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d UTC": "DATE",
    r"\b[0-9a-f]{8}\b": "COMMIT",
    r"\b\d+(\.\d+)? ?s\b": "SECONDS",
    r"[─═━]+": "─",
    r" +": " ",
}
"""What differs from machine to machine and from day to day."""
UNSHOWN = re.compile(r"$|(platform|rootdir|configfile|plugins|cachedir|Test order|collected)\b|=+ .* =+$|.*%\]$|> ")
"""Empty lines, and lines of pytest's own."""


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block, with the output that is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def masked(text: str) -> list[str]:
    for pattern, mask in MASKS.items():
        text = re.sub(pattern, mask, text)
    return [line.strip() for line in text.splitlines() if not UNSHOWN.match(line.strip())]


def unprinted(shown: str, printed: str) -> str:
    """Return the first lines that are shown and were not printed; a line of dots stands for any lines."""
    left = "\n".join(masked(printed))
    pattern = ""
    for piece in re.split(r"^ *\.\.\.$", shown, flags=re.MULTILINE):
        pattern += re.escape("\n".join(masked(piece)))
        if not re.match(pattern, left, re.DOTALL):
            return piece
        pattern += ".*?"
    return "" if re.fullmatch(pattern.removesuffix(".*?"), left, re.DOTALL) else shown


def renewed(shown: str, printed: str) -> str:
    """Return what is printed for a page to show; beside dots only from the first to the last line like those shown."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    pieces = re.split(r"^ *\.\.\.$", shown.strip("\n"), flags=re.MULTILINE)
    return "...\n".join(piece_of(piece.strip("\n"), lines) if len(pieces) > 1 else all_of(lines) for piece in pieces)


def all_of(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def piece_of(piece: str, lines: list[str]) -> str:
    """Return the lines from the one most like a piece's first to the one most like its last, after pytest's own."""
    own = list(takewhile(lambda line: UNSHOWN.match(line.strip()), piece.splitlines()))
    rest = piece.splitlines()[len(own) :]
    ends = [get_close_matches(end, lines, 1, 0.3) for end in (rest[:1] + rest[-1:])]
    first, last = (lines.index(end[0]) for end in ends) if ends and all(ends) else (0, -1)
    return all_of([*own, *lines[first : last + 1]])


class Console:
    """What commands print in a folder that the script of the page's name makes."""

    def __init__(
        self,
        page: str,
        pytester: pytest.Pytester,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.pytester, self.capsys, self.monkeypatch = pytester, capsys, monkeypatch
        monkeypatch.setenv("COLUMNS", "120")
        replace_processes(monkeypatch, self.run_of_ab)
        setup = Path(__file__).with_name(f"{page}.sh")
        if setup.exists():
            self.shell(f"bash {setup}")

    def run(self, line: str) -> str:
        """Return what a command line prints, errors first."""
        first, _, filter_ = line.partition("  #")[0].partition(" | ")
        program, *words = shlex.split(first)
        if program == "pytest":
            printed = self.pytester.runpytest_inprocess(*words).stdout.str()
        elif program == "pytest-gpubench":
            self.capsys.readouterr()
            main(words)
            captured = self.capsys.readouterr()
            printed = captured.err + captured.out
        else:
            return self.shell(line)
        return self.shell(filter_, printed) if filter_ else printed

    def run_of_ab(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> int:
        """Run pytest in this process for `ab`, which starts one for each run."""
        with self.monkeypatch.context() as patch:
            patch.chdir(folder)
            for name, value in environment.items():
                patch.setenv(name, value)
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                return int(self.pytester.runpytest_inprocess(*command[3:]).ret)

    def shell(self, line: str, text: str = "") -> str:
        done = subprocess.run(["bash", "-c", line], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
