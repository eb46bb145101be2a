"""Impossible limits are refused in the user's words, possible ones are kept as they are."""

import dataclasses
import math
from collections.abc import Sequence
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import BadRequest
from pytest_gpubench.limits import memory_size
from pytest_gpubench.verdict.limits import BY_NAME, NAMES, Limits

FORBIDDABLE = ("memcpy", "memset", "sync", "alloc")
ON_KERNELS = {"max_registers", "max_local_bytes", "max_shared", "min_blocks_per_sm", "max_tail"}
EXACT = {"max_kernels", "forbid", "max_memory", "kernels", "forbid_kernels", "deterministic", *ON_KERNELS}
"""What test_exact and test_multiprocessor test: limits that are no numbers, or others than all positive ones."""
PATTERNS = tuple(f"*{letter}*" for letter in "abcdefgh")
NUMBERS = [name for name in NAMES if name not in EXACT]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(), ""),
        (Limits(max_rel_std=0.02), "max_rel_std=0.02"),
        (Limits(max_time_us=40), "max_time_us=40"),
        (Limits(max_time_us={"H200": 40, "A100": 7.5}), "max_time_us={'H200': 40, 'A100': 7.5}"),
        (Limits(max_time_us=40.5, max_rel_std=0.3), "max_rel_std=0.3, max_time_us=40.5"),
        (Limits(min_speedup=1.5), "min_speedup=1.5"),
        (Limits(min_speedup={"triton": 1.5, "compiled": 1}), "min_speedup={'triton': 1.5, 'compiled': 1}"),
        (Limits(forbid="memcpy", kernels=["*b*", "*a*"]), "forbid='memcpy', kernels=['*b*', '*a*']"),
        (Limits(forbid=("sync", "memcpy", "sync")), "forbid=('sync', 'memcpy', 'sync')"),
        (Limits(forbid=set(FORBIDDABLE)), "forbid=('alloc', 'memcpy', 'memset', 'sync')"),
        (Limits(kernels=frozenset(PATTERNS)), f"kernels={PATTERNS!r}"),
    ],
)
def test_limits_read_as_they_were_asked_for(limits: Limits, text: str) -> None:
    assert str(limits) == text
    assert bool(limits) == bool(text)


@pytest.mark.parametrize("patterns", [PATTERNS, list(PATTERNS[::-1]), (*PATTERNS[::-1], *PATTERNS)])
def test_the_order_of_names_is_kept_but_for_sets_which_have_none(patterns: Sequence[str]) -> None:
    """In any other process a set would be listed otherwise."""
    assert BY_NAME["kernels"].parse(patterns) == tuple(dict.fromkeys(patterns))
    assert BY_NAME["kernels"].parse(set(patterns)) == BY_NAME["kernels"].parse(frozenset(patterns)) == PATTERNS


NUMBER = "it must be a number"
POSITIVE = "it must be above 0 and finite"
FOR_GPUS = "it must be a number, or one for each of several GPUs, as in {'H200': 40, 'A100': 75}"
FOR_VARIANTS = "it must be a number, or one for each of several variants, as in {'triton': 1.5, 'compiled': 1.2}"
VARIANTS = "a mapping must name variants, as in {'triton': 1.5, 'compiled': 1.2}"
BELOW_1, AT_MOST_1 = "and it must be a fraction below 1", "and a part of the peak is at most 1"
MAPPING = "a mapping must name GPUs, as in {'H200': 40, 'A100': 75}"


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("max_rel_std", 0, f"perf(max_rel_std=0): {POSITIVE}"),
        ("max_rel_std", math.nan, f"perf(max_rel_std=nan): {POSITIVE}"),
        ("max_rel_std", "2%", f"perf(max_rel_std='2%'): {NUMBER}"),
        ("max_rel_std", True, f"perf(max_rel_std=True): {NUMBER}"),
        ("max_rel_std", {"H200": 0.02}, f"perf(max_rel_std={{'H200': 0.02}}): {NUMBER}"),
        ("max_time_us", -math.inf, f"perf(max_time_us=-inf): {POSITIVE}"),
        ("max_time_us", "40us", f"perf(max_time_us='40us'): {FOR_GPUS}"),
        ("max_time_us", (("H200", 40),), f"perf(max_time_us=(('H200', 40),)): {FOR_GPUS}"),
        ("max_time_us", {}, f"perf(max_time_us={{}}): {MAPPING}"),
        ("max_time_us", {"": 40}, f"perf(max_time_us={{'': 40}}): {MAPPING}"),
        ("max_time_us", {"H200": 40, "A100": 0}, f"perf(max_time_us={{'H200': 40, 'A100': 0}}): {POSITIVE}"),
        ("max_time_us", {"H200": "40"}, f"perf(max_time_us={{'H200': '40'}}): {NUMBER}"),
        ("max_time_us", {"H200": {"A100": 1}}, f"perf(max_time_us={{'H200': {{'A100': 1}}}}): {NUMBER}"),
        ("min_speedup", math.nan, f"perf(min_speedup=nan): {POSITIVE}"),
        ("min_speedup", "1.5x", f"perf(min_speedup='1.5x'): {FOR_VARIANTS}"),
        ("min_speedup", [1.5], f"perf(min_speedup=[1.5]): {FOR_VARIANTS}"),
        ("min_speedup", {}, f"perf(min_speedup={{}}): {VARIANTS}"),
        ("min_speedup", {1: 1.5}, f"perf(min_speedup={{1: 1.5}}): {VARIANTS}"),
        ("min_speedup", {"a": 1.5, "b": math.nan}, f"perf(min_speedup={{'a': 1.5, 'b': nan}}): {POSITIVE}"),
        # a percentage is not taken for a fraction
        ("max_rel_std", 5, f"perf(max_rel_std=5): that is 500 %, {BELOW_1}: 0.05 is 5 %"),
        ("max_rel_std", 99, f"perf(max_rel_std=99): that is 9900 %, {BELOW_1}: 0.99 is 99 %"),
        ("max_rel_std", 100, f"perf(max_rel_std=100): that is 10000 %, {BELOW_1}: 0.05 is 5 %"),
        ("max_regression", 1.0, f"perf(max_regression=1.0): that is 100 %, {BELOW_1}: 0.01 is 1 %"),
        ("min_peak_fraction", 1.5, f"perf(min_peak_fraction=1.5): that is 150 %, {AT_MOST_1}: 0.015 is 1.5 %"),
        ("min_peak_fraction", 100, f"perf(min_peak_fraction=100): that is 10000 %, {AT_MOST_1}: 0.8 is 80 %"),
    ],
)
def test_an_impossible_limit_is_refused_with_what_is_wrong(name: str, value: object, sentence: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Limits(**{name: value})
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("name", "most"),
    [("max_rel_std", math.nextafter(1, 0)), ("max_regression", math.nextafter(1, 0)), ("min_peak_fraction", 1)],
)
def test_the_largest_fraction_is_a_limit(name: str, most: float) -> None:
    assert getattr(Limits(**{name: most}), name) == most
    with pytest.raises(BadRequest):
        Limits(**{name: math.nextafter(most, 2)})


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("max_time_us", np.float32(0.5), 0.5),
        ("max_time_us", np.float64(0.5), 0.5),
        ("max_time_us", Fraction(1, 2), 0.5),
        ("max_time_us", {"H200": np.int64(40)}, {"H200": 40}),
        ("max_kernels", np.int32(3), 3),
        ("max_memory", np.uint64(3), 3),
    ],
)
def test_numbers_of_other_kinds_are_kept_as_pythons_own(name: str, given: Any, kept: object) -> None:
    """Files cannot hold NumPy's, and messages would show `np.float32(0.5)`."""
    limits = Limits(**{name: given})
    assert repr(getattr(limits, name)) == repr(kept)
    assert str(limits) == f"{name}={kept!r}"


@pytest.mark.parametrize("name", NUMBERS)
@given(value=st.floats(max_value=0) | st.integers(max_value=0) | st.booleans() | st.text() | st.binary())
def test_nothing_else_is(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=f"^perf\\({name}="):
        Limits(**{name: value})


def test_limits_do_not_change_and_no_other_name_is_one() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Limits().asked = {}  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Limits().max_rel_std = 0.5  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'max_tim_us' is no limit"):
        _ = Limits().max_tim_us


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_says_what_it_limits(name: str) -> None:
    """`pytest --markers` and the README are made of it."""
    assert getattr(Limits(), name) is None
    assert len(BY_NAME[name].help) > 20


@pytest.mark.parametrize(
    ("given", "kept"),
    [(2**63, True), (2**63 + 1, False), ("8388608TiB", True), ("8388609TiB", False), ("1" * 400 + "GiB", False)],
)
def test_a_memory_that_no_gpu_has_is_refused(given: object, kept: bool) -> None:
    with nullcontext() if kept else pytest.raises(ValueError, match=r"it must be at most (2\*\*63 bytes|9223372)"):
        assert memory_size(given) == 2**63
