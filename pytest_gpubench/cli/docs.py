"""`pytest-gpubench docs`: the pages of the documentation."""

import argparse
import re
import sys
from pathlib import Path

from pytest_gpubench.cli.output import write, write_raw
from pytest_gpubench.errors import BadRequest

ABOUT = "show a page of the documentation; without a topic, list the pages"
EXAMPLES = "docs\ndocs limits"
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
"""A link, whose target means nothing in a terminal."""
PAGES_FOLDER = Path(__file__).parents[1] / "docs"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help=f"one of {', '.join(topics())}")


def run(arguments: argparse.Namespace) -> int:
    """Show a page: laid out on a terminal, else as Markdown."""
    pages = {topic: (PAGES_FOLDER / f"{topic}.md").read_text(encoding="utf-8") for topic in topics()}
    if arguments.topic is None:
        width = max(map(len, pages))
        titles = {topic: page.splitlines()[0].removeprefix("# ") for topic, page in pages.items()}
        write("\n".join(f"{topic:<{width}}  {title}" for topic, title in titles.items()))
    elif arguments.topic not in pages:
        raise BadRequest(f"there is no page {arguments.topic!r}; the pages are {', '.join(pages)}")
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(LINK.sub(r"\1", pages[arguments.topic])))
    else:
        write_raw(pages[arguments.topic].rstrip("\n"))
    return 0


def topics() -> list[str]:
    """Return the names of all pages."""
    return sorted(path.stem for path in PAGES_FOLDER.glob("*.md"))
