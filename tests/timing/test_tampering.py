"""Functions that a test replaced are named; wrappers of libraries are not."""

import functools
import os
import re
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import mock

import pytest
import torch

import pytest_gpubench
from pytest_gpubench import InvalidResult
from pytest_gpubench.timing.tampering import operations_kept, replaced

RELIED_ON = (
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.process_time_ns",
    "time.thread_time_ns",
    "os.open",
    "os.pread",
    "torch.cuda.synchronize",
    "torch.cuda.Event.record",
    "torch.cuda.Event.elapsed_time",
    "torch.cuda.Event.synchronize",
    "torch.cuda.Event.query",
    "torch.cuda._sleep",
    "torch.cuda.CUDAGraph.replay",
    "torch.autograd.profiler.profile.__enter__",
    "torch.autograd.profiler.profile.__exit__",
)


def nothing(*args: object, **kwargs: object) -> None:
    """Stand for what a test puts in the place of something."""


class Callable0:
    def __call__(self, *args: object) -> float:
        return 0.0


def from_library(source: str, folder: Path) -> Any:
    """Return the `made` of a module that an installed package could hold."""
    namespace: dict[str, Any] = {"functools": functools}
    exec(compile(source, str(folder / "package.py"), "exec"), namespace)
    return namespace["made"]


def test_nothing_is_replaced() -> None:
    assert replaced() is None


@pytest.mark.parametrize("name", RELIED_ON)
@pytest.mark.parametrize(
    "replacement", [nothing, lambda *args: 0.0, functools.partial(nothing), Callable0(), mock.Mock()]
)
def test_a_replaced_library_function_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, replacement: Callable[..., object]
) -> None:
    monkeypatch.setattr(name, replacement)
    found = replaced()
    monkeypatch.undo()
    assert found == name
    assert replaced() is None


@pytest.mark.parametrize("name", RELIED_ON)
def test_a_wrapper_of_a_test_is_named_though_it_says_what_it_wraps(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """`functools.wraps` is how such a patch is mostly written."""
    original: Any = resolve_name(name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    monkeypatch.setattr(name, wrapper)
    found = replaced()
    monkeypatch.undo()
    assert found == name


# what libraries do is theirs


def test_a_librarys_wrapper_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
def wrap(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs): return function(*args, **kwargs)
    return wrapper
made = wrap
"""
    wrap = from_library(source, Path(torch.__file__).parent.parent / "some_package")
    monkeypatch.setattr(torch.cuda, "synchronize", wrap(torch.cuda.synchronize))
    found = replaced()
    monkeypatch.undo()
    assert found is None


@pytest.mark.parametrize(
    ("value", "foreign"),
    [
        (len, False),
        (time.monotonic, False),
        (str.upper, False),
        (dict, False),
        (mock.Mock, False),
        (torch.cuda.synchronize, False),
        (functools.wraps, False),
        (functools.cache(replaced), False),
        (nothing, True),
        (functools.cache(nothing), True),
        (functools.partial(len), True),
        (Callable0, True),
        (Callable0(), True),
        (Callable0().__call__, True),
        (3, True),
        (None, True),
    ],
)
def test_what_is_foreign(monkeypatch: pytest.MonkeyPatch, value: object, foreign: bool) -> None:
    assert names_replaced(monkeypatch, value) == (["time.perf_counter"] if foreign else [])


def names_replaced(monkeypatch: pytest.MonkeyPatch, value: object) -> list[str]:
    """Return what is named as replaced while a value stands in the place of the clock."""
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", value)
        found = replaced()
    return [] if found is None else [found]


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (torch.__file__, True),
        (functools.__file__, True),
        (pytest_gpubench.__file__, True),
        (__file__, False),
        (f"{site.getusersitepackages()}/package/file.py", True),
        ("<frozen importlib._bootstrap>", True),
        ("/nowhere/at/all.py", False),
        (str(Path(pytest_gpubench.__file__).parent) + "_of_mine/time.py", False),
    ],
)
def test_files_of_libraries(monkeypatch: pytest.MonkeyPatch, path: str, library: bool) -> None:
    namespace: dict[str, Any] = {}
    exec(compile("def made(): return 0.0", path, "exec"), namespace)
    assert names_replaced(monkeypatch, namespace["made"]) == ([] if library else ["time.perf_counter"])


def test_packages_may_be_installed_in_a_folder_of_pythonpath(tmp_path: Path) -> None:
    msgspec = Path(str(resolve_name("msgspec.__file__"))).parent
    shutil.copytree(msgspec, tmp_path / "msgspec")
    code = (
        "import time; from msgspec import inspect; from pytest_gpubench.timing.tampering import replaced;"
        "time.perf_counter = inspect.type_info; print(replaced())"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(pytest_gpubench.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"


# functions of torch that a reference calls


@pytest.mark.parametrize(
    "name",
    ["torch.matmul", "torch.Tensor.matmul", "torch.Tensor.__add__", "torch.nn.functional.softmax", "torch.fft.fft"],
)
@pytest.mark.parametrize("value", [nothing, Callable0(), mock.MagicMock()], ids=["function", "object", "mock"])
def test_a_replaced_operation_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    owner, _, last = name.rpartition(".")
    with pytest.raises(InvalidResult, match=f"^{re.escape(name)} was replaced while "), operations_kept():
        monkeypatch.setattr(resolve_name(owner), last, value)
    with operations_kept():  # it was so before: it is the same for all
        pass


def test_an_operation_that_a_library_wraps_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with operations_kept():
        monkeypatch.setattr(torch, "matmul", torch.compiler.disable(torch.mm))  # type: ignore[no-untyped-call]
        monkeypatch.setattr(torch, "of_a_library", torch.mm, raising=False)
