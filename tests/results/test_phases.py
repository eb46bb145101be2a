"""Phases and regions: their sentences, and the order of nested ones."""

from typing import Any

import pytest

from pytest_gpubench import BadRequest, NotMeasured, Phases, Region
from pytest_gpubench.results.phases import Phase
from pytest_gpubench.stats.summary import Interval

ENCODER = Phase(name="encoder", median_us=30.0, interval=Interval(29.0, 31.0), share=0.75)
DECODER = Phase(name="decoder", median_us=10.0, interval=None, share=0.25, flags=("imprecise",))
WHOLE = Phase(name="both", median_us=40.0, interval=Interval(39.5, 40.5), share=1.0)


def phases(ratio: float | None = 1.0, interval: Interval | None = None, **others: Any) -> Phases:
    known: dict[str, Any] = {
        "title": "both",
        "timer": "profiler",
        "cache": "cold",
        "device": "NVIDIA H200",
        "phases": (ENCODER, DECODER),
        "whole": None if ratio is None else WHOLE,
        "sum_us": 40.0,
        "ratio": ratio,
        "ratio_interval": interval,
    }
    return Phases(**{**known, **others})


OVER_WHOLE = "each phase alone starts with a cold cache, while in the whole it finds"
UNDER_WHOLE = "the whole does work that no phase holds"


@pytest.mark.parametrize(
    ("ratio", "interval", "adds_up", "explanation"),
    [
        (1.02, Interval(1.0099, 1.04), True, ""),
        (1.02, Interval(1.0101, 1.04), False, OVER_WHOLE),
        (0.98, Interval(0.96, 0.9901), True, ""),
        (0.98, Interval(0.96, 0.9899), False, UNDER_WHOLE),
        (1.0099, None, True, ""),
        (1.0101, None, False, OVER_WHOLE),
        (0.9901, None, True, ""),
        (0.9899, None, False, UNDER_WHOLE),
        (None, None, None, ""),
    ],
)
def test_a_sum_that_is_not_the_whole_is_explained(
    ratio: float | None, interval: Interval | None, adds_up: bool | None, explanation: str
) -> None:
    found = phases(ratio, interval)
    assert found.adds_up is adds_up
    assert found.explanation.startswith(explanation)
    assert bool(found.explanation) is bool(explanation)
    assert found.sentence.endswith(found.explanation)


def test_sentences() -> None:
    times = "the time of both (40.00 us against 40.00 us)"
    assert phases(1.0, Interval(0.99, 1.01)).sentence == f"the phases take 1.000x [0.9900, 1.010] {times}"
    assert phases(1.2).sentence.startswith(f"the phases take 1.200x {times}: {OVER_WHOLE}")
    assert phases(None).sentence == ""
    assert str(phases(None)) == "both: encoder 30.00 us (75.0 %), decoder 10.00 us (25.0 %)"
    assert str(phases(1.0)) == f"{phases(None)}; the phases take 1.000x {times}"


def test_a_phase_by_its_name_and_without_numbers() -> None:
    assert phases()["decoder"] is DECODER
    with pytest.raises(BadRequest, match=r"phases\['loss'\]: there is no such phase, only encoder, decoder"):
        phases()["loss"]
    found = phases(None, phases=(), unmeasured="switched off")
    assert (found.measured, str(found)) == (False, "both: not measured (switched off)")
    with pytest.raises(NotMeasured, match=r"phases\['encoder'\] has no numbers: switched off"):
        found["encoder"]


def test_a_region_in_words_and_numbers() -> None:
    region = Region(path="a/b", calls=2, total_ns=(1000, 3000), own_ns=(500, 1500), share=0.5)
    assert (region.name, region.depth, region.median_us, region.own_median_us) == ("b", 1, 2.0, 1.0)
