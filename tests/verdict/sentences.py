"""What tests of several limits share: alphas, and the numbers that a sentence shows."""

import pytest
from hypothesis import strategies as st

UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
alphas = st.sampled_from((0.05, 0.01, 0.001, 1e-4))


def check_printed(text: str | None, scale: float, stored: float | None, rel: float) -> None:
    assert (text is None) == (stored is None)
    if text is not None:
        assert float(text) * scale == pytest.approx(stored, rel=rel)
