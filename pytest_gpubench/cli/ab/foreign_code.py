"""Refuse a run that loaded code of the working tree, of the other commit or of a copy in place of its own tree's."""

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.provenance import run_git
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.rounds import CommitArm

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""The folders of what is installed; those of an environment in the working tree are no sources of it."""
NO_SOURCES = sys.stdlib_module_names | {"__main__"}
REMEDY = (
    "give paths within the repository as relative ones, and put the folder that holds this module on PYTHONPATH; where "
    "an installed package still comes first, give each commit an environment of its own, by --base-python, "
    "--head-python and --setup 'python -m pip install .'"
)


def refuse_foreign_code(modules: Mapping[str, str], checkouts: Mapping[CommitArm, Checkout], arm: CommitArm) -> None:
    """Raise BadRequest where a run of an arm loaded code that is not of its own tree, in place of what is.

    modules: the files of the modules that it loaded.
    """
    own = checkouts[arm]
    tracked = defaultdict[str, set[str]](set)
    for checkout in checkouts.values():
        for path in run_git(checkout.root, "ls-files", "-z").stdout.split("\0"):
            tracked[path.rpartition("/")[2]].add(path)
    for name, file in sorted(modules.items()):
        place = Path(file).resolve()
        roots = [own.root, *(each.root for each in checkouts.values()), own.origin]
        if replaced := _replaced(name, place, roots, tracked[place.name]):
            what = f"{arm} loaded {name} from {place} in place of its own {replaced}"
            raise BadRequest(printable(f"{what}, so what it measured is not {own.title}: {REMEDY}"))


def _replaced(name: str, place: Path, roots: list[Path], tracked: set[str]) -> str | None:
    """Return the file of its tree that a run did not load, as it loaded a module from elsewhere; None where it did.

    roots: its own tree, the others, and the working tree. tracked: the files of this name in both commits.
    """
    if INSTALLED.isdisjoint(place.parts):
        for root in roots:
            if place.is_relative_to(root):
                path = str(place.relative_to(root))
                return path if root != roots[0] and path in tracked else None
    if name.partition(".")[0] in NO_SOURCES:
        return None
    package = name if place.stem == "__init__" else name.rpartition(".")[0]
    tail = str(PurePosixPath(package.replace(".", "/"), place.name))
    copies = (path for path in tracked if f"/{path}".endswith(f"/{tail}"))
    return next((path for path in sorted(copies) if _is_foreign(path, tail, place, roots)), None)


def _is_foreign(path: str, tail: str, place: Path, roots: list[Path]) -> bool:
    """Tell whether a module is not its tree's own: that comes first on the path, or is another version of it.

    A folder of tests may have the name of what has nothing to do with it.
    """
    own, *others = (root / path for root in roots)
    if path in (tail, f"src/{tail}"):
        return own.exists()
    content = _content(place)
    return content != _content(own) and any(content == _content(other) != b"" for other in others)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
