"""The README's picture of a sweep is what is drawn of its recorded run."""

from tests.docs.picture import SWEEP, sweep_picture


def test_the_picture_of_a_sweep_is_what_is_drawn_now() -> None:
    assert SWEEP.read_text(encoding="utf-8") == sweep_picture(), "take it again: python -m tests.docs.picture"
