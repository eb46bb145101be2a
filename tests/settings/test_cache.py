"""States of the cache: names, and functions that leave it as a neighbour would."""

from functools import partial
from types import FunctionType
from typing import Any

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.settings import Resolver, Settings
from pytest_gpubench.settings.cache import Producer


def cache_of(given: object) -> object:
    return Resolver(Settings(), frozenset()).override(Settings(), {"cache": given}, "it({})").cache


def fill() -> str:
    return "filled"


class Layer:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (fill, "fill"),
        (partial(fill), "fill"),
        (lambda: None, "<lambda>"),
        (Layer(), "Layer"),
        (FunctionType(fill.__code__, {}, "a\nb"), "a\\nb"),
    ],
)
def test_a_function_is_a_producer_of_its_name(function: Any, named: str) -> None:
    producer = cache_of(function)
    assert isinstance(producer, Producer)
    assert producer.function is function
    assert str(producer) == f"producer {named}"


@pytest.mark.parametrize("given", ["warm", "fill", "producer fill", 5, None])
def test_anything_else_is_refused(given: object) -> None:
    legal = r"it must be a function without arguments \(in tests only\), or one of cold, dirty, hot"
    with pytest.raises(BadRequest, match=rf"{legal}$"):
        cache_of(given)


def test_the_device_is_done_when_it_has_run() -> None:
    calls: list[str] = []
    Producer(lambda: calls.append("produce")).run(lambda: calls.append("synchronise"))
    assert calls == ["produce", "synchronise"]
    assert Producer(fill).run(lambda: None) == "filled"


@pytest.mark.parametrize("raises", ["function", "synchronize"])
def test_its_error_is_told_as_its_own(raises: str) -> None:
    """On a GPU it may be raised when the device is waited for."""

    def fill() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        Producer(fill).run(lambda: None) if raises == "function" else Producer(Layer()).run(fill)
    named = "fill" if raises == "function" else "Layer"
    notes = [f"gpu_bench: raised in producer {named}, which cache= has called without arguments"]
    assert getattr(caught.value, "__notes__", []) == notes
