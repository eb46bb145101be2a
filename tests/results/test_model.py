"""What a run measured survives the way to the controller and to disk, and no number comes from no samples."""

import dataclasses
import datetime
import enum
import math
import weakref
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.errors import NotMeasured
from pytest_gpubench.results.model import (
    DEEPEST,
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

DEVICE = DeviceFacts(type="cuda", name="NVIDIA H200", host="localhost")


def timing(samples_us: tuple[float, ...] = (), **given: Any) -> Timing:
    return Timing(label="softmax", timer="profiler", cache="cold", device="NVIDIA H200", samples_us=samples_us, **given)


UNMEASURED = timing(unmeasured="switched off by --gpu-bench-disable")


# numbers


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reps", 6),
        ("median_us", 3.5),
        ("mean_us", 4.0),
        ("min_us", 1.0),
        ("max_us", 9.0),
        ("std_us", math.sqrt(40 / 5)),
        ("rel_std", math.sqrt(40 / 5) / 4),
        ("quartiles_us", (2.25, 3.5, 4.75)),
        ("median_interval_us", (1.0, 9.0)),
        ("median_busy_us", 2.0),
        ("median_span_us", 7.5),
        ("median_sm_clock_mhz", 1975.0),
        ("launches", 5),
    ],
)
def test_numbers(name: str, expected: object) -> None:
    kernels = [
        Kernel(name=kernel, kind="kernel", launches=launches, median_us=1.0)
        for kernel, launches in [("a", 2), ("b", 3)]
    ]
    measured = timing(
        (9.0, 1.0, 3.0, 2.0, 5.0, 4.0),
        busy_us=(1.0, 2.0, 8.0),
        span_us=(7.0, 8.0),
        sm_clock_mhz=(1980.0, 1970.0),
        kernels=tuple(kernels),
    )
    assert getattr(measured, name) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("median_us", 3.0),
        ("mean_us", 3.0),
        ("min_us", 3.0),
        ("max_us", 3.0),
        ("std_us", math.nan),
        ("rel_std", math.nan),
        ("quartiles_us", (3.0, 3.0, 3.0)),
        ("median_interval_us", None),
        ("median_busy_us", None),
        ("median_span_us", None),
        ("median_sm_clock_mhz", None),
        ("launches", 0),
    ],
)
def test_numbers_of_a_single_rep(name: str, expected: object) -> None:
    """Of one sample no spread is known; without records there is neither busy nor span."""
    assert getattr(timing((3.0,)), name) == pytest.approx(expected, nan_ok=True)


PROPERTIES = {name for name, value in vars(Timing).items() if isinstance(value, (property, cached_property))}
KNOWN_WITHOUT_SAMPLES = {
    "cycles": (),
    "median_cycles": None,
    "memory_clock_mhz": (),
    "temperature_c": (),
    "power_w": (),
    "throttle_masks": (),
    "max_temperature_c": None,
    "measured": False,
    "reps": 0,
    "median_busy_us": None,
    "median_span_us": None,
    "gbps": None,
    "tflops": None,
    "median_sm_clock_mhz": None,
    "launches": 0,
}


@pytest.mark.parametrize("name", sorted(PROPERTIES - KNOWN_WITHOUT_SAMPLES.keys()))
def test_no_number_comes_from_no_samples(name: str) -> None:
    with pytest.raises(NotMeasured, match="'softmax' has no numbers: switched off by --gpu-bench-disable"):
        getattr(UNMEASURED, name)


@pytest.mark.parametrize("name", KNOWN_WITHOUT_SAMPLES)
def test_what_is_known_without_samples(name: str) -> None:
    assert getattr(UNMEASURED, name) == KNOWN_WITHOUT_SAMPLES[name]


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (timing((12.3456,)), "softmax: 12.35 us (median of 1 rep, cold, profiler)"),
        (timing((999.999, 999.999)), "softmax: 1.000 ms (median of 2 reps, cold, profiler)"),
        (timing((1.0, 2.0, 9.0)), "softmax: 2.000 us (median of 3 reps, cold, profiler)"),
        (UNMEASURED, "softmax: not measured (switched off by --gpu-bench-disable)"),
    ],
)
def test_a_timing_reads_as_one_line(subject: Timing, text: str) -> None:
    assert str(subject) == text


def test_a_timing_does_not_change() -> None:
    with pytest.raises(AttributeError):
        timing((1.0,)).label = "faster"  # type: ignore[misc]


# the way there and back


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
    verdicts = st.builds(Verdict, limit=texts, outcome=st.sampled_from(Outcome), sentence=texts, enforced=st.booleans())
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


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Odd:
    def __str__(self) -> str:
        return "an odd object"


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


def info(value: object) -> object:
    """Return what comes back of a value in `extra_info`."""
    found = decode(encode(TestRecord(nodeid="test", device=DEVICE, extra_info={"value": value}))).extra_info
    assert list(found) == ["value"]
    return found["value"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (False, False),
        (3, 3),
        (0.1, 0.1),
        ("text", "text"),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (np.float64(0.1), 0.1),
        (np.float32(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.int64(-3), -3),
        (np.uint8(255), 255),
        (np.bool_(True), True),
        (np.str_("text"), "text"),
        (np.longdouble(0.5), 0.5),
        (np.array(3), 3),
        (np.array([2.5]), 2.5),
        (np.array([[True]]), True),
        (np.array(0.5, dtype=np.longdouble), 0.5),
        (np.array([Decimal("0.10")]), "0.10"),
        (torch.tensor(2.5), 2.5),
        (torch.tensor([[3]]), 3),
        (torch.tensor([True]), True),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
        (torch.tensor([1, 2]), "tensor([1, 2])"),
        (torch.zeros((), device="meta"), "tensor(..., device='meta', size=())"),
        (torch.float16, "torch.float16"),
        (np.array([1, 2]), "[1 2]"),
        (np.complex128(1 + 2j), "(1+2j)"),
        (np.datetime64("2025-01-01"), "2025-01-01"),
        (1 + 2j, "(1+2j)"),
        ((1, 2), [1, 2]),
        ({3}, "{3}"),
        (b"text", "b'text'"),
        (10**30, 10**30),
        pytest.param(10**5_000, "<int object>", id="more digits than Python writes"),
        (Decimal("0.10"), "0.10"),
        (Path("a/b"), "a/b"),
        (datetime.date(2025, 1, 1), "2025-01-01"),
        (Point(1, 0.5), "Point(x=1, y=0.5)"),
        (Odd(), "an odd object"),
        (int, "<class 'int'>"),
        (range(3), "range(0, 3)"),
        ({1: {(2, 3): np.int32(4)}}, {"1": {"(2, 3)": 4}}),
        ([np.float32(1), [Odd()]], [1.0, ["an odd object"]]),
        (math.nan, None),  # JSON has neither
        (math.inf, None),
        (np.float32(math.nan), None),
        (torch.tensor(-math.inf), None),
    ],
)
def test_extra_info_is_written_as_its_number_or_its_text(value: object, expected: object) -> None:
    found = info(value)
    assert found == expected
    assert type(found) is type(expected)


class Endless(Odd):
    def item(self) -> object:
        return self


class Renewed(Odd):
    def item(self) -> object:
        return Renewed()


class Refusing(Odd):
    def item(self) -> object:
        raise RuntimeError("not on this device")


class Scalar(Odd):
    def item(self) -> float:
        return 2.5


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


class Babbling:
    def __str__(self) -> str:
        return str(self)


class NoFloat(float):
    def __float__(self) -> float:
        raise RuntimeError("it is not a number after all")


class NoItems(dict[str, object]):
    def items(self) -> NoReturn:
        raise RuntimeError("it has no items")


GONE = weakref.proxy(Odd())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Scalar(), 2.5),
        (Endless(), "an odd object"),
        (Renewed(), "an odd object"),
        (Refusing(), "an odd object"),
        (GONE, f"<{type(GONE).__name__} object>"),
        (Mute(), "<Mute object>"),
        (Babbling(), "<Babbling object>"),
        (NoFloat(0.5), "0.5"),
        (NoItems(a=1), "{'a': 1}"),
        ({Mute(): [Mute()]}, {"<Mute object>": ["<Mute object>"]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_extra_info_is_written_whatever_it_is(value: object, expected: object) -> None:
    """Losing a test's results over what it noted beside them would be worse than any text."""
    assert info(value) == expected


def test_what_contains_itself_is_written_as_text_where_it_does() -> None:
    endless: list[object] = [1]
    endless.append(endless)
    assert info(endless) == [1, "[1, [...]]"]
    ring: dict[str, object] = {"width": 3}
    ring |= {"left": [ring], "right": (ring, ring)}
    text = str(ring)
    assert info(ring) == {"width": 3, "left": [text], "right": [text, text]}


def test_what_is_found_twice_but_not_in_itself_is_written_twice() -> None:
    shape = [4, 4]
    assert info({"input": shape, "output": shape}) == {"input": shape, "output": shape}


def test_what_is_nested_too_deep_is_cut() -> None:
    """However deep: neither Python's stack nor msgspec's may overflow."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    found, depth = info(deep), 0
    while isinstance(found, list):
        [found], depth = found, depth + 1
    assert (found, depth) == ("<list object>", DEEPEST - 1)  # extra_info itself is the outermost


LONE_SURROGATE = "data\udcff.bin"  # the name of a file that is not UTF-8


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (LONE_SURROGATE, r"data\udcff.bin"),
        ([LONE_SURROGATE], [r"data\udcff.bin"]),
        ({LONE_SURROGATE: 1}, {r"data\udcff.bin": 1}),
        (Path(LONE_SURROGATE), r"data\udcff.bin"),
        ("größer \U0001f680", "größer \U0001f680"),
    ],
)
def test_text_that_is_not_utf_8_loses_no_record(value: object, expected: object) -> None:
    assert info(value) == expected


@given(st.recursive(st.floats() | st.text(st.characters()) | st.binary() | st.complex_numbers(), st.lists))
def test_whatever_can_be_noted_comes_back(value: object) -> None:
    """Once it is plain it stays as it is."""
    found = info(value)
    assert info(found) == found


def test_writing_a_record_changes_nothing_in_it() -> None:
    noted = {"size": np.int64(3), "shape": (np.int64(4), 4)}
    record = TestRecord(nodeid="test", device=DEVICE, extra_info=noted)
    encode(record)
    assert record.extra_info is noted
    assert type(noted["size"]) is np.int64


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
