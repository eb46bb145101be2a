"""One wrong element among any, and torch's own comparison beside ours."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_gpubench.correctness import Tolerance, chunks
from tests.correctness.samples import COMPLEX, FLOAT8, FLOATS, INTEGERS, chunk_sizes, compare, layouts, names, shapes

special = st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 65504.0, 3e38])
values = st.one_of(special, st.floats(-4, 4), st.floats(allow_nan=True))


class TestElements:
    @pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8, *COMPLEX, *INTEGERS, torch.bool], ids=str)
    @settings(max_examples=10, deadline=None)
    @given(data=st.data())
    def test_one_wrong_element_is_found_where_it_is(self, dtype: torch.dtype, data: st.DataObject) -> None:
        """Whatever the layouts and the chunk; and nothing is found where nothing was planted."""
        shape = data.draw(shapes)
        where = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
        generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
        expected = torch.randint(0, 2, shape, generator=generator).to(dtype)
        wrong = expected.clone()
        wrong[where] = 1 - int(expected[where].to(torch.complex128).real)
        found, kept = layouts(wrong)[data.draw(names)], layouts(expected)[data.draw(names)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunks, "CHUNK_ELEMENTS", data.draw(chunk_sizes))
            difference, same = compare(found, kept), compare(layouts(expected)[data.draw(names)], kept)
        assert same.passed
        assert (same.max_abs_diff, same.mismatched) == (0.0, 0)
        assert (difference.passed, difference.where, difference.mismatched) == (False, where, 1)
        assert (difference.max_abs_diff, difference.abs_diff) == (1.0, 1.0)
        assert difference.elements == expected.numel()

    @settings(max_examples=60, deadline=None)
    @given(
        pairs=st.lists(st.tuples(values, values), min_size=1, max_size=12),
        dtype=st.sampled_from(FLOATS),
        noise=st.sampled_from([0.0, 1e-8, 1e-6, 1e-3, 1e-2, 0.1]),
        equal_nan=st.booleans(),
        tolerance=st.sampled_from([(None, None), (0.0, 0.0), (1e-3, 0.0), (0.0, 1e-2), (0.5, 0.5)]),
    )
    def test_passes_if_and_only_if_assert_close_does(
        self,
        pairs: list[tuple[float, float]],
        dtype: torch.dtype,
        noise: float,
        equal_nan: bool,
        tolerance: tuple[float | None, float | None],
    ) -> None:
        """But for differences so near the limit that torch, which computes in the dtype itself, rounds across it."""
        expected = torch.tensor([other for _, other in pairs], dtype=torch.float64)
        found = expected * (1 + noise) if noise else torch.tensor([one for one, _ in pairs], dtype=torch.float64)
        one, other = found.to(dtype), expected.to(dtype)
        rtol, atol = Tolerance(*tolerance).of(dtype)
        diff, allowed = (one.double() - other.double()).abs(), atol + rtol * other.double().abs()
        slack = 4 * torch.finfo(dtype).eps * (allowed + one.double().abs() + other.double().abs())
        assume(not ((diff - allowed).abs() <= slack)[diff > 0].any() or (rtol == atol == 0))
        assume(float(diff.nan_to_num(0, posinf=0).max()) < torch.finfo(dtype).max)
        try:
            torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=equal_nan)
        except AssertionError:
            close = False
        else:
            close = True
        assert compare(one, other, tolerance=Tolerance(*tolerance, equal_nan=equal_nan)).passed is close

    @settings(max_examples=100, deadline=None)
    @given(
        expected=values,
        steps=st.integers(-3, 3),
        dtype=st.sampled_from(FLOATS),
        rtol=st.sampled_from([0.0, 1e-40, 1e-6, 1e-3, 1.0, 2.0, 1e300]),
        atol=st.sampled_from([0.0, 1e-45, 1e-30, 1e-5, 1.0, 1e300]),
    )
    def test_the_limit_is_exact(
        self, expected: float, steps: int, dtype: torch.dtype, rtol: float, atol: float
    ) -> None:
        """For the numbers next to the last one that is allowed, whatever float32 makes of them."""
        other = torch.tensor([expected], dtype=torch.float64).to(dtype)
        found = (other.double() + atol + rtol * other.double().abs()).to(dtype)
        for _ in range(abs(steps)):
            found = torch.nextafter(found.float(), torch.tensor(math.copysign(math.inf, steps))).to(dtype)
        one, two = float(found), float(other)
        right = one == two or (math.isfinite(one - two) and abs(one - two) <= atol + rtol * abs(two))
        difference = compare(found, other, tolerance=Tolerance(rtol, atol))
        assert difference.passed is right
        if right:
            assert difference.max_abs_diff == pytest.approx(
                abs(one - two) if one != two else 0.0, rel=2**-23, abs=1e-45
            )
