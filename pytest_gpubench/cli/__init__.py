"""The command `pytest-gpubench`: one module for each of its commands."""

import argparse
import io
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from pytest_gpubench import __version__
from pytest_gpubench.errors import GpuBenchError

MODULES = {
    "list": "runs",
    "show": "show",
    "compare": "compare",
    "ab": "ab.command",
    "bisect": "ab.bisect",
    "merge": "merge",
    "history": "history",
    "replay": "replay",
    "judge": "judge",
    "doctor": "doctor",
    "docs": "docs",
}
RUN_PYTEST = ("ab", "bisect")
EXIT_STATUS = "exit status: 0 fine, 1 a regression or nothing to compare, 2 bad usage or any error (bisect: 125)"
BAD_USAGE = 2
CANNOT_TELL = 125
"""For any error of `bisect` too: `git bisect run` would take 2 for a bad commit."""
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0, 1 for a regression found, 2 for any error (bisect: 125), 130.

    An error that is not expected has its traceback. Python's own status for it would be that of a regression.
    """
    from pytest_gpubench.cli.output import complain

    words = sys.argv[1:] if arguments is None else list(arguments)
    failed = CANNOT_TELL if words[:1] == ["bisect"] else BAD_USAGE
    try:
        for stream in (sys.stdin, sys.stdout):
            if isinstance(stream, io.TextIOWrapper):
                with suppress(ValueError):  # the caller has read from it, or closed it
                    stream.reconfigure(errors="backslashreplace")  # a name in another encoding
        chosen = parse(words)
        return int(chosen.run(chosen))
    except SystemExit as stopped:
        if stopped.code == BAD_USAGE:
            stopped.code = failed
        raise
    except (GpuBenchError, OSError) as error:
        complain(" ".join(words[:1]), [str(error)])
    except Exception:
        with suppress(OSError):
            traceback.print_exc()
    except KeyboardInterrupt:
        return INTERRUPTED
    return failed


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words; those of pytest, after `--`, stay apart from argparse, which forgets where that was."""
    parser = _make_parser(words)
    runs_pytest = words[:1] and words[0] in RUN_PYTEST
    end = words.index("--") if runs_pytest and "--" in words else len(words)
    chosen, unknown = parser.parse_known_args(words[:end])
    if unknown:
        hint = ": arguments of pytest follow --" if runs_pytest else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    chosen.pytest_arguments = words[end + 1 :]
    return chosen


def _make_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands, or only of the one that the words begin with: others are not imported."""
    parser = argparse.ArgumentParser(
        prog="pytest-gpubench",
        description="Look at, compare and tidy up what runs of pytest with the plugin gpu_bench have saved.",
        epilog=EXIT_STATUS,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    wanted = words[:1] if words and words[0] in MODULES else MODULES
    for name in wanted:
        module = import_module(f"{__name__}.{MODULES[name]}")
        examples = [f"  pytest-gpubench {line}" for line in getattr(module, "EXAMPLES", "").splitlines()]
        own = commands.add_parser(
            name,
            help=module.ABOUT,
            description=f"{module.ABOUT[0].upper()}{module.ABOUT[1:]}.",
            epilog="\n".join(["examples:", *examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        own.set_defaults(run=module.run)
        module.add(own)
    return parser
