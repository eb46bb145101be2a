"""The shape of the code: who may import whom, and what is public."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_gpubench

PACKAGE = Path(pytest_gpubench.__file__).parent
KNOW_PYTEST = {"plugin"}
KNOW_TORCH = {
    "fixture",
    "judge",
    "bench",
    "structure",
    "replay",
    "timing",
    "gpu",
    "correctness",
    "strategies",
    "plugin",
    "adopt",
    "record",
}
LAYERS = """
    __main__ __init__
    cli
    plugin
    adopt
    engine
    fixture
    public_call
    counted
    running_test
    search
    judge
    bench
    structure replay
    timing correctness strategies report
    gpu verdict record
    results
    limits settings
    metrics stats
    counters
    child_process
    bounds
    units errors spelling
"""
"""The rooms from the top down: a module imports from its own room and from lower lines."""
HEIGHT = {room: -line for line, rooms in enumerate(LAYERS.strip().splitlines()) for room in rooms.split()}
PUBLIC = [PACKAGE / name for name in ("__init__.py", "__main__.py", "bench/__init__.py")]
"""Modules that name what users import, wherever it is."""
SOURCES = sorted(path for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    """Return the folder or file directly below the package that a source belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the modules that a source imports anywhere, functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            names.add(node.module or "")
    return names


def test_imports_point_down() -> None:
    imports = [(path, name) for path in SOURCES for name in imported(path)]
    wrong = [f"{path.relative_to(PACKAGE)}: {name}" for path, name in imports if points_up(path, name)]
    assert not wrong, wrong
    assert {room_of(path) for path in SOURCES} <= set(HEIGHT), "every room has a layer"


def points_up(path: Path, name: str) -> bool:
    """Tell whether a source must not import this module."""
    room, (package, *inner) = room_of(path), name.split(".")
    if package == "pytest_gpubench" and path not in PUBLIC:
        below = inner[0] if inner else "errors"  # the package itself: its version
        return below != room and HEIGHT[below] >= HEIGHT[room]
    if package in ("pytest", "_pytest"):
        return room not in KNOW_PYTEST
    return package in ("torch", "triton") and room not in KNOW_TORCH


def test_classes_are_subscripted_where_they_are_called_only_if_python_3_10_can() -> None:
    """Of `TopologicalSorter[int]()`, a TypeError there, neither mypy nor a newer Python says anything."""
    nodes = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text()))]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = {ast.unparse(each.value) for each in calls if isinstance(each, ast.Subscript)}
    assert {name for name in called if re.search("[A-Z][a-z]", name)} <= {"Counter", "pytest.StashKey"}


def test_public_names_are_sorted_and_there() -> None:
    assert pytest_gpubench.__all__ == sorted(pytest_gpubench.__all__)
    for name in pytest_gpubench.__all__:
        assert getattr(pytest_gpubench, name).__name__.rpartition(".")[2] == name
        assert inspect.getdoc(getattr(pytest_gpubench, name)), name
        assert name in dir(pytest_gpubench)


def test_errors_are_drawn_in_their_tree() -> None:
    from pytest_gpubench import errors

    drawn = re.findall(r"[├└]── (\w+)|^    (\w+)  ", errors.__doc__ or "", re.MULTILINE)
    names = {first or second for first, second in drawn} | {"GpuBenchError"}
    ours = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert names == ours


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Timer'"):
        _ = pytest_gpubench.Timer  # type: ignore[attr-defined] # mypy has to see it too


LIGHT = (
    "from pytest_gpubench.gpu.context import cuda_was_started; assert not cuda_was_started()",
    "import pytest_gpubench.cli.doctor, pytest_gpubench.gpu.datasheets",
    "with pytest_gpubench.region('a'): pass",
)


def test_what_is_light_loads_no_torch() -> None:
    code = "\n".join(f"{line}\nassert not {{'torch', 'pynvml'}} & sys.modules.keys()" for line in LIGHT)
    subprocess.run([sys.executable, "-c", f"import sys\n{code}"], check=True)
