"""Which saved runs a command is about: the arguments that say so, and the runs that they name."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import Settings, environment_name

if TYPE_CHECKING:
    from pytest_gpubench.results.model import SavedRun
    from pytest_gpubench.results.store import Storage, Stored

RUN_HELP = "a file, the name or the number of a saved run, or latest"


def add_parser(
    commands: "argparse._SubParsersAction[Any]", name: str, about: str, examples: str
) -> argparse.ArgumentParser:
    """Add a command with what it is about, in a sentence without a full stop, and examples, a line each."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog="examples:\n" + "\n".join(f"  pytest-gpubench {line}" for line in examples.splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add where runs are saved, and of which device they are."""
    builtin = Settings.storage
    default = os.environ.get(environment_name("storage")) or builtin
    parser.add_argument("--storage", metavar="DIR", default=default, help=f"where runs are saved (default: {builtin})")
    parser.add_argument("--device", metavar="NAME", help="only runs on devices with this in their name: h200")


def open_storage(arguments: argparse.Namespace) -> "Storage":
    """Return the folder of saved runs."""
    from pytest_gpubench.results.store import Storage

    return Storage(Path(arguments.storage))


def list_stored(arguments: argparse.Namespace) -> "list[Stored]":
    """Return the saved runs of the devices asked for, oldest first; raise BadRequest where only others have some."""
    found = open_storage(arguments).runs()
    kept = [stored for stored in found if is_wanted(stored.device, arguments.device)]
    if found and not kept:
        folders = ", ".join(sorted({stored.device for stored in found}))
        raise BadRequest(f"--device={arguments.device}: {arguments.storage} has runs of {folders} only")
    return kept


def nothing_saved(arguments: argparse.Namespace) -> str:
    """Return what to say where there are no saved runs."""
    return f"{arguments.storage}: there are no saved runs; pytest --gpu-bench-save=NAME saves one"


def is_wanted(folder: str, device: str | None) -> bool:
    """Tell whether a device's folder is that of the device asked for, whatever its spelling; None asks for any."""
    return device is None or letters(device) in letters(folder)


def letters(text: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(each for each in text.lower() if each.isalnum())


def find_paths(which: str, arguments: argparse.Namespace) -> list[Path]:
    """Return the files that a name, a number, a path or `latest` means: one, or one for each device.

    Raises BadFile where there is none, and BadRequest where none is of the device asked for.
    """
    found = open_storage(arguments).find(which)
    if found == [Path(which)]:
        return found
    kept = [path for path in found if is_wanted(path.parent.name, arguments.device)]
    if not kept:
        folders = ", ".join(path.parent.name for path in found)
        raise BadRequest(f"--device={arguments.device}: {which} is a run of {folders or 'no device'} only")
    return kept


def read_only_one(which: str, arguments: argparse.Namespace) -> "tuple[Path, SavedRun]":
    """Return the file that is meant and its run; raise BadRequest where several devices have one."""
    from pytest_gpubench.results.store import read_run

    paths = find_paths(which, arguments)
    if len(paths) > 1:
        raise BadRequest(
            f"{which} is a run of several devices ({', '.join(path.parent.name for path in paths)}): "
            f"choose one with --device"
        )
    return paths[0], read_run(paths[0])


def run_title(path: Path, run: "SavedRun") -> str:
    """Return a line that says which run it is: file, date, commit."""
    parts = [path.name, when(run), commit_text(run) or "commit not known"]
    return ", ".join(part for part in parts if part)


def when(run: "SavedRun") -> str:
    """Return the minute at which a run ended, with its zone."""
    from pytest_gpubench.results.provenance import minute_text

    return minute_text(run.datetime)


def commit_text(run: "SavedRun") -> str:
    """Return the commit's first eight letters, and whether files differed from it; empty where it is not known."""
    commit = run.commit_info
    return f"{commit.id[:8]}{'+dirty' if commit.dirty else ''}" if commit.id else ""
