"""Packages that are imported from elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.cli.ab.tree import Tree
from tests.cli.ab.faked import FakePytest, Git, call, commit


def test_packages_that_come_from_elsewhere_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finder that is asked before the path, as some editable installations put one there, wins over PYTHONPATH."""
    origin, root, site = tmp_path / "origin", tmp_path / "tree", tmp_path / "site"
    for folder in (origin / "editable", root / "editable", root / "src" / "mine", site):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (root / "single.py").touch()
    (root / "not-a-name.py").touch()
    (site / "sitecustomize.py").write_text(f"""
import sys, importlib.util
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "editable":
            return importlib.util.spec_from_file_location(name, "{origin}/editable/__init__.py")
sys.meta_path.insert(0, Finder)
""")
    tree = Tree("BASE", root, root, origin, tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    assert tree.foreign_modules() == {}
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert tree.foreign_modules() == {"editable": f"{origin}/editable/__init__.py"}


def test_a_package_on_the_path_of_the_working_tree_does_not_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, root = tmp_path / "origin", tmp_path / "tree"
    for folder in (origin / "package", root / "package"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(origin))
    tree = Tree("BASE", root, root, origin, tmp_path)
    assert tree.environment()["PYTHONPATH"] == str(root)
    assert tree.foreign_modules() == {}


def test_a_warning_says_so(git: Git, fake: FakePytest, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    commit(git, {"us": "10"})
    monkeypatch.setattr(Tree, "foreign_modules", lambda self: {"package": "/there/package.py"})
    call("main", "--rounds", "1")
    warning = "warning: HEAD imports package from /there/package.py, not from its own tree: what is measured is not it"
    assert warning in capsys.readouterr().err
