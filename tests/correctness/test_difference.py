"""What is said of a difference."""

import math
import re
from dataclasses import replace

import pytest
import torch

from pytest_gpubench.correctness import Difference, Tolerance
from tests.correctness.samples import compare


class TestText:
    @pytest.fixture
    def difference(self) -> Difference:
        expected = torch.linspace(1, 2, 24).reshape(4, 6)
        found = expected.clone()
        found[1, 2] += 0.125
        found[3, 5] -= 0.0625
        return compare((found,), (expected,))

    def test_numbers_are_the_stored_numbers(self, difference: Difference) -> None:
        counts, worst = r"(\d+) of (\d+) elements \((\S+) %\) .* at \[(.*)\]", r"found (\S+), expected (\S+)"
        printed = re.search(rf"{counts}: {worst}, off by (\S+), allowed (.+)", difference.sentence)
        assert printed
        mismatched, elements, share, where, *others = printed.groups()
        assert (int(mismatched), int(elements)) == (difference.mismatched, difference.elements) == (2, 24)
        assert float(share) == pytest.approx(100 * 2 / 24, rel=0.05)
        assert tuple(map(int, where.split(", "))) == difference.where == (1, 2)
        stored = [difference.found, difference.expected, difference.abs_diff, difference.allowed]
        assert [float(number) for number in others] == [pytest.approx(number, rel=5e-4) for number in stored]

    def test_sentence(self, difference: Difference) -> None:
        assert difference.sentence == (
            "out[0]: 2 of 24 elements (8.3 %) differ by more than is allowed; the worst at [1, 2]: found 1.473, "
            "expected 1.348, off by 0.125, allowed 1.175e-05"
        )
        assert difference.line == "out[0] FAIL max_diff=0.12, 2 of 24 elements"

    @pytest.mark.parametrize(
        ("nans", "others", "words"),
        [
            (4, 0, "4 of 4 elements (100 %) differ by more than is allowed, all of them NaN;"),
            (1, 2, "3 of 4 elements (75 %) differ by more than is allowed, 1 of them NaN;"),
            (0, 2, "2 of 4 elements (50 %) differ by more than is allowed;"),
        ],
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
    def test_nans_are_counted(self, nans: int, others: int, words: str, dtype: torch.dtype) -> None:
        expected = torch.ones(2, 2, dtype=dtype)
        found = expected.clone()
        found.view(-1)[:nans] = math.nan
        found.view(-1)[nans : nans + others] = 2
        assert words in compare(found, expected).sentence

    def test_an_element_that_changes_while_it_is_compared(self, difference: Difference) -> None:
        late = replace(difference, found=difference.expected, abs_diff=0.0)
        assert late.sentence.endswith(
            "found 1.348, expected 1.348: it changed while it was compared, as where a call goes on after it returned"
        )

    def test_what_passes_says_how_near_it_is(self) -> None:
        x = torch.ones(3)
        difference = compare({"obs": x + 2**-23}, {"obs": x})
        assert difference.line == difference.sentence == "out['obs'] PASS max_diff=1.2e-07"
        assert difference.max_abs_diff == 2**-23
        assert (difference.where, difference.allowed, difference.mismatched) == (None, None, 0)

    @pytest.mark.parametrize(
        ("found", "expected", "end"),
        [
            (
                2.0,
                1.0,
                "1 of 1 element (100 %) differs by more than is allowed; the worst: found 2, expected 1, off by",
            ),
            (math.nan, math.nan, "found nan, expected nan (equal_nan=True would let it pass)"),
            (math.nan, 1.0, "found nan, expected 1"),
            (1.0, math.inf, "found 1, expected inf"),
        ],
    )
    def test_scalars_and_what_is_not_finite(self, found: float, expected: float, end: str) -> None:
        sentence = compare(torch.tensor(found), torch.tensor(expected)).sentence
        assert end in sentence
        assert sentence.endswith(end) or "off by" in end

    @pytest.mark.parametrize(
        ("found", "expected", "texts"),
        [
            (1.0, 2.0, ("1", "2")),
            (1.0001, 1.0002, ("1.0001", "1.0002")),
            (1.0, 1.0 + 2**-52, ("1", "1.0000000000000002")),
            (2**60, 2**60 + 1, (str(2**60), str(2**60 + 1))),
            (True, False, ("True", "False")),
            (1 + 2j, 1 - 2j, ("1+2j", "1-2j")),
            (math.nan, math.nan, ("nan", "nan")),
        ],
    )
    def test_two_numbers_that_differ_look_different(
        self, found: float, expected: float, texts: tuple[str, str]
    ) -> None:
        differs = Difference("out", False, 1.0, 1, 9, found=found, expected=expected, abs_diff=math.inf)
        assert f"the worst: found {texts[0]}, expected {texts[1]}" in differs.sentence

    def test_the_share_of_one_in_many_is_not_nothing(self) -> None:
        x = torch.zeros(100_000)
        y = x.clone()
        y[77_777] = 1
        assert (
            "1 of 100000 elements (0.0010 %) differs by more than is allowed; the worst at [77777]"
            in compare(y, x).sentence
        )


class TestRounding:
    """Floats that are off by 100 times what is allowed, and less, may only have been rounded otherwise."""

    @pytest.mark.parametrize(("times", "may"), [(0.9, False), (1.1, True), (99.0, True), (101.0, False), (1e9, False)])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16])
    def test_how_far_off(self, times: float, may: bool, dtype: torch.dtype) -> None:
        expected = torch.zeros(3, dtype=dtype)
        allowed = compare(expected + 1, expected).allowed
        assert allowed
        assert compare(expected + times * allowed, expected).may_be_rounding is may

    @pytest.mark.parametrize("found", [math.nan, math.inf, "two", torch.zeros(2).double(), torch.tensor([0, math.nan])])
    def test_what_is_wrong_otherwise(self, found: object) -> None:
        assert not compare(found, torch.zeros(2)).may_be_rounding

    @pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
    def test_numbers_that_have_no_last_place_are_never_rounded(self, dtype: torch.dtype) -> None:
        one = torch.ones(3, dtype=dtype)
        assert not compare(one, torch.zeros_like(one), tolerance=Tolerance(rtol=0.0, atol=0.5)).may_be_rounding

    def test_nothing_is_rounding_where_nothing_is_allowed_or_golden_has_judged(self) -> None:
        one, other = torch.ones(3), torch.ones(3) + 1e-4
        assert compare(other, one).may_be_rounding
        assert not compare(other, one, tolerance=Tolerance(rtol=0.0, atol=0.0)).may_be_rounding
        near = compare(one + 1e-5, one, golden=one.double())
        assert (near.passed, near.may_be_rounding) == (False, False)

    @pytest.mark.parametrize(("times", "factor"), [(2.6, 3), (9.8, 10), (11.0, None)])
    def test_a_factor_that_lets_it_pass_is_named(self, times: float, factor: int | None) -> None:
        golden = torch.ones(1000, dtype=torch.float64)
        reference, candidate = (golden + 1e-4).float(), (golden + times * 1e-4).float()
        wrong = compare(candidate, reference, golden=golden)
        assert wrong.sentence.endswith(f"give golden_factor={factor}") is bool(factor)
        assert compare(candidate, reference, golden=golden, golden_factor=factor or 12).passed
        candidate[7] = math.nan
        assert "golden_factor" not in compare(candidate, reference, golden=golden).sentence
