"""An error that is raised again is as it was the first time."""

import pytest

from pytest_gpubench import LimitBroken, MeasurementError, WrongResult
from pytest_gpubench.search import Example
from pytest_gpubench.search.out_of_memory import Examples
from tests.search.errors import depth
from tests.search.requests import Harness, request_of

pytestmark = pytest.mark.usefixtures("quick_collection")


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
    examples, depths = Examples("reject"), []
    for attempt in range(4):
        with pytest.raises(LimitBroken) as caught:
            examples.run(Example("n=1", {}), lambda: break_limit(first=attempt == 0))  # noqa: B023 # called at once
        depths.append(depth(caught.value))
    assert len(set(depths)) == 1


def break_limit(first: bool) -> None:
    if first:
        raise LimitBroken("slow")
