import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.report.html.numbers import sizes_in


@pytest.mark.parametrize(
    ("example", "sizes"),
    [
        ("", {}),
        ("rows=3", {"rows": 3}),
        ("rows=3, scale=-1.5e-3", {"rows": 3, "scale": -0.0015}),
        ("shape=(3, 4), dtype=torch.float16", {"shape": 12, "shape[0]": 3, "shape[1]": 4}),
        ("shape=(5,)", {"shape[0]": 5}),
        ("x=Tensor((2, 8), strides=(8,)), n=7", {"x": 16, "x[0]": 2, "x[1]": 8, "strides[0]": 8, "n": 7}),
        ("flag=True, name='n=3'", {}),
        ("no keywords at all", {}),
        ("rows=1e999", {}),
    ],
)
def test_the_sizes_of_an_example(example: str, sizes: dict[str, float]) -> None:
    assert sizes_in(example) == sizes


@given(st.text())
def test_no_example_is_too_strange_for_its_sizes(text: str) -> None:
    assert all(math.isfinite(size) for size in sizes_in(text).values())
