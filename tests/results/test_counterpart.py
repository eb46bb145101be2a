"""Finding a measurement in a saved run, and the reason where it has no number."""

from typing import Any

import msgspec
import pytest

from pytest_gpubench import Measurement, Timing
from pytest_gpubench.results.counterpart import KeyReader
from pytest_gpubench.results.model import Outcome
from tests.results.measured import alone, baseline, find, missing, pair, record, timing, verdict


def test_measurements_are_known_by_label_role_reference_example_and_occurrence() -> None:
    unjudged = Measurement(
        timing=Timing(label="x", timer="t", cache="c", device="d", unmeasured="no"), role="candidate"
    )
    items = (alone(), alone(), *pair("mine", 200), *pair("mine", 200, example="n=3"), unjudged)
    assert KeyReader().read_after([], items) == [
        ("softmax", "", "", "", 0),
        ("softmax", "", "", "", 1),
        ("torch", "reference", "", "", 0),
        ("mine", "candidate", "torch", "", 0),
        ("torch", "reference", "", "n=3", 0),
        ("mine", "candidate", "torch", "n=3", 0),
        ("x", "candidate", "torch", "", 0),
    ]


def test_a_measurement_meets_its_own_past_and_no_other() -> None:
    items = (alone(us=1), alone(us=2), *pair("mine", 3), *pair("mine", 4, example="n=3"))
    past = find(baseline(record(*items), record(alone(us=9), nodeid="tests/test_b.py::test_it")))
    for key, item in zip(KeyReader().read_after([], items), items, strict=True):
        assert past.measurement(*key).timing.samples_us == item.timing.samples_us
        for field, other in (
            ("label", "else"),
            ("role", "else"),
            ("reference", "else"),
            ("example", "else"),
            ("occurrence", 7),
        ):
            asked: dict[str, Any] = {**key._asdict(), field: other}
            told = missing(past.measurement(**asked))
            assert told.kind == "no test"
            assert "is not in the baseline 'main' of tests/test_a.py::test_it, only softmax" in told.sentence


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_was_invalid_then_is_no_baseline(outcome: Outcome) -> None:
    item = msgspec.structs.replace(alone(), verdicts=(verdict("max_time_us=1", outcome, "it was throttled"),))
    found = find(baseline(record(item))).measurement("softmax")
    if outcome is Outcome.INVALID:
        told = "softmax was INVALID in the baseline 'main' (it was throttled): there is no number to compare with"
        assert missing(found).sentence == f"{told}; save a new one"
    else:
        assert isinstance(found, Measurement)


def test_what_was_not_measured_then_says_why() -> None:
    item = Measurement(timing=timing("softmax", 1, samples_us=(), unmeasured="no GPU"))
    told = missing(find(baseline(record(item))).measurement("softmax"))
    assert told.sentence == "softmax was not measured in the baseline 'main': no GPU; save a new one"


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ({"timer": "wall"}, "timer profiler in the baseline 'main' and is wall now"),
        ({"cache": "warm"}, "cache cold in the baseline 'main' and is warm now"),
    ],
)
def test_numbers_of_two_kinds_are_never_compared(what: dict[str, Any], told: str) -> None:
    past = find(baseline(record(alone())))
    (key,) = KeyReader().read_after([], [alone()])
    assert past.counterpart(alone(), key) == past.measurement("softmax")
    found = missing(past.counterpart(Measurement(timing=timing("softmax", 289, **what)), key))
    assert found.kind == "host"
    assert told in found.sentence
