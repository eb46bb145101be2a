"""Records survive encoding for the xdist controller."""

import pytest

from pytest_gpubench import Measurement, Timing
from pytest_gpubench.results.model import Outcome, TestRecord, decode, encode
from tests.results.hostile import hostile_run
from tests.results.measured import verdict
from tests.results.saved import make_run

RECORDS = (*hostile_run().records, *make_run(tests=8).records)
"""One has every field, the others are as a run with a GPU leaves them."""


@pytest.mark.parametrize("record", RECORDS, ids=range(len(RECORDS)))
def test_a_record_comes_back_as_it_went(record: TestRecord) -> None:
    assert decode(encode(record)) == record


def test_reading_numbers_does_not_change_a_record() -> None:
    """`median_interval_us` is kept once computed: not as a part of the timing."""
    record = make_run(tests=1).records[0]
    text, copy = encode(record), decode(encode(record))
    for item in record.measurements:
        assert item.timing.median_interval_us is item.timing.median_interval_us
    assert encode(record) == text
    assert record == copy


def test_verdicts_of_the_past_are_known_by_their_limit() -> None:
    verdicts = [verdict(limit, Outcome.PASS) for limit in ("max_regression=0.1", "min_speedup=1")]
    item = Measurement(timing=Timing(label="a", timer="wall", cache="cold", device="b"), verdicts=tuple(verdicts))
    assert [verdict.is_of_past for verdict in item.verdicts] == [True, False]
