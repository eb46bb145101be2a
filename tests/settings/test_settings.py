"""What is refused says what would be legal."""

import pytest

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import parse_given


@pytest.mark.parametrize(("name", "least"), [("reps", 1), ("warmup", 0), ("seed", 0)])
def test_a_count_that_is_too_small_is_told_the_least_that_is_legal(name: str, least: int) -> None:
    assert parse_given(name, least, "it") == least
    with pytest.raises(BadRequest) as caught:
        parse_given(name, least - 1, "it")
    assert str(caught.value) == f"it: {least - 1} is not valid, it must be at least {least}"


@pytest.mark.parametrize("name", ["reps", "warmup", "seed"])
@pytest.mark.parametrize("value", [1.5, True, None, "9" * 5000])
def test_what_is_no_count(name: str, value: object) -> None:
    with pytest.raises(BadRequest, match="it must be a"):
        parse_given(name, value, "it")
