"""The names of trace files."""

import hashlib
import re

from pytest_gpubench.units import shortened_inside

ENDING = ".json.gz"
LONGEST_TEST = 120
LONGEST_LABEL = 40
DIGEST = 12
"""Hexadecimal digits that tell names apart which are the same when shortened, or but for capitals."""


def trace_name(nodeid: str, label: str, number: int = 1, example: str = "") -> str:
    """Return the name of the file that holds the trace of a call: safe on any file system, and no other call's.

    number: which it is of the test's measurements with this label, from 1. example: as in `Measurement`.
    """
    whole = "\0".join([nodeid, label, str(number), example])
    digest = hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()[:DIGEST]
    path, _, test = nodeid.partition("::")
    name = _file_part(f"{path.rpartition('/')[2].removesuffix('.py')}.{test}" if test else nodeid, LONGEST_TEST)
    return "-".join([*filter(None, [name, _file_part(label, LONGEST_LABEL)]), digest]) + ENDING


def _file_part(name: str, most: int) -> str:
    """Return a name without the characters that are not safe in a file's, shortened inside where it is too long."""
    return shortened_inside(re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-."), most, "..")
