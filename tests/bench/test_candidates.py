"""The names of candidates and reference."""

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.bench.candidates import name_functions


def candidate(x: object) -> None: ...
def reference(x: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "names", "arms"),
    [
        (candidate, None, ["reference", "candidate"]),
        (candidate, ("mine", "torch"), ["torch", "mine"]),
        (candidate, ["mine", "torch"], ["torch", "mine"]),
        (reference, None, ["reference (reference)", "reference"]),
        ({"a": candidate, "b": candidate}, ("torch",), ["torch", "a", "b"]),
        ({"torch": candidate}, ("torch",), ["torch (reference)", "torch"]),
        (dict.fromkeys(["a", "a (reference)"], candidate), ("a",), ["a (reference) (reference)", "a", "a (reference)"]),
    ],
)
def test_names_of_arms(given: Any, names: Sequence[str] | None, arms: list[str]) -> None:
    assert list(name_functions(given, reference, names)) == arms


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize(
    "names", ["ab", "a", (), ("a", "b", "c"), ("a", ""), ("",), (1, "b"), (1,), 3, {"a", "b"}, {"a": "b"}, iter("ab")]
)
def test_names_that_are_none(names: Any, several: bool) -> None:
    wanted = r"\(reference,\)" if several else r"\(candidate, reference\)"
    with pytest.raises(BadRequest, match=rf"^compare\(names=...\) must be the texts {wanted}.*, found "):
        named(names, several)


def named(names: Any, several: bool) -> dict[str, Any]:
    """Return the functions of a comparison by these names, with one candidate or with several."""
    return name_functions({"x": candidate, "y": candidate} if several else candidate, reference, names)


def test_names_of_the_wrong_number_or_alike() -> None:
    for names, several in ((("a",), False), (("a", "b"), True)):
        with pytest.raises(BadRequest, match="must be the texts"):
            named(names, several)
    with pytest.raises(BadRequest, match=r"must differ, found \('a', 'a'\)"):
        named(("a", "a"), False)
