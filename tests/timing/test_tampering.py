"""Functions that a test replaced are named; wrappers of libraries are not."""

import functools
import re
import site
from pathlib import Path
from pkgutil import resolve_name
from unittest import mock

import msgspec
import pytest
import torch

import pytest_gpubench
from pytest_gpubench import InvalidResult
from pytest_gpubench.timing import tampering


def nothing(*args: object, **kwargs: object) -> None:
    """Stand for what a test puts in the place of something."""


class Callable0:
    def __call__(self, *args: object) -> float:
        return 0.0


RELIED_ON = {
    *(f"time.{name}" for name in ("perf_counter", "perf_counter_ns", "process_time_ns", "thread_time_ns")),
    *("os.open", "os.pread", "torch.cuda.synchronize", "torch.cuda._sleep", "torch.cuda.CUDAGraph.replay"),
    *(f"torch.cuda.Event.{name}" for name in ("record", "elapsed_time", "synchronize", "query")),
    *(f"torch.autograd.profiler.profile.{name}" for name in ("__enter__", "__exit__")),
}


@pytest.mark.parametrize("name", sorted(RELIED_ON))
@pytest.mark.parametrize("wraps", [False, True])
def test_a_replaced_function_is_named(monkeypatch: pytest.MonkeyPatch, name: str, wraps: bool) -> None:
    """Though it says what it wraps, as such a patch mostly does."""
    monkeypatch.setattr(name, functools.wraps(resolve_name(name))(lambda *args: None) if wraps else nothing)
    found = tampering.replaced()
    monkeypatch.undo()
    assert found == name
    assert tampering.replaced() is None


@pytest.mark.parametrize("name", ["time.perf_counter", "torch.cuda.synchronize"])
def test_a_clock_that_a_library_replaced_is_named_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It freezes the time, as freezegun does."""
    monkeypatch.setattr(name, pytest.importorskip)
    found = tampering.replaced()
    monkeypatch.undo()
    assert found == (name if name.startswith("time") else None)


# what libraries do is theirs


@pytest.mark.parametrize(
    ("value", "foreign"),
    [
        *((each, False) for each in (len, str.upper, dict, mock.Mock, torch.cuda.synchronize)),
        (functools.cache(resolve_name), False),
        (torch.no_grad()(torch.cuda.synchronize), False),
        (torch.no_grad()(nothing), True),
        (functools.cache(nothing), True),
        *((each, True) for each in (nothing, functools.partial(len), Callable0, Callable0(), mock.Mock(), None)),
    ],
)
def test_what_is_foreign(value: object, foreign: bool) -> None:
    assert tampering.is_foreign(value) is foreign


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
def test_files_of_libraries(path: str, library: bool) -> None:
    assert tampering.is_library_file(path) is library


@pytest.mark.parametrize("name", ["file.py", "link.py"])
def test_packages_may_be_installed_in_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """One of PYTHONPATH: there lies msgspec too. Its files may be links to others, as some installers make them."""
    (tmp_path / "link.py").symlink_to("/elsewhere/file.py")
    for place, library in ((f"{tmp_path}/msgspec/__init__.py", True), (msgspec.__file__, False)):
        monkeypatch.setattr(msgspec, "__file__", place)
        for known in (tampering.library_folders, tampering.is_library_file):
            known.cache_clear()
        assert tampering.is_library_file(f"{tmp_path}/{name}") is library


# functions of torch that a reference calls


@pytest.mark.parametrize(
    "name",
    ["torch.matmul", "torch.Tensor.matmul", "torch.Tensor.__add__", "torch.nn.functional.softmax", "torch.fft.fft"],
)
@pytest.mark.parametrize("value", [nothing, Callable0(), mock.MagicMock()], ids=["function", "object", "mock"])
def test_a_replaced_operation_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    owner, _, last = name.rpartition(".")
    with pytest.raises(InvalidResult, match=f"^{re.escape(name)} was replaced while "), tampering.operations_kept():
        monkeypatch.setattr(resolve_name(owner), last, value)
    with tampering.operations_kept():  # it was so before: it is the same for all
        pass


def test_an_operation_that_a_library_wraps_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with tampering.operations_kept():
        monkeypatch.setattr(torch, "matmul", torch.no_grad()(torch.mm))
        monkeypatch.setattr(torch, "of_a_library", torch.mm, raising=False)
