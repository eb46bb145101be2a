"""What hypothesis calls a test with, and that it is left as it was."""

import datetime
from typing import Any, NamedTuple, cast

import hypothesis
import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from pytest_gpubench import LimitBroken, MeasurementError, WrongResult
from pytest_gpubench import strategies as gst
from pytest_gpubench.search import Example, intercepting_examples
from pytest_gpubench.search.given import Examples
from tests.search.errors import depth, notes
from tests.search.requests import Harness, request_of

pytestmark = pytest.mark.usefixtures("quick_collection")


def test_the_inner_test_is_put_back() -> None:
    seen: list[Example] = []

    @settings(max_examples=3, database=None, derandomize=True)
    @given(n=st.just(4))
    def body(fixture: str, n: int) -> None:
        called.append((fixture, n))

    called: list[tuple[str, int]] = []
    inner = cast(Any, body).hypothesis.inner_test
    with intercepting_examples(body, seen.append, {"fixture": "f"}):
        assert cast(Any, body).hypothesis.inner_test is not inner
        cast(Any, body)(fixture="f")
    assert cast(Any, body).hypothesis.inner_test is inner
    assert seen == [Example("n=4", {"n": 4})] * len(called)
    cast(Any, body)(fixture="f")
    assert len(called) == 2 * len(seen)


class Pair(NamedTuple):
    x: Any
    n: int


LAZY = gst.lazy_tensor((2, 3), seed=4, device="cpu")


def test_lazy_tensors_are_made_for_each_call() -> None:
    seen: list[Any] = []

    @settings(phases=[Phase.explicit], database=None)
    @example(x=LAZY)
    @example(x=Pair(LAZY, 3))
    @example(x=[{"a": (LAZY, 1)}, "b"])
    @given(x=st.none())
    def test(x: Any) -> None:
        seen.append(x)
        if isinstance(x, torch.Tensor):
            raise LimitBroken("slow")

    examples: list[Example] = []
    with pytest.raises(LimitBroken) as caught, intercepting_examples(test, examples.append, {}):
        test()
    assert f"x={LAZY!r}" in notes(caught.value), "a failing example is printed lazily"
    plain, pair, nested = sorted(seen, key=lambda x: ("Tensor", "Pair", "list").index(type(x).__name__))
    expected = gst.tensor((2, 3), seed=4, device="cpu")
    found = [plain, pair.x, nested[0]["a"][0]]
    assert all(torch.equal(each, expected) for each in found)
    assert len({id(each) for each in found}) == 3
    assert (pair.n, nested[0]["a"][1], nested[1]) == (3, 1, "b")
    assert f"x={LAZY!r}" in [each.text for each in examples]
    assert {"x.shape[0]": 2, "x.shape[1]": 3} in [each.sizes for each in examples]


@pytest.mark.parametrize(("own_ms", "expected_ms"), [(None, None), (200, None), (5000, 5000)])
def test_the_usual_deadline_is_off(own_ms: int | None, expected_ms: int | None) -> None:
    """The profile's is; one that a test asks for is the test's."""
    seen: list[Any] = []
    before = hypothesis.settings.get_current_profile_name()
    settings.register_profile("usual deadline", deadline=200, database=None, max_examples=1)
    settings.load_profile("usual deadline")
    try:

        @given(st.none())
        def test(nothing: None) -> None:
            seen.append(settings().deadline)

        function = cast(Any, test if own_ms is None else settings(deadline=own_ms)(test))
        asked = function._hypothesis_internal_use_settings
        with intercepting_examples(function, lambda example: None, {}):
            function()
        assert function._hypothesis_internal_use_settings is asked
    finally:
        settings.load_profile(before)
    assert {each and each / datetime.timedelta(milliseconds=1) for each in seen} == {expected_ms}


@pytest.mark.parametrize("error", [WrongResult("no"), MeasurementError("no")])
def test_a_traceback_does_not_grow_when_it_is_raised_again(error: Exception) -> None:
    harness = Harness()
    request = request_of({"fast": 1.0}, harness.log, error=error)
    depths = []
    for _ in range(4):
        harness.search.begin(Example("n=1", {}))
        with pytest.raises(type(error)) as caught:
            harness.obtain(request)
        depths.append(depth(caught.value))
    assert len(set(depths)) == 1


def test_an_example_that_failed_is_raised_as_the_first_time() -> None:
    examples, depths, attempts = Examples("reject"), [], iter(range(4))

    def break_limit() -> None:
        if next(attempts) == 0:
            raise LimitBroken("slow")

    for _ in range(4):
        with pytest.raises(LimitBroken) as caught:
            examples.run(Example("n=1", {}), break_limit)
        depths.append(depth(caught.value))
    assert len(set(depths)) == 1
