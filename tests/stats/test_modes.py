"""Modes: found where there are some, and seldom elsewhere."""

import math
import random
from collections.abc import Callable

import pytest

from pytest_gpubench.stats.modes import modes_text

TICK_US = 0.032
Draw = Callable[[random.Random, int], float]
"""Draws the sample of this number."""


def near(*modes: tuple[float, int]) -> list[float]:
    """Return so many samples near each time, 0.1 % apart, in turn."""
    return [time_us * (1 + (number % 4) / 1000) for time_us, reps in modes for number in range(reps)]


@pytest.mark.parametrize(
    ("samples_us", "text"),
    [
        (near((157, 9), (173, 41)), "two modes: 157 us (18 %), 173 us"),
        (near((173, 30), (157, 10)), "two modes: 157 us (25 %), 173 us"),
        (near((91.5, 40), (1150, 5)), "two modes: 91.6 us, 1150 us (11 %)"),
        (near((157, 10), (160, 10), (173, 20)), "three modes: 157 us (25 %), 160 us (25 %), 173 us"),
        (near((100, 10), (102, 10), (130, 10), (133, 10)), "4 modes: *"),
        (near((100, 50)), ""),
        (near((100, 20), (100.9, 20)), ""),
        (near((100, 20), (101.1, 20)), "two modes: 100 us, 101 us (50 %)"),
        (near((100, 37), (150, 3)), "two modes: 100 us, 150 us (8 %)"),
        (near((100, 38), (150, 2)), ""),
        (near((100, 20), (150, 19)), ""),
        ([10.0, 10.032, 10.033, 10.128] * 10 + [10.3] * 20, "two modes: *"),
        ([10.0, 10.032, 10.033, 10.128] * 10 + [10.28] * 20, ""),
        ([10.0] * 40, ""),
        ([], ""),
    ],
)
def test_modes_in_words(samples_us: list[float], text: str) -> None:
    found = modes_text(samples_us)
    assert found.startswith(text.removesuffix("*")) if text.endswith("*") else found == text


def test_a_few_samples_between_modes_do_not_hide_them() -> None:
    modes = [150.0 + number / 100 for number in range(50)] + [170.0 + number / 100 for number in range(48)]
    assert modes_text([*modes, 158.0, 163.0]).startswith("two modes: 150 us, 170 us")
    assert modes_text([*modes[:-1], 155.0, 158.0, 160.0, 163.0, 166.0]) == ""


NOISES: dict[str, Draw] = {
    "normal": lambda rng, _: 100 + 0.3 * rng.gauss(0, 1),
    "lognormal": lambda rng, _: 100 + 0.3 * math.exp(rng.gauss(0, 1)),
    "ticks": lambda rng, _: TICK_US * round((1.5 + rng.choice((0.0, 0.0, 0.02)) + 0.01 * rng.gauss(0, 1)) / TICK_US),
    "drift": lambda rng, number: 100 + 0.05 * number + 0.3 * rng.gauss(0, 1),
    "two modes": lambda rng, _: (100 if rng.random() < 0.18 else 103) + 0.3 * rng.gauss(0, 1),
}


def share_with_modes(noise: str, trials: int, reps: int = 40) -> float:
    rng = random.Random(f"{noise} {reps}")
    found = (modes_text([NOISES[noise](rng, number) for number in range(reps)]) for _ in range(trials))
    return sum(map(bool, found)) / trials


@pytest.mark.parametrize("noise", [name for name in NOISES if name != "two modes"])
def test_noise_seldom_looks_like_modes(noise: str) -> None:
    assert share_with_modes(noise, 1000) <= 0.008
    assert share_with_modes(noise, 200, reps=200) == 0


def test_two_modes_are_found() -> None:
    assert share_with_modes("two modes", 400) >= 0.93
    assert share_with_modes("two modes", 100, reps=200) >= 0.99
