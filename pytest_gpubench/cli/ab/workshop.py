"""The folder that all is done in: the two versions are checked out there, and removed again."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpubench.cli.ab.interrupts import interrupts_ignored
from pytest_gpubench.cli.ab.printed import say
from pytest_gpubench.cli.ab.repository import Repository
from pytest_gpubench.cli.ab.tree import Tree
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.units import count
from pytest_gpubench.verdict.rounds import Arm


@dataclass
class Workshop:
    """A temporary folder with the worktrees in it, which are removed when it is left."""

    repository: Repository
    here: Path
    """The folder that `ab` was called in."""
    folder: Path
    keep: bool
    worktrees: list[Path] = field(default_factory=list)

    @classmethod
    @contextmanager
    def opened(cls, keep: bool) -> Iterator["Workshop"]:
        """Make a workshop for the repository around this folder, and clean it up whatever happens."""
        here = Path.cwd().resolve()
        repository = Repository.around(here)
        workshop = cls(repository, here, Path(tempfile.mkdtemp(prefix="gpubench-ab-")).resolve(), keep)
        try:
            yield workshop
        finally:
            workshop.close()

    def make_arms(self, base: str, head: str | None) -> dict[Arm, Tree]:
        """Check the commits out and say what is compared with what; without a head it is the working tree."""
        base_commit = self.repository.commit(base)
        head_commit = None if head is None else self.repository.commit(head)
        say(f"BASE is {base} ({base_commit[:8]})")
        say(self._head_text(head, head_commit))
        if base_commit == head_commit:
            say("BASE and HEAD are the same commit: every difference is noise")
        arms: dict[Arm, Tree] = {"BASE": self._checked_out("BASE", base_commit)}
        arms["HEAD"] = self._working_tree() if head_commit is None else self._checked_out("HEAD", head_commit)
        if any((tree.root / ".gitmodules").exists() for tree in arms.values() if tree.is_worktree):
            say("submodules are not checked out: --setup 'git submodule update --init' does it")
        return arms

    def close(self) -> None:
        """Remove the worktrees and all results, unless they are to be kept; interrupts wait for it."""
        if self.keep:
            say(f"kept: {self.folder} (remove its worktrees with git worktree remove)")
            return
        with interrupts_ignored():
            for worktree in self.worktrees:
                self.repository.remove_worktree(worktree)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _head_text(self, head: str | None, commit: str | None) -> str:
        changed = self.repository.changed_files()
        files = count(changed, "changed file")
        if commit is None:
            state = f"with {files}" if changed else "which is clean"
            return f"HEAD is the working tree as it is, {state}, at {self.repository.commit('HEAD')[:8]}"
        unused = f"; {files} of the working tree left out" if changed else ""
        return f"HEAD is {head} ({commit[:8]}){unused}"

    def _checked_out(self, arm: Arm, commit: str) -> Tree:
        root = self.folder / arm.lower()
        self.worktrees.append(root)
        self.repository.add_worktree(root, commit)
        folder = root / self.here.relative_to(self.repository.root.resolve())
        if not folder.is_dir():
            raise BadRequest(f"{arm} has no folder {folder.relative_to(root)}: run ab in one that both commits have")
        return self._tree(arm, root, folder)

    def _working_tree(self) -> Tree:
        return self._tree("HEAD", self.repository.root.resolve(), self.here)

    def _tree(self, arm: Arm, root: Path, folder: Path) -> Tree:
        state = self.folder / f"{arm.lower()}-state"
        state.mkdir()
        return Tree(arm, root, folder, self.repository.root.resolve(), state)
