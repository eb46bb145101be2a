"""Student's t: the closed form against tables, and the series against the closed form."""

import statistics

import pytest

from pytest_gpubench.stats.student import student_quantile, student_t


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("freedom", [10, 30, 300])
def test_the_series_is_close_to_the_closed_form(alpha: float, freedom: int) -> None:
    series = student_quantile(statistics.NormalDist().inv_cdf(1 - alpha), freedom)
    assert series == pytest.approx(student_t(alpha, freedom), rel=2e-4)


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.975, 9, 2.262157), (0.995, 9, 3.249836), (0.9995, 9, 4.780913), (0.9995, 49, 3.5004), (0.975, 249, 1.969537)],
)
def test_student_quantile_is_the_tabulated_one(probability: float, freedom: int, expected: float) -> None:
    z = statistics.NormalDist().inv_cdf(probability)
    assert student_quantile(z, freedom) == pytest.approx(expected, rel=1e-3)
