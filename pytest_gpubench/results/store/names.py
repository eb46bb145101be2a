"""Name the files and folders of saved runs."""

import hashlib
import re
import unicodedata
from pathlib import Path
from urllib.parse import quote

from pytest_gpubench.results.model import text_of

LONGEST_PART = 180
"""Bytes of a run's name in its file's name; file systems allow 255 with the number and the ending."""

FAILED = "~failed"
"""The end of the name that a run is saved under which failed its limits: nobody's baseline."""


def file_part(name: str) -> str:
    """Return a name as part of a file's name, with the letters that do not fit escaped as in URLs: `a%2Fb`.

    Different names give different parts; one that is too long is cut and ends in a hash of the whole.
    """
    text = text_of(unicodedata.normalize("NFC", name.strip()))
    pieces = [each if re.match(r"[\w.+=@ -]", each) else quote(each, safe="") for each in text]
    part = "".join(pieces)
    if len(part.encode()) <= LONGEST_PART:
        return part
    digest = hashlib.sha256(part.encode()).hexdigest()[:16]
    while len("".join(pieces).encode()) > LONGEST_PART - len(digest) - 1:
        pieces = pieces[: min(len(pieces) - 1, LONGEST_PART)]
    return f"{''.join(pieces)}-{digest}"


def part_of(path: Path) -> str:
    """Return the part of a file's name that stands for the run's name."""
    return path.name.partition("_")[2].removesuffix(".json")


def device_folder(device: str) -> str:
    """Return the name of a GPU model's folder: `NVIDIA-H200`."""
    return re.sub(r"[^\w.]+", "-", text_of(device)).strip("-.")[:80] or "unknown"
