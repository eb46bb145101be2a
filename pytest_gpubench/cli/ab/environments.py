"""The two Python environments of a comparison, and every package that differs between them."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_gpubench.cli.ab.checkouts import Checkout, last_line
from pytest_gpubench.cli.output import say
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.counterpart import FactChange
from pytest_gpubench.units import count
from pytest_gpubench.verdict.rounds import CommitArm

MISSING = "not installed"
OTHER_FILES = "with other files"
LIST_PACKAGES = """
import hashlib, importlib.metadata, importlib.util, json, platform, re

def digest(record):
    lines = [line for line in (record or "").splitlines() if not line.startswith("..") and ",sha256=" in line]
    own = [line for line in lines if not line.rpartition("/")[2].startswith(("INSTALLER,", "REQUESTED,"))]
    return hashlib.sha256("\\n".join(sorted(own)).encode()).hexdigest()

found = {}
for each in importlib.metadata.distributions():
    name = each.metadata["Name"]
    if name:
        found.setdefault(re.sub("[-_.]+", "-", name).lower(), [each.version, digest(each.read_text("RECORD"))])
found["Python"] = [platform.python_version(), ""]
print(json.dumps([found, importlib.util.find_spec("pytest_gpubench") is not None]))
"""
"""Prints the version of each package with a digest of its files, and whether this plugin is there."""


@dataclass(frozen=True)
class Package:
    """A package that is installed."""

    version: str
    digest: str
    """Of the list of its files with their hashes; the same where nothing is known of them."""


def with_environments(
    checkouts: Mapping[CommitArm, Checkout], base_python: str | None, head_python: str | None
) -> dict[CommitArm, Checkout]:
    """Return checkouts that run in these environments, with the packages that differ; None is this one's.

    Raises BadRequest for an interpreter that cannot be run or has no pytest-gpubench.
    """
    given: dict[CommitArm, str | None] = {"BASE": base_python, "HEAD": head_python}
    if not any(given.values()):
        return dict(checkouts)
    chosen = {arm: _with_python(each, given[arm]) for arm, each in checkouts.items()}
    changes = package_changes(*(packages_of(chosen[arm]) for arm in given))
    say(f"{count(len(changes), 'package')} {'differs' if len(changes) == 1 else 'differ'} between the environments")
    base, head = ({name: values[side] for name, *values in changes} for side in (0, 1))
    return {"BASE": replace(chosen["BASE"], packages=base), "HEAD": replace(chosen["HEAD"], packages=head)}


def _with_python(checkout: Checkout, given: str | None) -> Checkout:
    if given is None:
        return checkout
    found = shutil.which(given)
    if found is None:
        raise BadRequest(
            f"--{checkout.arm.lower()}-python {given}: there is no such program; give the interpreter of an "
            "environment, as in venv/bin/python"
        )
    # not resolved: what a link in an environment leads to is the interpreter without the environment
    return replace(checkout, python=os.path.abspath(found), title=f"{checkout.title}, with {given}")


def packages_of(checkout: Checkout) -> dict[str, Package]:
    """Return the packages that a checkout's interpreter finds, and Python itself; raise BadRequest."""
    done = subprocess.run(
        [checkout.python, "-c", LIST_PACKAGES],
        cwd=checkout.folder,
        env=checkout.environment(),
        capture_output=True,
        text=True,
        errors="replace",
    )
    option = f"--{checkout.arm.lower()}-python {checkout.python}"
    if done.returncode:
        raise BadRequest(
            f"{option}: it does not list its packages ({last_line(done.stderr)}); give a Python of 3.10 on"
        )
    found, has_plugin = json.loads(done.stdout)
    if not has_plugin:
        raise BadRequest(f"{option}: pytest-gpubench is not installed there; install it with the tests' own packages")
    return {name: Package(*values) for name, values in found.items()}


def package_changes(base: Mapping[str, Package], head: Mapping[str, Package]) -> list[FactChange]:
    """Return each package that differs, by name: in its version, or with the same version in its files."""
    changes = []
    for name in sorted({*base, *head}, key=str.lower):
        was, now = base.get(name), head.get(name)
        if was == now:
            continue
        versions = [MISSING if each is None else each.version for each in (was, now)]
        if versions[0] == versions[1]:
            versions[1] += f" {OTHER_FILES}"
        changes.append((name, versions[0], versions[1]))
    return changes


def differing_packages(checkouts: Mapping[CommitArm, Checkout]) -> list[FactChange]:
    """Return the packages that differ between the environments of two checkouts."""
    base, head = checkouts["BASE"].packages, checkouts["HEAD"].packages
    return [(name, was, head[name]) for name, was in base.items()]
