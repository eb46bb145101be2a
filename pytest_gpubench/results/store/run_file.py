"""Read and write the file of a run; refuse, in one sentence, a file that is damaged or not a run."""

import gc
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.files import explaining_os_errors, shown, write_file
from pytest_gpubench.results.model import LONGEST_US, SavedRun
from pytest_gpubench.results.store.schema import File, decode_file, encode_run
from pytest_gpubench.units import printable


def write_run(run: SavedRun, path: Path) -> None:
    """Write a run to a file, whole or not at all; raise BadFile."""
    write_file(encode_run(run), path)


def read_run(path: Path) -> SavedRun:
    """Read a run from a file.

    Raises BadFile, with one sentence, for a file that is missing, damaged, not one of ours, or newer.
    """
    data = _bytes_of(path)
    try:
        with _uncollected():
            file = decode_file(data)
            _check(file)
    except BadFile as error:
        raise BadFile(f"{shown(path)} {error}") from error.__cause__
    return SavedRun(
        records=file.gpu_bench.records,
        earlier=file.gpu_bench.earlier,
        datetime=file.datetime,
        name=file.gpu_bench.name,
        version=file.gpu_bench.version,
        commit_info=file.commit_info,
        machine_info=file.machine_info,
        settings=file.gpu_bench.settings,
        left_out=file.gpu_bench.left_out,
    )


def _bytes_of(path: Path) -> bytes:
    with explaining_os_errors(path, "read"):
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise BadFile(f"{shown(path)} is not a file: name one that --gpu-bench-save or --gpu-bench-json wrote")
        return path.read_bytes().removeprefix(BOM_UTF8)  # some editors and shells write one


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch the garbage collector off: looking again and again at the objects of a large run takes twice as long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check(file: File) -> None:
    """Raise BadFile for a time, or ratio of times, that is not above 0 or too long."""
    for record in (*file.gpu_bench.records, *file.gpu_bench.earlier):
        for item in record.measurements:
            ratios = (item.speedup.ratio, item.speedup.reference_us) if item.speedup else ()
            wrong = [each for each in (*item.timing.samples_us, *ratios) if not 0 < each < LONGEST_US]
            if wrong:
                what = printable(f"{wrong[0]:g} for {item.timing.label} in {record.nodeid}")
                raise BadFile(f"has a number that cannot have been measured: {what}; save the run again")
