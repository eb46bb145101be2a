"""Clock wishes: their parsing, and the supported clock that is locked for each."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.gpu.clocks.changes import CLOCK_LIMIT_TDP, nearest
from pytest_gpubench.settings.parsers import ClockWish, clock_wish
from tests.gpu.clocks.locking import GPU
from tests.gpu.recording_nvml import Recording, changes


@pytest.mark.parametrize(("text", "wish"), [("base", "base"), ("max", "max"), ("1410", 1410), ("1", 1)])
def test_a_wish(text: str, wish: ClockWish) -> None:
    assert clock_wish(text) == wish


@pytest.mark.parametrize(
    "text",
    ["", "0", "000", "-1", "-1410", "1410.5", "1e3", "fast", "Max", "1_410", "+5", " 9", "1410MHz", "²", "9" * 5000],
)
def test_what_is_no_wish(text: str) -> None:
    with pytest.raises(ValueError, match="it must be base, max or a whole number of MHz above 0"):
        clock_wish(text)


@given(st.integers(1, 10**9 - 1))
def test_every_number_of_mhz_is_a_wish(mhz: int) -> None:
    assert clock_wish(str(mhz)) == mhz


@given(st.lists(st.integers(1, 3000), min_size=1), st.integers(1, 4000))
def test_no_supported_clock_is_nearer(supported: list[int], wanted: int) -> None:
    chosen = nearest(supported, wanted)
    assert chosen in supported
    assert all(abs(chosen - wanted) <= abs(other - wanted) for other in supported)


@pytest.mark.parametrize(
    ("wish", "default", "graphics"),
    [
        ("max", 1980, 1980),
        ("base", 1410, 1410),
        ("base", 1408, 1410),
        ("base", 1980, CLOCK_LIMIT_TDP),  # an H200's default is its highest clock
        ("base", None, CLOCK_LIMIT_TDP),
        (1410, 1980, 1410),
        (1, 1980, 345),
        (9999, 1980, 1980),
    ],
)
def test_what_a_wish_comes_to(tmp_path: Path, fake: Recording, wish: ClockWish, default: int, graphics: int) -> None:
    fake.answers["DefaultApplicationsClock"] = default
    with ClockLock(GPU, wish, tmp_path) as lock:
        assert lock.graphics_mhz == (None if graphics == CLOCK_LIMIT_TDP else graphics)
    assert changes(tmp_path)[0].clocks == (graphics, graphics)
    assert changes(tmp_path)[1].clocks == (3201, 3201)


@pytest.mark.parametrize(
    ("wish", "chosen"), [(1410, 1410), (1409, 1410), (1402, 1395), (1403, 1410), (1417, 1410), (1418, 1425)]
)
def test_a_clock_that_is_not_supported_is_snapped_and_said_so(tmp_path: Path, wish: int, chosen: int) -> None:
    said: list[str] = []
    with ClockLock(GPU, wish, tmp_path, said.append) as lock:
        assert lock.graphics_mhz == chosen
    told = f"{GPU} does not support {wish} MHz: its clocks are locked at {chosen} MHz, the nearest that it does"
    assert said == [told] * (wish != chosen)
