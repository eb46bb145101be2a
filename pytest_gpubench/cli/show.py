"""`pytest-gpubench show`: a saved run, as pytest showed it at its end."""

import argparse
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpubench.cli.output import has_colour, write
from pytest_gpubench.cli.saved import RUN_HELP, add_parser, add_storage, find_paths, run_title
from pytest_gpubench.cli.written import write_form
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.units import printable

if TYPE_CHECKING:
    from pytest_gpubench.results.model import SavedRun

EXAMPLES = """show latest
show main --test softmax --verbose
show .gpu_benchmarks/NVIDIA-H200/0003_main.json --html page.html
show latest --markdown - >> $GITHUB_STEP_SUMMARY"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = add_parser(commands, "show", "show a saved run as pytest did at its end", EXAMPLES)
    parser.add_argument("which", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--verbose", action="store_true", help="all measurements, and their kernels")
    parser.add_argument("--test", metavar="PATTERN", help="only tests with this in their id; * and ? stand for others")
    parser.add_argument("--html", metavar="PATH", help="write a page to look at in a browser")
    parser.add_argument("--markdown", metavar="PATH", help="write a summary as Markdown; - is standard output")
    add_storage(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the tables of each run that is meant, or the page or summary that is asked for; 0."""
    from pytest_gpubench.results.store import read_run

    paths = find_paths(arguments.which, arguments)
    if len(paths) > 1 and (arguments.html or arguments.markdown):
        devices = ", ".join(path.parent.name for path in paths)
        raise BadRequest(f"{arguments.which} is a run of several devices ({devices}): choose one with --device")
    for path in paths:
        show(path, select(read_run(path), arguments.test), arguments)
    return 0


def show(path: Path, run: "SavedRun", arguments: argparse.Namespace) -> None:
    """Write a run in the forms that are asked for; as tables where no other is."""
    if arguments.html:
        from pytest_gpubench.report.html.page import html_page

        write_form(html_page(run, None, ()), arguments.html, run, "html")
    if arguments.markdown:
        from pytest_gpubench.report.markdown import markdown_summary

        write_form(markdown_summary(run), arguments.markdown, run, "markdown")
    if not arguments.html and not arguments.markdown:
        write("\n".join([printable(run_title(path, run)), tables(run, arguments.verbose)]))


def tables(run: "SavedRun", verbose: bool) -> str:
    """Return the tables and the lines below them."""
    from pytest_gpubench.report.layout import Screen
    from pytest_gpubench.report.table import render
    from pytest_gpubench.report.terminal import summary_lines
    from pytest_gpubench.settings import Settings

    settings = Settings(verbose=verbose)
    table = render(run.records, settings, Screen.current(has_colour()))
    return "\n".join(["", *([table, ""] if table else []), *summary_lines(run.records, settings)])


def select(run: "SavedRun", pattern: str | None) -> "SavedRun":
    """Return the run with only the tests that a pattern means; None means all. Raise BadRequest where it means none."""
    if pattern is None:
        return run
    import msgspec

    kept = tuple(record for record in run.records if matches(record.nodeid, pattern))
    if not kept:
        raise BadRequest(f"no test of this run has {pattern!r} in its id")
    return msgspec.structs.replace(run, records=kept)


def matches(nodeid: str, pattern: str) -> bool:
    """Tell whether a test's id has a pattern in it; brackets stand for themselves, as parameters have them."""
    return pattern in nodeid or fnmatchcase(nodeid, f"*{pattern.replace('[', '[[]')}*")
