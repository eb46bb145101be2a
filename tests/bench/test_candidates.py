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


NO_NAMES = ["ab", "a", (), ("a", "b", "c"), ("a", ""), ("",), (1, "b"), (1,), 3, {"a", "b"}, {"a": "b"}, iter("ab")]


@pytest.mark.parametrize(
    ("several", "names", "sentence"),
    [
        *((True, each, r"must be the texts \(reference,\).*, found ") for each in [*NO_NAMES, ("a", "b")]),
        *((False, each, r"must be the texts \(candidate, reference\), found ") for each in [*NO_NAMES, ("a",)]),
        (False, ("a", "a"), r"must differ, found \('a', 'a'\)"),
    ],
)
def test_names_that_are_none(several: bool, names: Any, sentence: str) -> None:
    with pytest.raises(BadRequest, match=rf"^compare\(names=...\) {sentence}"):
        name_functions({"x": candidate, "y": candidate} if several else candidate, reference, names)
