"""A run written to a file, whole or not at all."""

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
    """Write a run to a file, whole or not at all; folders on the way are made.

    Raises BadFile where it cannot be written.
    """
    data = encode_run(run)
    with telling_why(path, "written"):
        target = Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)  # a pipe or a device: there is nothing to replace
            return
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
