"""A record survives the way to the controller, and what is none is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.results.model import (
    DeviceFacts,
    Kernel,
    Measurement,
    Outcome,
    TestRecord,
    Timing,
    Verdict,
    decode,
    encode,
)
from tests.results.measured import verdict

DEVICE = DeviceFacts(type="cuda", name="NVIDIA H200", host="localhost")


def records(extra_info: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[TestRecord]:
    texts, counts = st.text(max_size=8), st.integers(0, 2**40)
    times = st.floats(0, allow_nan=False, allow_infinity=False)
    samples = st.lists(times, max_size=3).map(tuple)
    kernels = st.builds(
        Kernel, name=texts, kind=st.sampled_from(("kernel", "memcpy", "memset")), launches=counts, median_us=times
    )
    timings = st.builds(
        Timing,
        label=texts,
        timer=texts,
        cache=texts,
        device=texts,
        samples_us=samples,
        busy_us=samples,
        span_us=samples,
        sm_clock_mhz=samples,
        throttle_reasons=st.lists(texts, max_size=2).map(tuple),
        kernels=st.lists(kernels, max_size=2).map(tuple),
        discarded=counts,
        remeasured=counts,
        warmup_calls=counts,
        elapsed_s=times,
        flags=st.lists(texts, max_size=2).map(tuple),
        unmeasured=st.none() | texts,
    )
    verdicts = st.builds(
        Verdict, kind=texts, asked=texts, outcome=st.sampled_from(Outcome), sentence=texts, enforced=st.booleans()
    )
    measurements = st.builds(Measurement, timing=timings, verdicts=st.lists(verdicts, max_size=2).map(tuple))
    devices = st.builds(
        DeviceFacts,
        type=st.sampled_from(("cuda", "cpu")),
        name=texts,
        host=texts,
        uuid=st.none() | texts,
        multiprocessors=st.none() | counts,
        power_limit_w=st.none() | times,
        mig=st.none() | st.booleans(),
    )
    return st.builds(
        TestRecord,
        nodeid=texts,
        device=devices,
        worker=texts,
        params=st.dictionaries(texts, texts, max_size=2),
        measurements=st.lists(measurements, max_size=2).map(tuple),
        extra_info=extra_info,
        warnings=st.lists(texts, max_size=2).map(tuple),
    )


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(records(st.dictionaries(st.text(), plain_values, max_size=3)))
def test_a_record_comes_back_as_it_went(record: TestRecord) -> None:
    assert decode(encode(record)) == record


@given(records(st.just({})))
def test_reading_numbers_does_not_change_a_record(record: TestRecord) -> None:
    """`median_interval_us` is kept once computed: not as a part of the timing."""
    text, copy = encode(record), decode(encode(record))
    for item in record.measurements:
        if item.timing.measured:
            assert item.timing.median_interval_us is item.timing.median_interval_us
    assert encode(record) == text
    assert record == copy


def test_records_do_not_share_their_dicts() -> None:
    one, other = (TestRecord(nodeid=name, device=DEVICE) for name in "ab")
    one.extra_info["bytes"] = 4
    one.params["dtype"] = "float32"
    assert other.extra_info == other.params == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "truncated"),
        ("{", "truncated"),
        ("{}", "missing required field `nodeid`"),
        ('{"nodeid": 1}', r"Expected `str`, got `int` - at `\$.nodeid`"),
        ('{"nodeid": "a", "device": {"type": "tpu"}}', r"Invalid enum value 'tpu' - at `\$.device.type`"),
    ],
)
def test_what_is_not_a_record_is_refused_with_where(text: str, sentence: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=sentence):
        decode(text)


def test_verdicts_of_the_past_are_known_by_their_limit() -> None:
    verdicts = [verdict(limit, Outcome.PASS) for limit in ("max_regression=0.1", "min_speedup=1")]
    item = Measurement(timing=Timing(label="a", timer="wall", cache="cold", device="b"), verdicts=tuple(verdicts))
    assert [verdict.is_of_past for verdict in item.verdicts] == [True, False]
