"""A file written whole or not at all: a run, or whatever else is made of one."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store.content import encode_run
from pytest_gpubench.results.store.refusals import telling_why
from pytest_gpubench.results.store.temporary import remove_abandoned

__tracebackhide__ = True


def write_run(run: SavedRun, path: Path) -> None:
    """Write a run to a file as `write_whole` does; raise BadFile."""
    write_whole(encode_run(run), path)


def write_whole(data: bytes, path: Path) -> None:
    """Write a file, whole or not at all; folders on the way are made.

    Raises BadFile where it cannot be written.
    """
    with telling_why(path, "written"):
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or a device has nothing to replace; a folder refuses
            return
        target = Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
        with suppress(FileExistsError):  # a file where a folder should be: to open what is in it fails with that
            target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".gpu-bench-{secrets.token_hex(8)}.tmp")
        with open(temporary, "xb") as file:
            put(data, file, temporary, target)
        remove_abandoned(target)


def put(data: bytes, file: BinaryIO, temporary: Path, target: Path) -> None:
    """Fill the temporary file and give it the target's name; whatever happens, no part of a file has that name."""
    try:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
