"""`pytest-gpubench show`: a saved run, as pytest showed it at its end."""

import argparse
import sys
from pathlib import Path

import msgspec

from pytest_gpubench.cli.arguments import RUN_HELP, add_output, add_storage
from pytest_gpubench.cli.forms import FORMS
from pytest_gpubench.cli.output import has_colour, write, write_raw
from pytest_gpubench.cli.saved import find_path, find_paths, matches, run_title
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.table import render
from pytest_gpubench.report.terminal import summary_lines
from pytest_gpubench.results.files import write_text
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import read_run
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import count, printable, safe_line

ABOUT = "show a saved run as pytest did at its end, or write it for a spreadsheet, a page or another tool"
EXAMPLES = """show latest
show main --test softmax --verbose
show .gpu_benchmarks/NVIDIA-H200/0003_main.json --html page.html
show latest --markdown >> $GITHUB_STEP_SUMMARY
show main --csv run.csv --json run.json
show main --format pytorch-v3 > results/perf.json"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("which", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--verbose", action="store_true", help="all measurements, and their kernels")
    parser.add_argument("--test", metavar="PATTERN", help="only tests with this in their id; * and ? stand for others")
    for name, (_, what) in FORMS.items():
        help = f"write {what} to a file; without PATH, or with -, to standard output"
        add_output(parser, f"--{name}", nargs="?", const="-", dest=name, help=help)
    parser.add_argument("--format", choices=FORMS, help="write one of these to standard output, as --FORMAT alone does")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the tables of each run that is meant, or one run in the forms that are asked for; 0."""
    asked = [(name, path) for name in FORMS if (path := getattr(arguments, name)) is not None]
    asked += [(arguments.format, "-")] if arguments.format else []
    if not asked:
        for path in find_paths(arguments.which, arguments):
            found = _select(read_run(path), arguments.test)
            write("\n".join([printable(run_title(path, found)), _run_text(found, arguments.verbose)]))
        return 0
    found = _select(read_run(find_path(arguments.which, arguments)), arguments.test)
    for name, target in asked:
        _write_form(FORMS[name][0](found), target, found, name)
    return 0


def _write_form(text: str, target: str, run: SavedRun, form: str) -> None:
    """Write a run in one of its forms to a file, and say so on standard error, or to standard output; raise BadFile."""
    if target == "-":
        write_raw(text.rstrip("\n"))
        return
    write_text(text, Path(target))
    print(safe_line(f"{target}: {count(len(run.records), 'test')} as {form}"), file=sys.stderr)


def _run_text(run: SavedRun, verbose: bool) -> str:
    settings = Settings(verbose=verbose)
    screen = Screen.current(has_colour())
    table = render(run.records, settings, screen)
    lines = [line for sentence in summary_lines(run.records, settings) for line in screen.wrapped(sentence)]
    return "\n".join(["", *([table, ""] if table else []), *lines])


def _select(run: SavedRun, pattern: str | None) -> SavedRun:
    """Return the run with only the tests that a pattern means; None means all. Raise BadRequest where it means none."""
    if pattern is None:
        return run
    kept = tuple(record for record in run.records if matches(record.nodeid, pattern))
    if not kept:
        raise BadRequest(f"no test of this run has {pattern!r} in its id")
    return msgspec.structs.replace(run, records=kept)
