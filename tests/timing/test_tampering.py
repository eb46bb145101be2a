"""Functions that a test replaced are named; wrappers of libraries are not."""

import functools
import os
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from unittest import mock

import pytest
import torch

from pytest_gpubench import fixture, running_test
from pytest_gpubench.bench import integrity
from pytest_gpubench.correctness import compare as compare_module
from pytest_gpubench.stats import speedup
from pytest_gpubench.timing import rounds, sampling, tampering, traces
from pytest_gpubench.timing.base import Timer
from pytest_gpubench.timing.tampering import (
    RELIED_ON,
    find,
    is_foreign,
    is_library_file,
    operations,
    own_modules,
    replaced,
    replaced_operation,
)
from pytest_gpubench.verdict import exact
from pytest_gpubench.verdict import speedup as verdict


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


def test_what_is_relied_on_is_there() -> None:
    assert all(callable(find(name)) for name in RELIED_ON)
    assert len(own_modules()) > 20
    assert find("time.perf_counter") is time.perf_counter


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
    original: Any = find(name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    monkeypatch.setattr(name, wrapper)
    found = replaced()
    monkeypatch.undo()
    assert found == name


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (rounds, "take_rounds"),
        (sampling, "check_same_kernels"),
        (speedup, "speedup_of"),
        (compare_module, "compare_outputs"),
        (verdict, "judge_speedup"),
        (verdict, "speedup_of"),
        (integrity, "check_floor"),
        (running_test, "enforce"),
        (fixture, "answer"),
    ],
)
def test_an_own_function_that_was_replaced_is_named(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    monkeypatch.setattr(module, name, nothing)
    found = replaced()
    monkeypatch.undo()
    assert found == f"{module.__name__}.{name}"


class Equal:
    """Claim to be equal to whatever it stands for."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, *args: object) -> None:
        pass


def to_true(self: object) -> bool:
    return True


GONE = object()
CHANGES: list[tuple[Any, str, object, str]] = [
    (running_test, "enforce", Equal(), "running_test.enforce"),
    (running_test, "enforce", None, "running_test.enforce"),
    (running_test.enforce, "__code__", nothing.__code__, "running_test.enforce"),
    (running_test.enforce, "__code__", running_test.enforce_missing.__code__, "running_test.enforce"),
    (rounds.Interleaved, "quads", nothing, "timing.rounds.Interleaved.quads"),
    (rounds.Interleaved.quads, "__code__", nothing.__code__, "timing.rounds.Interleaved.quads"),
    (cast(Any, integrity.auditing).__wrapped__, "__code__", nothing.__code__, "bench.integrity.auditing"),
    (rounds.take_rounds, "__defaults__", (False, False), "timing.rounds.take_rounds"),
    (traces.take_trace, "__kwdefaults__", {}, "timing.traces.take_trace"),
    (traces.take_trace.__kwdefaults__, "cache", "hot", "timing.traces.take_trace"),
    (sampling.Sample, "samples_us", property(to_true), "timing.sampling.Sample.samples_us"),
    (running_test, "LimitBroken", Callable0, "running_test.LimitBroken"),
    (Timer, "max_reps", 1, "timing.base.Timer.max_reps"),
    (sampling, "time", Callable0(), "timing.sampling.time"),
    (integrity, "FLOOR_SHARE", 0.0, "bench.integrity.FLOOR_SHARE"),
    (exact, "FORBIDS", {}, "verdict.exact.FORBIDS"),
    (exact.FORBIDS, "sync", None, "verdict.exact.FORBIDS.sync"),
    (integrity, "replaced", GONE, "bench.integrity.replaced"),
    (speedup, "sorted", nothing, "stats.speedup.sorted"),  # hides a builtin
    (speedup, "sorted", Callable0(), "stats.speedup.sorted"),
]
"""Where a name gets another value, and the name that is told; of a table it is an item."""


@pytest.mark.parametrize(("owner", "name", "value", "told"), CHANGES)
def test_a_change_is_named_until_it_is_undone(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: object, told: str
) -> None:
    assert replaced() is None
    if isinstance(owner, dict):
        monkeypatch.setitem(owner, name, value)
    elif value is GONE:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, name, value, raising=False)
    found = replaced(), replaced()
    monkeypatch.undo()
    assert found == (f"pytest_gpubench.{told}",) * 2
    assert replaced() is None


@pytest.mark.parametrize("place", [running_test, rounds.Interleaved])
def test_a_function_that_was_replaced_before_the_first_look_is_named(
    monkeypatch: pytest.MonkeyPatch, place: object
) -> None:
    monkeypatch.setattr(place, "enforce", nothing, raising=False)
    name = tampering._Package().replaced()
    monkeypatch.undo()
    assert name is not None
    assert name.endswith(".enforce")


def test_a_constant_may_be_set_to_an_equal_value(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replaced() is None
    monkeypatch.setattr(integrity, "FLOOR_SHARE", float(str(integrity.FLOOR_SHARE)))
    assert replaced() is None


def test_what_did_not_change_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    package = tampering._Package()
    assert package.replaced() is None
    objects, modules = package._objects, dict(package._modules)
    assert package.replaced() is None
    assert package._objects is objects
    monkeypatch.setattr(integrity, "FLOOR_SHARE", float(str(integrity.FLOOR_SHARE)))
    assert package.replaced() is None
    assert [module for module in modules if package._modules[module] is not modules[module]] == [integrity]


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
    monkeypatch.setattr(verdict, "judge_speedup", wrap(verdict.judge_speedup))
    found = replaced()
    monkeypatch.undo()
    assert found is None


@pytest.mark.parametrize(
    ("value", "foreign"),
    [
        (len, False),
        (time.perf_counter, False),
        (str.upper, False),
        (dict, False),
        (torch.cuda.synchronize, False),
        (functools.wraps, False),
        (functools.cache(is_library_file), False),
        (nothing, True),
        (functools.cache(nothing), True),
        (functools.partial(len), True),
        (Callable0(), True),
        (Callable0().__call__, True),
        (3, True),
        (None, True),
    ],
)
def test_what_is_foreign(value: object, foreign: bool) -> None:
    assert is_foreign(value) is foreign


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (torch.__file__, True),
        (functools.__file__, True),
        (verdict.__file__, True),
        (__file__, False),
        ("<frozen importlib._bootstrap>", True),
        ("/nowhere/at/all.py", False),
        (str(Path(verdict.__file__).parents[1]) + "_of_mine/time.py", False),
    ],
)
def test_files_of_libraries(path: str, library: bool) -> None:
    assert is_library_file(path) is library


def test_packages_may_be_installed_for_a_user_or_in_a_folder_of_pythonpath(tmp_path: Path) -> None:
    """There a module that this package imports was called replaced, and every measurement INVALID."""
    assert is_library_file(f"{site.getusersitepackages()}/package/file.py")
    msgspec = Path(str(find("msgspec.__file__"))).parent
    shutil.copytree(msgspec, tmp_path / "msgspec")
    code = (
        "import msgspec, pytest_gpubench.results.model; from pytest_gpubench.timing.tampering import replaced;"
        "print(msgspec.__file__, replaced())"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(verdict.__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(tmp_path / "msgspec" / "__init__.py"), "None"]


def test_modules_of_other_packages_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pytest_gpubench_of_mine.timing")
    setattr(module, "measure", nothing)  # noqa: B010
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert replaced() is None


# functions of torch that a reference calls


@pytest.mark.parametrize(
    "name",
    ["torch.matmul", "torch.Tensor.matmul", "torch.Tensor.__add__", "torch.nn.functional.softmax", "torch.fft.fft"],
)
@pytest.mark.parametrize("value", [nothing, Callable0(), mock.MagicMock()], ids=["function", "object", "mock"])
def test_a_replaced_operation_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    before = operations()
    owner, _, last = name.rpartition(".")
    monkeypatch.setattr(find(owner), last, value)
    assert replaced_operation(before) == name
    assert replaced_operation(operations()) is None  # it was so before: it is the same for all


def test_an_operation_that_a_library_wraps_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = operations()
    monkeypatch.setattr(torch, "matmul", torch.compiler.disable(torch.mm))  # type: ignore[no-untyped-call]
    monkeypatch.setattr(torch, "of_a_library", torch.mm, raising=False)
    assert replaced_operation(before) is None
