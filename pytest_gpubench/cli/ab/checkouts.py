"""Check commits out into worktrees that are removed again, and make the environment of their runs."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpubench.child_process import INTERRUPTS, inner_environment, signals_handled
from pytest_gpubench.cli.output import say
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.provenance import GIT_PLACES, run_git
from pytest_gpubench.units import count
from pytest_gpubench.verdict.rounds import COMMIT_ARMS, CommitArm


@dataclass(frozen=True)
class Checkout:
    """The files of BASE or HEAD, and where in them pytest runs."""

    arm: CommitArm
    root: Path
    folder: Path
    """The folder that pytest runs in: the one that `ab` was called in, in this checkout."""
    origin: Path
    """The root of the working tree."""
    state: Path
    """The folder of caches that the other must not share: pytest's, hypothesis's and torch's extensions."""
    title: str = ""
    """Its name for people: `main (0756d31c)`."""
    python: str = sys.executable
    """The interpreter of its runs."""
    path: Sequence[str] = field(default_factory=lambda: tuple(sys.path))
    """The interpreter's own path, on which an editable installation puts a folder of the working tree."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The versions of the packages that differ from the other's, by name."""

    @property
    def is_worktree(self) -> bool:
        """True if it was checked out for this comparison."""
        return self.root != self.origin

    def environment(self) -> dict[str, str]:
        """Return the variables of its runs, which import from this checkout first and never from the other.

        Both share the caches of Triton and Inductor, which find a kernel by its source. torch finds an extension by its
        name, so each checkout has its own.
        """
        environment = inner_environment(*GIT_PLACES)
        before = [self.rebased(entry) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
        installed = [entry for entry in map(self.rebased, self.path) if entry not in self.path]
        # but for an environment that lies in the working tree
        before += [entry for entry in installed if "site-packages" not in entry]
        own = [str(path) for path in (self.folder, self.root, self.root / "src") if path.is_dir()]
        if self.python != sys.executable:  # so that --setup finds it as `python`
            folders = [str(Path(self.python).parent), environment.get("PATH", os.defpath)]
            environment["PATH"] = os.pathsep.join(folders)
        return environment | {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([*own, *before])),
            "TORCH_EXTENSIONS_DIR": str(self.state / "torch_extensions"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.state / "hypothesis"),
        }

    def rebased(self, text: str) -> str:
        """Return a path in the working tree, or an option with one, as in this checkout; others as they are."""
        option, equals, place = text.partition("=") if text.startswith("-") else ("", "", text)
        path = Path(place)
        if not path.is_absolute() or not path.is_relative_to(self.origin):
            return text
        return f"{option}{equals}{self.root / path.relative_to(self.origin)}"

    def take_tests(self, paths: Sequence[str], source: "Checkout") -> None:
        """Replace these files and folders with those of another checkout; raise BadRequest."""
        for path in paths:
            there, here = (Path(os.path.normpath(each.folder / each.rebased(path))) for each in (source, self))
            if not there.exists() or not there.is_relative_to(source.root) or there == source.root:
                raise BadRequest(f"--tests {path}: it names no file or folder within {source.arm}, {source.title}")
            if not here.parent.resolve().is_relative_to(self.root):
                raise BadRequest(
                    f"--tests {path}: in {self.arm} a link on the way leads out of it; name the link itself"
                )
            if here.is_dir() and not here.is_symlink():
                shutil.rmtree(here)
            else:
                here.unlink(missing_ok=True)
            here.parent.mkdir(parents=True, exist_ok=True)
            if there.is_dir():
                shutil.copytree(there, here, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(there, here)


@dataclass
class Workspace:
    """A temporary folder with the worktrees, the results and the logs."""

    repository: Path
    """The root of the working tree."""
    here: Path
    """The folder that `ab` was called in."""
    folder: Path

    @classmethod
    @contextmanager
    def open(
        cls, keep: bool, base: str, head: str | None, one_environment: bool
    ) -> Iterator[tuple["Workspace", dict[CommitArm, Checkout]]]:
        """Check both commits of the repository around this folder out; remove all in the end unless it is to be kept.

        head: None for the working tree. one_environment: False where both are run by a Python of their own.
        """
        here = Path.cwd().resolve()
        found = _git_or_refuse(here, "rev-parse", "--show-toplevel")
        if found.returncode:
            why = f"{here} is not in the working tree of a git repository ({last_line(found.stderr)})"
            raise BadRequest(f"{why}: run this where the commits are")
        repository = Path(found.stdout.strip()).resolve()
        workspace = cls(repository, here, Path(tempfile.mkdtemp(prefix="gpubench-ab-")).resolve())
        try:
            yield workspace, workspace._check_out(base, head, one_environment)
        finally:
            if keep:
                say(f"kept: {workspace.folder} (remove its worktrees with git worktree remove)")
            else:
                with signals_handled(signal.SIG_IGN, *INTERRUPTS):
                    for arm in COMMIT_ARMS:
                        workspace._remove_worktree(arm)
                    shutil.rmtree(workspace.folder, ignore_errors=True)

    def _check_out(self, base: str, head: str | None, one_environment: bool) -> dict[CommitArm, Checkout]:
        head_commit = self.commit("HEAD" if head is None else head)
        base_commit = self._base_commit(base, head_commit)
        base_title, head_title = f"{base} ({base_commit[:8]})", f"{head} ({head_commit[:8]})"
        if changed := len(self.git("status", "--porcelain").stdout.splitlines()):
            head_title += f"; {count(changed, 'changed file')} of the working tree left out"
        if head is None:
            state = f"with {count(changed, 'changed file')}" if changed else "which is clean"
            head_title = f"the working tree as it is, {state}, at {head_commit[:8]}"
        say(f"BASE is {base_title}")
        say(f"HEAD is {head_title}")
        if base_commit == head_commit and head is not None and one_environment:
            say("BASE and HEAD are the same commit: every difference is noise")
        checkouts: dict[CommitArm, Checkout] = {"BASE": self.add_worktree("BASE", base_commit, base_title)}
        if head is None:
            checkouts["HEAD"] = self._checkout("HEAD", head_title, self.repository, self.here)
        else:
            checkouts["HEAD"] = self.add_worktree("HEAD", head_commit, head_title)
        if any((each.root / ".gitmodules").exists() for each in checkouts.values() if each.is_worktree):
            say("submodules are not checked out: --setup 'git submodule update --init' does it")
        return checkouts

    def git(self, *words: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run git in the repository, or in a worktree of it."""
        return _git_or_refuse(folder or self.repository, *words)

    def commit(self, revision: str) -> str:
        """Return the full name of a commit; raise BadRequest if it is not known here."""
        found = self.git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if found.returncode == 0 and not revision.startswith("-"):
            return found.stdout.strip()
        remedy = "fetch it first, or see git branch --all"
        if ".." in revision:
            remedy = "give two commits with a space between them"
        if self.git("rev-parse", "--is-shallow-repository").stdout.strip() == "true":
            remedy = "this clone is shallow, fetch its history first (git fetch --unshallow)"
        raise BadRequest(f"{revision!r} names no commit of {self.repository}: {remedy}")

    def _base_commit(self, base: str, head_commit: str) -> str:
        """Return a commit; of a branch with three dots after it, the one where HEAD left it, as `git diff` means it."""
        branch = base.removesuffix("...")
        if branch == base:
            return self.commit(base)
        found = self.git("merge-base", self.commit(branch), head_commit)
        if found.returncode:
            raise BadRequest(f"{branch} and HEAD have no commit in common: fetch the whole history (fetch-depth: 0)")
        return found.stdout.strip()

    def add_worktree(self, arm: CommitArm, commit: str, title: str) -> Checkout:
        """Check a commit out into a worktree, in place of the arm's last one; raise BadRequest.

        The repository's hooks are not run.
        """
        root = self._remove_worktree(arm)
        without_hooks = ("-c", f"core.hooksPath={os.devnull}")
        made = self.git(*without_hooks, "worktree", "add", "--quiet", "--detach", str(root), commit)
        if made.returncode:
            raise BadRequest(f"git could not check {commit[:8]} out into {root}: {last_line(made.stderr)}")
        folder = root / self.here.relative_to(self.repository)
        if not folder.is_dir():
            raise BadRequest(f"{arm} has no folder {folder.relative_to(root)}: run this in one that both commits have")
        return self._checkout(arm, title, root, folder)

    def _checkout(self, arm: CommitArm, title: str, root: Path, folder: Path) -> Checkout:
        state = self.folder / f"{arm.lower()}-state"
        state.mkdir(exist_ok=True)
        return Checkout(arm, root, folder, self.repository, state, title)

    def _remove_worktree(self, arm: CommitArm) -> Path:
        """Remove an arm's worktree, if there is one; return its folder.

        `git worktree prune` would also remove the user's own, where they lie on a disk that is not mounted.
        """
        root = self.folder / arm.lower()
        shutil.rmtree(root, ignore_errors=True)
        self.git("worktree", "remove", "--force", "--force", str(root))
        return root


def _git_or_refuse(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return run_git(folder, *words)
    except FileNotFoundError:
        raise BadRequest("git is not installed, or not on PATH: ab needs it to check both commits out") from None


def last_line(text: str) -> str:
    """Return the last line of what git printed."""
    return next(reversed(text.strip().splitlines()), "no reason given")
