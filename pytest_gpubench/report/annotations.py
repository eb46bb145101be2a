"""Failures as GitHub's workflow commands, which it shows on the line of the test that failed."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_gpubench.units import count, first_few, printable, shortened

MOST_SHOWN = 10
"""Errors, and warnings, that GitHub shows of one step; it drops the others without a word."""
MOST_TITLES = 5
"""Titles that the command which stands for the others names."""
LONGEST_TITLE = 255
"""Characters: the limit of `title` in GitHub's "REST API endpoints for check runs"."""
LONGEST_MESSAGE = 4000
"""Characters: the runner cuts messages after 4,096."""

IN_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
IN_PROPERTY = {**IN_DATA, ":": "%3A", ",": "%2C"}


@dataclass(frozen=True)
class Annotation:
    """A message about one line of a checkout."""

    path: str
    """Absolute; empty where there is no file to point at."""
    line: int | None
    """Counted from 1; None where only the file is known."""
    title: str
    sentence: str
    level: Literal["error", "warning"] = "error"


def github_lines(failures: Iterable[Annotation], root: str = "") -> list[str]:
    """Return a workflow command for each place, errors first; one stands for all above ten of a level.

    root: of the checkout, which GitHub names in GITHUB_WORKSPACE; empty where it is not known. A file outside of it is
    told in the sentence, as GitHub has no line of it to show. GitHub reads a command at the start of a line of the
    output only. Its form and its escaping are those of "Workflow commands for GitHub Actions" in GitHub's
    documentation, sections "Setting an error message" and "Setting a warning message", and of actions/toolkit, which
    that page is about; GitLab has none, and takes its annotations from JUnit.
    """
    places = list(failures)
    lines = []
    for level, noun in (("error", "failure"), ("warning", "warning")):
        own = [place for place in places if place.level == level]
        shown = own if len(own) <= MOST_SHOWN else own[: MOST_SHOWN - 1]
        lines += [command(place, root) for place in shown]
        if others := own[len(shown) :]:
            title = f"{count(len(others), f'more {noun}')} of GPU benchmarks"
            named = first_few([place.title for place in others], MOST_TITLES)
            sentence = f"not shown on their lines, as GitHub shows {MOST_SHOWN} at most: {named}"
            lines.append(command(Annotation("", None, title, sentence, others[0].level), root))
    return lines


def command(place: Annotation, root: str) -> str:
    """Return the workflow command for one place."""
    inside, sentence = _path_in_checkout(place.path, root), place.sentence or place.title
    line = str(place.line) if inside and place.line is not None and place.line >= 1 else ""
    if place.path and not inside:
        sentence = f"{place.path}{'' if place.line is None else f':{place.line}'}: {sentence}"
    properties = {"file": inside, "line": line, "title": shortened(place.title, LONGEST_TITLE)}
    written = ",".join(f"{name}={_command_escaped(value, IN_PROPERTY)}" for name, value in properties.items() if value)
    message = _command_escaped(shortened(sentence, LONGEST_MESSAGE), IN_DATA)
    return f"::{place.level}{written and ' '}{written}::{message}"


def _path_in_checkout(path: str, root: str) -> str:
    """Return a file's path from the root of the checkout, with slashes; empty where it is not within it."""
    if not os.path.isabs(path):
        return ""
    for file, folder in ((path, root), (os.path.realpath(path), os.path.realpath(root))):
        if root and Path(os.path.normpath(file)).is_relative_to(os.path.normpath(folder)):
            return Path(os.path.relpath(file, folder)).as_posix()
    return ""


def _command_escaped(text: str, escapes: dict[str, str]) -> str:
    """Return a text with all characters escaped that would end its command or property, or cannot be printed."""
    return "".join(escapes.get(each) or printable(each) for each in text)
