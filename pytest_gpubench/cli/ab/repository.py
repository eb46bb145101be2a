"""The git repository that the commits are in."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.provenance import GIT_PLACES


@dataclass(frozen=True)
class Repository:
    """A git repository, by the root of its working tree."""

    root: Path

    @classmethod
    def around(cls, folder: Path) -> "Repository":
        """Return the repository that a folder is in; raise BadRequest where there is none, or no git."""
        found = git(folder, "rev-parse", "--show-toplevel")
        if found.returncode:
            raise BadRequest(
                f"{folder} is not in the working tree of a git repository ({_last_line(found.stderr)}): "
                "run this where the commits are"
            )
        return cls(Path(found.stdout.strip()))

    def commit(self, revision: str) -> str:
        """Return the full name of a commit; raise BadRequest if it is not known here."""
        found = git(self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if found.returncode or revision.startswith("-"):
            raise BadRequest(f"{revision!r} names no commit of {self.root}: {self._remedy()}")
        return found.stdout.strip()

    def changed_files(self) -> int:
        """Return how many files differ from the commit that is checked out, untracked ones included."""
        return len(git(self.root, "status", "--porcelain").stdout.splitlines())

    def add_worktree(self, folder: Path, commit: str) -> None:
        """Check a commit out into a new folder, without running the repository's hooks; raise BadRequest."""
        hooks = f"core.hooksPath={os.devnull}"
        made = git(self.root, "-c", hooks, "worktree", "add", "--quiet", "--detach", str(folder), commit)
        if made.returncode:
            raise BadRequest(f"git could not check {commit[:8]} out into {folder}: {_last_line(made.stderr)}")

    def remove_worktree(self, folder: Path) -> None:
        """Remove a worktree, whatever was left in it."""
        git(self.root, "worktree", "remove", "--force", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        git(self.root, "worktree", "prune")

    def _remedy(self) -> str:
        """Return how to have a commit that is not here."""
        if git(self.root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true":
            return "this clone is shallow, fetch its history first (git fetch --unshallow)"
        return "fetch it first, or see git branch --all"


def git(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run git in a folder; raise BadRequest where it is not installed."""
    environment = {name: value for name, value in os.environ.items() if name not in GIT_PLACES}
    try:
        return subprocess.run(
            ["git", *words], cwd=folder, env=environment, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise BadRequest("git is not installed, or not on PATH: ab needs it to check both commits out") from None


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "no reason given")
