"""Tolerances: parsing and printing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import BadRequest
from pytest_gpubench.stats.tolerance import RegressionTolerance, parse_tolerance

COMPARED_METRICS = ("speedup", "median", "mean", "q1", "q3")


@pytest.mark.parametrize(
    ("text", "tolerance"),
    [
        ("median:5%", RegressionTolerance("median", margin=0.05)),
        ("speedup:3%", RegressionTolerance("speedup", margin=0.03)),
        (" median : 0.5 % ", RegressionTolerance("median", margin=0.005)),
        ("q3:150%", RegressionTolerance("q3", margin=1.5)),
        ("mean:5us", RegressionTolerance("mean", absolute_us=5)),
        ("mean:250 ns", RegressionTolerance("mean", absolute_us=0.25)),
        ("mean:2ms", RegressionTolerance("mean", absolute_us=2000)),
        ("mean:5s", RegressionTolerance("mean", absolute_us=5e6)),
        ("median:0.000005", RegressionTolerance("median", absolute_us=5)),
        ("instructions:0.1%", RegressionTolerance("instructions", margin=0.001)),
        ("lts__t_bytes.sum:1%", RegressionTolerance("lts__t_bytes.sum", margin=0.01)),
    ],
)
def test_tolerances_are_read(text: str, tolerance: RegressionTolerance) -> None:
    found = parse_tolerance(text)
    assert found.metric == tolerance.metric
    assert found.margin == pytest.approx(tolerance.margin)
    assert found.absolute_us == pytest.approx(tolerance.absolute_us)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("min:5%", "use q1 or median"),
        ("max:5%", "use q3 or median"),
        ("stddev:5%", "'stddev:5%' is no tolerance"),
        ("median", "is no tolerance"),
        ("median:-5%", "is no tolerance"),
        ("median:nan%", "is no tolerance"),
        ("median:5 percent", "is no tolerance"),
        ("", "is no tolerance"),
        ("median:0%", "more than 0"),
        ("median:0us", "more than 0"),
        ("median:1e999%", "tolerance of inf"),
        ("median:5", "'5' would be 5 seconds: write 5% or 5s"),
        ("speedup:5us", "no unit of time"),
        ("instructions:5us", "the counter instructions has no unit of time"),
        ("instructions:5", "would be 5 seconds"),
        ("lts__t_bytes.avg:5%", "is no tolerance"),
    ],
)
def test_what_is_no_tolerance_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        parse_tolerance(text)


@given(st.sampled_from(COMPARED_METRICS), st.integers(1, 10**4).map(lambda n: n / 10**4), st.booleans())
def test_a_tolerance_is_written_as_it_is_read(metric: str, allowed: float, share: bool) -> None:
    relative = share or metric == "speedup"
    tolerance = RegressionTolerance(metric, **{"margin" if relative else "absolute_us": allowed})
    again = parse_tolerance(str(tolerance))
    assert (again.margin, again.absolute_us) == pytest.approx((tolerance.margin, tolerance.absolute_us))
