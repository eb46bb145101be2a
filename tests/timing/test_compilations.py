"""Compilations counted by Triton's hooks and torch.compile's counters; hooks of others are kept."""

import inspect
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.timing.compilations import Compilations, counting_compilations

OURS = counting_compilations.__module__


class Knobs:
    """Triton's hooks from 3.4 on, and a clock; hooks are called as Triton does."""

    names = ("jit_cache_hook", "jit_post_compile_hook")

    def __init__(self) -> None:
        self.now_s = 100.0
        self.owner: Any = SimpleNamespace(**dict.fromkeys(self.names))
        self.compiled: list[str] = []

    def call(self, hook: Any, key: str) -> bool:
        fn = SimpleNamespace(name="kernel")
        return bool(hook and hook(key=key, repr="", fn=fn, compile={}, already_compiled=False))

    def before(self, key: str = "a") -> bool:
        """Return whether the hook has Triton skip the compilation."""
        return self.call(self.hooks[0], key)

    def after(self, key: str = "a") -> None:
        self.call(self.hooks[1], key)

    def compile(self, took_s: float = 1.0, key: str = "a") -> None:
        if self.before(key):
            return
        self.now_s += took_s
        self.compiled.append(key)
        self.after(key)

    @property
    def hooks(self) -> tuple[Any, Any]:
        return getattr(self.owner, self.names[0]), getattr(self.owner, self.names[1])

    @hooks.setter
    def hooks(self, value: tuple[Any, Any]) -> None:
        for name, hook in zip(self.names, value, strict=True):
            setattr(self.owner, name, hook)


class ClassHooks(Knobs):
    """Triton's hooks before 3.4: attributes of a class."""

    names = ("cache_hook", "compiled_hook")

    def __init__(self) -> None:
        super().__init__()
        self.owner = type("JITFunction", (), dict.fromkeys(self.names))


@pytest.fixture(params=[Knobs, ClassHooks])
def triton(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Knobs]:
    found: Knobs = request.param()
    is_old = request.param is ClassHooks
    jit, knobs = SimpleNamespace(JITFunction=found.owner), SimpleNamespace(runtime=found.owner)
    monkeypatch.setitem(sys.modules, "triton.knobs", cast(Any, None if is_old else knobs))
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", cast(Any, jit if is_old else None))
    monkeypatch.setattr(time, "perf_counter", lambda: found.now_s)
    yield found
    assert not any(getattr(hook, "__module__", "") == OURS for hook in found.hooks)


def test_kernels_are_counted_and_timed(triton: Knobs) -> None:
    """In contexts within each other, and in whatever thread."""
    triton.compile()
    with counting_compilations() as outer:
        triton.compile(2.0)
        assert (outer.number, outer.elapsed_s) == (1, 2.0)
        with counting_compilations() as inner:
            triton.compile(3.0, key="b")
        thread = threading.Thread(target=triton.compile)
        thread.start()
        thread.join()
    triton.compile()
    assert (outer.number, outer.kernels, outer.graphs, outer.elapsed_s) == (3, 3, 0, 6.0)
    assert (inner.number, inner.elapsed_s) == (1, 3.0)


def test_hooks_of_others_are_called_and_put_back(triton: Knobs) -> None:
    log: list[tuple[str, int]] = []
    theirs = (lambda **about: log.append(("before", len(about))), lambda **about: log.append(("after", len(about))))
    triton.hooks = theirs
    with counting_compilations() as found:
        triton.compile()
    assert triton.hooks == theirs
    assert log == [("before", 5), ("after", 5)]
    assert found.number == 1


def test_what_another_hook_has_skipped_is_none(triton: Knobs) -> None:
    triton.hooks = (lambda **about: True, None)
    with counting_compilations() as found:
        triton.compile()
    assert (found.number, triton.compiled) == (0, [])


def test_who_hooks_in_later_is_left_there(triton: Knobs) -> None:
    log: list[str] = []
    with counting_compilations() as found:
        ours = triton.hooks

        def later(**about: Any) -> Any:
            log.append("later")
            return ours[0](**about)

        def after(**about: Any) -> Any:
            return ours[1](**about)

        triton.hooks = (later, after)
        triton.compile()
    assert triton.hooks == (later, after)
    triton.compile()
    triton.before(key="b")  # a compiler that raises calls no hook any more
    assert (found.number, found._begun_s, log) == (1, {}, ["later"] * 3)


def test_an_error_puts_back(triton: Knobs) -> None:
    """A compilation that began before counting is not counted, nor one by inductor: it does not announce it."""
    with suppress(ValueError), counting_compilations():
        triton.before()
        raise ValueError
    assert triton.hooks == (None, None)
    with counting_compilations() as found:
        triton.after()
    assert found.number == 0


def test_the_signature_of_a_hook_is_seen_through_ours(triton: Knobs) -> None:
    """Inductor gives a hook what its signature asks for."""

    def theirs(*, key: str, inductor_args: object = None, **others: object) -> None:
        pass

    triton.hooks = (theirs, theirs)
    with counting_compilations():
        assert all("inductor_args" in inspect.signature(hook).parameters for hook in triton.hooks)


@given(order=st.permutations(range(6)), starts=st.lists(st.integers(0, 9), min_size=6, max_size=6))
def test_what_is_compiled_at_once_is_not_counted_twice(order: list[int], starts: list[int]) -> None:
    """Six kernels, begun and ended in any order: no more seconds than have passed, and no kernel lost."""
    with pytest.MonkeyPatch.context() as patch:
        knobs = Knobs()
        patch.setitem(sys.modules, "triton.knobs", cast(Any, SimpleNamespace(runtime=knobs.owner)))
        patch.setattr(time, "perf_counter", lambda: knobs.now_s)
        with counting_compilations() as found:
            for key, start in enumerate(sorted(starts)):
                knobs.now_s = 100.0 + start
                knobs.before(key=str(key))
            for place, key in enumerate(order):
                knobs.now_s = 110.0 + place
                knobs.after(key=str(key))
    assert found.number == 6
    assert 0 < found.elapsed_s <= 15.0 - min(starts)


def test_triton_that_is_imported_late(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("triton.knobs", "triton.runtime.jit"):
        monkeypatch.setitem(sys.modules, name, cast(Any, None))
    knobs = Knobs()
    with counting_compilations() as found:
        monkeypatch.setitem(sys.modules, "triton.knobs", cast(Any, SimpleNamespace(runtime=knobs.owner)))
        found.watch()
        hooks = knobs.hooks
        found.watch()
        assert knobs.hooks == hooks
        knobs.compile()
    assert (found.number, knobs.hooks) == (1, (None, None))
    found.watch()
    assert knobs.hooks == (None, None)


def test_triton_has_the_hooks_that_are_used() -> None:
    runtime = pytest.importorskip("triton.runtime.jit")
    knobs = sys.modules.get("triton.knobs")
    owner = runtime.JITFunction if knobs is None else knobs.runtime
    names = Knobs.names if hasattr(owner, Knobs.names[0]) else ClassHooks.names
    before = [getattr(owner, name) for name in names]
    with counting_compilations():
        assert all(getattr(owner, name) is not old for name, old in zip(names, before, strict=True))
    assert [getattr(owner, name) for name in names] == before


@pytest.mark.parametrize(
    ("counters", "times", "expected"),
    [
        ({}, {}, (0, 0.0)),
        ({"stats": Counter(unique_graphs=3)}, {"_compile.compile_inner": [1.0, 2.5]}, (3, 3.5)),
        ({"stats": Counter(calls=3)}, {"other": [1.0]}, (0, 0.0)),
    ],
)
def test_counters(monkeypatch: pytest.MonkeyPatch, counters: Any, times: Any, expected: tuple[int, float]) -> None:
    utils = SimpleNamespace(counters={}, compilation_time_metrics={})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", cast(Any, utils))
    found = Compilations()
    utils.counters, utils.compilation_time_metrics = counters, times
    assert (found.graphs, found.elapsed_s) == expected
    began = Compilations()
    utils.counters, utils.compilation_time_metrics = {}, {}  # somebody has reset them
    assert (began.graphs, began.elapsed_s) == (0, 0.0)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", cast(Any, None))
    assert Compilations().graphs == 0


@pytest.mark.parametrize(
    ("number", "elapsed_s", "text"),
    [
        (1, 0.04, "1 compilation (0.0 s)"),
        (2, 9.94, "2 compilations (9.9 s)"),
        (17, 30.6, "17 compilations (31 s)"),
        (17, 10.0, "17 compilations (10 s)"),
    ],
)
def test_texts(number: int, elapsed_s: float, text: str) -> None:
    assert str(Compilations(number, elapsed_s)) == text
