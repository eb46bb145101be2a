"""Refuse a run that loaded code of the working tree, of the other commit or of a copy in place of its own tree's."""

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.cli.output import say
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.provenance import INSTALLED, run_git
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.rounds import CommitArm

NO_SOURCES = sys.stdlib_module_names | {"__main__"}
IS_NOT = "is not"
REMEDY = (
    "give paths within the repository as relative ones, and put the folder that holds this module on PYTHONPATH; where "
    "an installed package still comes first, give each commit an environment of its own, by --base-python, "
    "--head-python and --setup 'python -m pip install .'"
)


def refuse_foreign_code(
    modules: Mapping[str, str], checkouts: Mapping[CommitArm, Checkout], arm: CommitArm, warned: set[str]
) -> None:
    """Raise BadRequest where a run of an arm loaded code that is not of its own tree, in place of what is.

    modules: the files of the modules that it loaded. warned: the titles of the versions that were warned of
    what is only likely.
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
            path, verb = replaced
            what = f"{arm} loaded {name} from {place} in place of its own {path}"
            sentence = printable(f"{what}, so what it measured {verb} {own.title}: {REMEDY}")
            if verb == IS_NOT:
                raise BadRequest(sentence)
            if own.title not in warned:
                warned.add(own.title)
                say(f"warning: {sentence}")


def _replaced(name: str, place: Path, roots: list[Path], tracked: set[str]) -> tuple[str, str] | None:
    """Return the file of its tree that a run did not load, as it loaded a module from elsewhere; None where it did.

    The other text says how certain that is. roots: its own tree, the others, and the working tree. tracked: the files
    of this name in both commits.
    """
    if INSTALLED.isdisjoint(place.parts):  # an environment in the working tree is none of its sources
        for root in roots:
            if place.is_relative_to(root):
                path = str(place.relative_to(root))
                return (path, IS_NOT) if root != roots[0] and path in tracked else None
    package, _, last = name.rpartition(".")
    if place.stem == "__init__":
        package = name
    elif place.name.partition(".")[0] != last:  # a generated file that has the name of another by chance
        return None
    if name.partition(".")[0] in NO_SOURCES:
        return None
    tail = str(PurePosixPath(package.replace(".", "/"), place.name))
    for path in sorted(path for path in tracked if f"/{path}".endswith(f"/{tail}")):
        own, *others = (root / path for root in roots)
        if path in (tail, f"src/{tail}"):  # these come first on the path
            if own.exists():
                return path, IS_NOT
        elif _content(place) != _content(own) and any(_content(place) == _content(other) != b"" for other in others):
            return path, "may not be"  # or nobody imports the tree's copy
    return None


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
