"""A test under @given whose examples are followed."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pytest_gpubench.search import intercepting_examples


class Followed(NamedTuple):
    """What came of a test whose examples were followed."""

    error: BaseException | None
    warnings: list[str]
    calls: list[int]


def follow(body: Callable[[int], object], on_out_of_memory: Any = "reject", sizes: Any = None) -> Followed:
    """Run a test under @given of a size; every call of its body is noted."""
    calls: list[int] = []
    warnings: list[str] = []

    phases = [Phase.generate, Phase.shrink]

    @settings(max_examples=40, database=None, derandomize=True, deadline=None, phases=phases)
    @given(n=st.integers(1, 99) if sizes is None else sizes)
    def test(n: int) -> None:
        calls.append(n)
        body(n)

    try:
        with intercepting_examples(test, lambda example: None, {}, on_out_of_memory, warnings.append):
            cast(Any, test)()
    except BaseException as error:
        return Followed(error, warnings, calls)
    return Followed(None, warnings, calls)
