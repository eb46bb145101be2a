"""The files of one of the two versions: what its runs import, and what they keep."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.results.provenance import GIT_PLACES
from pytest_gpubench.verdict.rounds import Arm

ASK_ORIGINS = """
import importlib.util, sys
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        continue
    if spec is not None and spec.origin and spec.has_location:
        print(name, spec.origin, sep="\\t")
"""


@dataclass(frozen=True)
class Tree:
    """One of the two versions: where its files are, and where in them the tests are run."""

    arm: Arm
    root: Path
    folder: Path
    """Where pytest runs: what stands for the folder that `ab` was called in."""
    origin: Path
    """The root of the working tree."""
    state: Path
    """Where its runs keep what must not be the other's: caches of pytest, hypothesis and torch's extensions."""

    @property
    def is_worktree(self) -> bool:
        """Whether it was checked out for this comparison."""
        return self.root != self.origin

    def environment(self) -> dict[str, str]:
        """Return the variables for its runs: this tree is imported first, and nothing is imported from the other.

        The caches of Triton and Inductor are shared: what is in them is found by the source it was compiled from.
        torch's extensions are not, they are found by their name.
        """
        environment = {name: value for name, value in os.environ.items() if not _is_of_outer_run(name)}
        before = [self.rebased(entry) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
        own = [str(path) for path in (self.folder, self.root, self.root / "src") if path.is_dir()]
        return environment | {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([*own, *before])),
            "TORCH_EXTENSIONS_DIR": str(self.state / "torch_extensions"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.state / "hypothesis"),
        }

    def rebased(self, text: str) -> str:
        """Return a path in the working tree as the same path in this one; other texts as they are."""
        path = Path(text)
        if not path.is_absolute() or not path.is_relative_to(self.origin):
            return text
        return str(self.root / path.relative_to(self.origin))

    def foreign_modules(self) -> dict[str, str]:
        """Return the packages and modules of this tree that Python would import from elsewhere, with where from."""
        own = {name for folder in (self.root, self.root / "src") for name in _importable_names(folder)}
        return {
            name: origin
            for name, origin in self._origins(sorted(own)).items()
            if not Path(origin).resolve().is_relative_to(self.root)
        }

    def _origins(self, names: Sequence[str]) -> dict[str, str]:
        """Return which file Python would import each name from, in this tree; without those that it would not find."""
        asked = subprocess.run(
            [sys.executable, "-c", ASK_ORIGINS, *names],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            errors="replace",
        )
        return dict(line.split("\t", 1) for line in asked.stdout.splitlines() if "\t" in line)


def _importable_names(folder: Path) -> list[str]:
    packages = [path.parent.name for path in folder.glob("*/__init__.py")]
    modules = [path.stem for path in folder.glob("*.py")]
    return [name for name in [*packages, *modules] if name.isidentifier()]


def _is_of_outer_run(name: str) -> bool:
    """Tell the variables that would make twelve runs write to one CI summary, or take themselves for xdist workers."""
    return name.startswith("PYTEST_XDIST_") or name in (*GIT_PLACES, "PYTEST_CURRENT_TEST", "GITHUB_STEP_SUMMARY")
