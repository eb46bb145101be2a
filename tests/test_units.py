"""What is printed can be read, and means the number it was printed from."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.units import (
    choose_time_unit,
    count,
    format_bytes,
    format_decimal,
    format_time,
    grouped,
    numbered,
    ratio_text,
    round_to_digits,
    share_or_more,
    shortened_inside,
    with_ends,
)

MICROSECONDS_PER_UNIT = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
BYTES_PER_UNIT = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

times_us = st.floats(1e-6, 1e12)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 4, "0"),
        (-0.0, 4, "0"),
        (1, 4, "1.000"),
        (123.45, 4, "123.5"),
        (123456, 4, "123500"),
        (0.012345, 4, "0.01235"),
        (9.9996, 4, "10.00"),
        (0.99996, 4, "1.000"),
        (-12.345, 4, "-12.35"),
        (1e-7, 2, "0.00000010"),
        (1e15, 2, "1000000000000000"),
        (math.nan, 4, "nan"),
        (math.inf, 4, "inf"),
    ],
)
def test_round_to_digits(value: float, digits: int, text: str) -> None:
    assert round_to_digits(value, digits) == text


@pytest.mark.parametrize(
    ("value", "ends", "limit", "text"),
    [
        (329.4, (150, 331), 200, "329.4 us [150.0, 331.0]"),
        (200, None, 200, "200.0 us"),
        (200.0003, (150, 200.003), 200, "200.000 us [150.000, 200.003]"),
        (12345.6, None, 12345.6, "12345.6 us"),  # with fewer digits it would be 12350
        (math.nan, (0.99998, 1), 1.0, "nan us [0.99998, 1.0000]"),
        (1 + 1e-12, None, 1.0, "1.000 us"),
        (math.nextafter(12345.6, math.inf), None, 12345.6, "12345.6 us"),
        (1.05, (math.nextafter(1.03, 0), 1.06), 1.03, "1.050 us [1.030, 1.060]"),
        (1.00001, None, math.nan, "1.000 us"),
    ],
)
def test_digits_show_on_which_side_of_a_limit_a_number_is(
    value: float, ends: tuple[float, float] | None, limit: float, text: str
) -> None:
    assert with_ends(value, ends, limit, unit=" us") == text


@pytest.mark.parametrize(
    ("value_us", "text"),
    [
        (0.999_94, "999.9 ns"),
        (0.999_96, "1.000 us"),
        (999.96, "1.000 ms"),
        (999_940, "999.9 ms"),
        (999_999, "1.000 s"),
        (4_000e6, "4000 s"),
        (0, "0 us"),
        (-12.3456, "-12.35 us"),
        (math.nan, "nan us"),
        (math.inf, "inf us"),
    ],
)
def test_format_time(value_us: float, text: str) -> None:
    """The unit is chosen after rounding: 999.999 us are 1.000 ms, not 1000 us."""
    assert format_time(value_us) == text


@given(times_us)
def test_a_printed_time_is_the_time_and_below_a_thousand_of_its_unit(value_us: float) -> None:
    number, unit = format_time(value_us).split()
    assert float(number) * MICROSECONDS_PER_UNIT[unit] == pytest.approx(value_us, rel=5.1e-4)
    assert unit == "s" or float(number) < 1000
    assert unit == "ns" or float(number) >= 1


@pytest.mark.parametrize(
    ("values_us", "unit"),
    [
        ((), "us"),
        ((0, math.nan, math.inf), "us"),
        ((0, 5_000), "ms"),
        ((3_000, 4_000, 5e6), "ms"),
        ((0.5, 400, 5_000), "us"),
        ((999.96,), "ms"),
    ],
)
def test_choose_time_unit(values_us: tuple[float, ...], unit: str) -> None:
    assert choose_time_unit(values_us) == unit


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (2**10, "1 KiB"),
        (1536, "1.5 KiB"),
        (143_771 * 2**20, "140.4 GiB"),
        (2**20 - 1, "1 MiB"),
        (2**40 - 1, "1 TiB"),
        (1023 * 2**10, "1023 KiB"),
        (20_000 * 2**40, "20000 TiB"),
    ],
)
def test_format_bytes(size: int, text: str) -> None:
    """The unit is chosen after rounding."""
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("beside", "text"), [(2**20, "1,049,088 B"), (2**20 + 512, "1 MiB"), (2**21, "1 MiB"), (None, "1 MiB")]
)
def test_a_size_reads_otherwise_than_another_one(beside: int | None, text: str) -> None:
    assert format_bytes(2**20 + 512, beside) == text


@given(st.integers(1, 2**53))
def test_a_printed_size_is_the_size(size: int) -> None:
    number, unit = format_bytes(size).split()
    assert float(number) * BYTES_PER_UNIT[unit] == pytest.approx(size, rel=5.1e-4)
    assert unit == "TiB" or float(number) < 1024
    assert float(number) >= 1


@pytest.mark.parametrize(
    ("noun", "plural"), [("rep", "reps"), ("process", "processes"), ("launch", "launches"), ("graph", "graphs")]
)
def test_count(noun: str, plural: str) -> None:
    assert [count(number, noun) for number in (0, 1, 2)] == [f"0 {plural}", f"1 {noun}", f"2 {plural}"]


@pytest.mark.parametrize(
    ("value", "text"), [(2310.4, "2,310"), (12345.6, "12,350"), (999.96, "1,000"), (0.01234, "0.01234"), (0, "0")]
)
def test_grouped(value: float, text: str) -> None:
    assert grouped(value) == text


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [(67108864, "B", "67.1 MB"), (999.6e3, "B", "1.00 MB"), (2 * 4096**3, "FLOP", "137 GFLOP"), (0, "B", "0 B")],
)
def test_format_decimal(number: float, unit: str, text: str) -> None:
    assert format_decimal(number, unit) == text


def test_names_that_are_used_again_are_numbered() -> None:
    assert numbered(["f", "g", "f", "f#2", "f", "f"], "#") == ["f", "g", "f#2", "f#2#2", "f#3", "f#4"]


@pytest.mark.parametrize(("most", "kept"), [(10, "0123456789"), (9, "01234…789"), (6, "012…89")])
def test_the_middle_of_what_is_too_long_is_left_out(most: int, kept: str) -> None:
    assert shortened_inside("0123456789", most) == kept
    assert shortened_inside("a" * 13, 12, "..") == "aaaaaa..aaaa"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.025, "2.5 % or more"),
        (8.99, "900 % or more"),
        (9.0, "nothing below a factor of 10"),
        (math.inf, "nothing below a factor of 10"),
    ],
)
def test_a_change_that_is_next_to_impossible_is_no_number(share: float, text: str) -> None:
    assert share_or_more(share) == text


def test_a_ratio_to_nothing_is_no_number() -> None:
    assert ratio_text(math.inf, (1.0, math.inf)) == "-"
