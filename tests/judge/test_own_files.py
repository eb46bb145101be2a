"""The modules that a spec imports from its folder: they are its own."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pytest_gpubench.judge.spec import read_spec
from pytest_gpubench.judge.spec.own_files import OwnFiles

SPEC = """
import sys
import {module}


def reference():
    import gpu_bench_later
    return {module}.NUMBER, gpu_bench_later.NUMBER, sys.modules[__name__].NUMBER


def inputs(seed): return ()


NUMBER = {number}
"""


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bytecode be written and read, as by default."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def write(folder: Path, number: int, module: str = "gpu_bench_helper") -> Path:
    """Write a spec that imports a module of this name, and another one later; return its path."""
    texts = dict.fromkeys((module, "gpu_bench_later"), f"NUMBER = {number}")
    for name, text in (texts | {"spec": SPEC.format(module=module, number=number)}).items():
        path = folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (10**9, 10**9))
    return folder / "spec.py"


@pytest.mark.parametrize("module", ["gpu_bench_helper", "gpu_bench_helpers.inner"])
def test_specs_have_modules_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Two of the same name, in files of the same name, imported at once or by a call; others are this process's.

    Also one of the same name that it imports later.
    """
    specs = [read_spec(write(tmp_path / str(number), number, module)) for number in range(2)]
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    modules, path = {**sys.modules}, sys.path[:]
    for _ in range(2):
        for number, spec in enumerate(specs):
            with spec.in_use():
                assert spec.reference() == (number, number, number)
    assert (sys.modules, sys.path) == (modules, path)
    assert not [*tmp_path.rglob("*.pyc")]


@pytest.mark.parametrize("edited", ["gpu_bench_helper", "gpu_bench_later", "spec"])
def test_a_spec_is_read_again_with_its_modules(tmp_path: Path, edited: str) -> None:
    """An edit of the same size at the same time is seen in each file: bytecode would be taken for it."""
    spec = read_spec(write(tmp_path, 1))
    with spec.in_use():
        assert spec.reference() == (1, 1, 1)
    before, path = spec.is_current, tmp_path / f"{edited}.py"
    path.write_text(path.read_text().replace("NUMBER = 1", "NUMBER = 2"))
    os.utime(path, (10**9, 10**9))
    assert (before, spec.is_current) == (True, False)
    again = read_spec(tmp_path / "spec.py")
    assert (again.digest == spec.digest) is (edited == "gpu_bench_later"), "nothing had imported it"
    with again.in_use():
        files = ("gpu_bench_helper", "gpu_bench_later", "spec")
        assert again.reference() == tuple(1 + (edited == each) for each in files)


def test_what_is_installed_in_the_folder_is_shared(tmp_path: Path) -> None:
    """As in a virtual environment, which may be imported but once; and Python's own modules."""
    assert not OwnFiles(Path("/")).holds(os.__file__)
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "gpu_bench_installed.py").write_text("")
    spec = write(tmp_path, 1)
    spec.write_text(f"import sys\nsys.path.append({str(packages)!r})\nimport gpu_bench_installed\n{spec.read_text()}")
    try:
        read_spec(spec)
        assert sys.modules.keys() & {"gpu_bench_installed", "gpu_bench_helper"} == {"gpu_bench_installed"}
    finally:
        sys.modules.pop("gpu_bench_installed")
