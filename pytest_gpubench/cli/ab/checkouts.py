"""Check two commits out into worktrees that are removed again, and make the environment of their runs."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpubench.cli.ab.process import INTERRUPTS, signals_handled
from pytest_gpubench.cli.output import say
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.provenance import GIT_PLACES
from pytest_gpubench.units import count
from pytest_gpubench.verdict.rounds import Arm

FIND_ORIGINS = """
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
class Checkout:
    """The files of BASE or HEAD, and where in them pytest runs."""

    arm: Arm
    root: Path
    folder: Path
    """Where pytest runs: the folder that `ab` was called in, in this checkout."""
    origin: Path
    """The root of the working tree."""
    state: Path
    """Where its runs keep what the other must not see: caches of pytest, hypothesis and torch's extensions."""

    @property
    def is_worktree(self) -> bool:
        """Whether it was checked out for this comparison."""
        return self.root != self.origin

    def environment(self) -> dict[str, str]:
        """Return the variables of its runs, which import from this checkout first and never from the other.

        Both share the caches of Triton and Inductor, which find a kernel by its source. torch finds an extension by its
        name, so each checkout has its own.
        """
        environment = {name: value for name, value in os.environ.items() if not _belongs_to_outer_run(name)}
        before = [self.rebased(entry) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
        own = [str(path) for path in (self.folder, self.root, self.root / "src") if path.is_dir()]
        return environment | {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([*own, *before])),
            "TORCH_EXTENSIONS_DIR": str(self.state / "torch_extensions"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.state / "hypothesis"),
        }

    def rebased(self, text: str) -> str:
        """Return a path in the working tree as the same path in this checkout; other texts as they are."""
        path = Path(text)
        if not path.is_absolute() or not path.is_relative_to(self.origin):
            return text
        return str(self.root / path.relative_to(self.origin))

    def foreign_modules(self) -> dict[str, str]:
        """Return the packages and modules of this checkout that Python imports from elsewhere, and from where."""
        files = [path for folder in (self.root, self.root / "src") for path in folder.glob("*/__init__.py")]
        names = {path.parent.name for path in files}
        names |= {path.stem for folder in (self.root, self.root / "src") for path in folder.glob("*.py")}
        asked = subprocess.run(
            [sys.executable, "-c", FIND_ORIGINS, *sorted(name for name in names if name.isidentifier())],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            errors="replace",
        )
        origins = dict(line.split("\t", 1) for line in asked.stdout.splitlines() if "\t" in line)
        return {name: path for name, path in origins.items() if not Path(path).resolve().is_relative_to(self.root)}


@dataclass
class Workspace:
    """A temporary folder with the worktrees, the results and the logs."""

    repository: Path
    """The root of the working tree."""
    here: Path
    """The folder that `ab` was called in."""
    folder: Path
    worktrees: list[Path] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, keep: bool) -> Iterator["Workspace"]:
        """Make a workspace for the repository around this folder, and remove it in the end unless it is to be kept."""
        here = Path.cwd().resolve()
        workspace = cls(_find_repository(here), here, Path(tempfile.mkdtemp(prefix="gpubench-ab-")).resolve())
        try:
            yield workspace
        finally:
            if keep:
                say(f"kept: {workspace.folder} (remove its worktrees with git worktree remove)")
            else:
                workspace._remove()

    def check_out(self, base: str, head: str | None) -> dict[Arm, Checkout]:
        """Check the commits out and say what is compared with what; without a head it is the working tree."""
        base_commit = self._commit(base)
        head_commit = None if head is None else self._commit(head)
        say(f"BASE is {base} ({base_commit[:8]})")
        say(self._head_text(head, head_commit))
        if base_commit == head_commit:
            say("BASE and HEAD are the same commit: every difference is noise")
        checkouts: dict[Arm, Checkout] = {"BASE": self._add_worktree("BASE", base_commit)}
        if head_commit is None:
            checkouts["HEAD"] = self._checkout("HEAD", self.repository, self.here)
        else:
            checkouts["HEAD"] = self._add_worktree("HEAD", head_commit)
        if any((each.root / ".gitmodules").exists() for each in checkouts.values() if each.is_worktree):
            say("submodules are not checked out: --setup 'git submodule update --init' does it")
        return checkouts

    def _commit(self, revision: str) -> str:
        """Return the full name of a commit; raise BadRequest if it is not known here."""
        found = _git(self.repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if found.returncode == 0 and not revision.startswith("-"):
            return found.stdout.strip()
        remedy = "fetch it first, or see git branch --all"
        if _git(self.repository, "rev-parse", "--is-shallow-repository").stdout.strip() == "true":
            remedy = "this clone is shallow, fetch its history first (git fetch --unshallow)"
        raise BadRequest(f"{revision!r} names no commit of {self.repository}: {remedy}")

    def _head_text(self, head: str | None, commit: str | None) -> str:
        changed = len(_git(self.repository, "status", "--porcelain").stdout.splitlines())
        files = count(changed, "changed file")
        if commit is None:
            state = f"with {files}" if changed else "which is clean"
            return f"HEAD is the working tree as it is, {state}, at {self._commit('HEAD')[:8]}"
        unused = f"; {files} of the working tree left out" if changed else ""
        return f"HEAD is {head} ({commit[:8]}){unused}"

    def _add_worktree(self, arm: Arm, commit: str) -> Checkout:
        """Check a commit out into a worktree, without running the repository's hooks; raise BadRequest."""
        root = self.folder / arm.lower()
        self.worktrees.append(root)
        without_hooks = ("-c", f"core.hooksPath={os.devnull}")
        made = _git(self.repository, *without_hooks, "worktree", "add", "--quiet", "--detach", str(root), commit)
        if made.returncode:
            raise BadRequest(f"git could not check {commit[:8]} out into {root}: {_last_line(made.stderr)}")
        folder = root / self.here.relative_to(self.repository)
        if not folder.is_dir():
            raise BadRequest(f"{arm} has no folder {folder.relative_to(root)}: run ab in one that both commits have")
        return self._checkout(arm, root, folder)

    def _checkout(self, arm: Arm, root: Path, folder: Path) -> Checkout:
        state = self.folder / f"{arm.lower()}-state"
        state.mkdir()
        return Checkout(arm, root, folder, self.repository, state)

    def _remove(self) -> None:
        with signals_handled(signal.SIG_IGN, *INTERRUPTS):
            for worktree in self.worktrees:
                _git(self.repository, "worktree", "remove", "--force", "--force", str(worktree))
                shutil.rmtree(worktree, ignore_errors=True)
                _git(self.repository, "worktree", "prune")
            shutil.rmtree(self.folder, ignore_errors=True)


def _find_repository(folder: Path) -> Path:
    found = _git(folder, "rev-parse", "--show-toplevel")
    if found.returncode:
        raise BadRequest(
            f"{folder} is not in the working tree of a git repository ({_last_line(found.stderr)}): "
            "run this where the commits are"
        )
    return Path(found.stdout.strip()).resolve()


def _git(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name not in GIT_PLACES}
    try:
        return subprocess.run(
            ["git", *words], cwd=folder, env=environment, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise BadRequest("git is not installed, or not on PATH: ab needs it to check both commits out") from None


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "no reason given")


def _belongs_to_outer_run(name: str) -> bool:
    """Tell the variables by which all runs would write to one CI summary, or take themselves for xdist workers."""
    return name.startswith("PYTEST_XDIST_") or name in (*GIT_PLACES, "PYTEST_CURRENT_TEST", "GITHUB_STEP_SUMMARY")
