"""The floor of a time: a GPU's memory needs 100 us to copy 400 MB here."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest
import torch

from pytest_gpubench import DeviceFacts, InvalidResult, Timing
from pytest_gpubench.bench import integrity
from pytest_gpubench.bench.integrity import Traffic, check_floor, check_traffic, traffic_of
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.calls import Backward, make_call
from tests.bench.calls import CACHE_BYTES, CPU, GPU, agreement_of
from tests.results.measured import timing_of

FLOOR_SHARE = 0.8
BYTES_PER_US = 4_000_000.0
"""A copy's bandwidth, of the GPU that is pretended."""


@pytest.fixture(autouse=True)
def bandwidth(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """Count how often the bandwidth is asked for."""
    asked: list[Device] = []

    def known(device: Device) -> float:
        asked.append(device)
        return BYTES_PER_US

    monkeypatch.setattr(integrity, "copy_bandwidth", known)
    return asked


def timing(
    time_us: float, timer: str = "profiler", label: str = "mine", throttled: Sequence[str] = (), cache: str = "cold"
) -> Timing:
    return timing_of((time_us,) * 3, label, timer=timer, throttle_reasons=tuple(throttled), cache=cache)


def traffic(least_bytes: int, assumed: bool) -> Traffic:
    """Return a traffic of which all is needed."""
    return Traffic(least_bytes, (lambda: least_bytes) if assumed else None)


def too_fast(sentence: str = "") -> AbstractContextManager[object]:
    return pytest.raises(InvalidResult, match=f"^mine is faster than memory allows{sentence}")


@pytest.mark.parametrize("assumed", [True, False])
@pytest.mark.parametrize(
    ("time_us", "believed"), [(FLOOR_SHARE * 100 - 1e-6, False), (FLOOR_SHARE * 100, True), (100.0, True), (1.0, False)]
)
def test_both_sides_of_the_floor(time_us: float, believed: bool, assumed: bool) -> None:
    sentence = (
        r": .*which a copy on this GPU moves in 100\.0 us; does it compute everything in every call\? "
        r".*say how much with bytes=$"
    )
    with nullcontext() if believed else too_fast(sentence):
        check_floor(timing(time_us), traffic(400_000_000, assumed), GPU, timing(1000))


@pytest.mark.parametrize(
    ("reference_us", "assumed", "believed"),
    [
        (100.0, True, False),  # at the floor: it moves everything
        (99.999, True, True),  # below it: so much need not be moved
        (10.0, True, True),
        (10.0, False, False),  # what was given is not in question
        (1000.0, False, False),
    ],
)
def test_a_reference_below_the_floor_shows_that_less_is_moved(
    reference_us: float, assumed: bool, believed: bool
) -> None:
    with nullcontext() if believed else too_fast():
        check_floor(timing(5), traffic(400_000_000, assumed), GPU, timing(reference_us))


@pytest.mark.parametrize(
    ("time_us", "reference_us", "asked"),
    [
        (80.0, 1000.0, 0),  # not too fast
        (79.9, 1000.0, 1),
        (79.9, 99.9, 0),  # believed for the reference's sake
        (79.9, 100.0, 1),
    ],
)
def test_what_is_needed_is_asked_only_of_one_that_looks_too_fast(
    time_us: float, reference_us: float, asked: int
) -> None:
    calls: list[int] = []

    def needed() -> int:
        calls.append(1)
        return 0

    check_floor(timing(time_us), Traffic(400_000_000, needed), GPU, timing(reference_us))
    assert len(calls) == asked


@pytest.mark.parametrize(
    ("needed", "time_us", "believed"),
    [
        (200_000_000, 40.0, True),
        (200_000_000, 39.9, False),
        (4_000_000, 0.8, True),
        (4_000_000, 0.79, False),
        (0, 1e-3, True),
    ],
)
def test_the_floor_of_what_is_needed(needed: int, time_us: float, believed: bool) -> None:
    with nullcontext() if believed else too_fast(r": .* for (190\.7|3\.8\d*) MiB, which a copy"):
        check_floor(timing(time_us), Traffic(400_000_000, lambda: needed), GPU, timing(1000))


@pytest.mark.parametrize(
    ("device", "timer", "cache", "least_bytes"),
    [
        (CPU, "wall", "cold", 2**40),
        (CPU, "profiler", "cold", 2**40),
        (GPU, "wall", "cold", 2**40),
        (GPU, "scripted", "cold", 2**40),
        (GPU, "profiler", "hot", 2**40),
        (GPU, "profiler", "producer fill", 2**40),
        (GPU, "profiler", "cold", 0),
    ],
)
def test_where_there_is_no_floor_no_bandwidth_is_measured(
    device: Device, timer: str, cache: str, least_bytes: int, bandwidth: list[Device]
) -> None:
    check_floor(timing(1e-3, timer, cache=cache), Traffic(least_bytes), device, timing(1000))
    assert bandwidth == []


def test_no_floor_without_a_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "copy_bandwidth", lambda device: None)
    check_floor(timing(1e-3), Traffic(2**40), GPU, timing(1000))


@pytest.mark.parametrize(
    ("given", "least_us", "believed"),
    [(None, 1e-3, True), (0, 1e-3, True), (400_000_000, 80.0, True), (400_000_000, 79.9, False)],
)
def test_a_measurement_of_its_own_has_a_floor_if_it_was_given_one(
    given: int | None, least_us: float, believed: bool
) -> None:
    with nullcontext() if believed else too_fast():
        check_traffic(make_call(torch.neg), timing(least_us), given, GPU)


IN_FORWARD = (
    r"; its gradient may have been made in the forward run, which is not timed: use backward='both'\. .*bytes=$"
)


@pytest.mark.parametrize(
    ("backward", "sentence"),
    [("forward", "compute everything"), ("both", "compute everything"), ("backward", IN_FORWARD)],
)
def test_a_gradient_that_the_forward_run_made_is_told_so(backward: Backward, sentence: str) -> None:
    with too_fast(f": .*{sentence}"):
        check_traffic(make_call(torch.neg, backward=backward), timing(1.0), 400_000_000, GPU)
    x = torch.empty(CACHE_BYTES // 4)
    agreement = agreement_of(torch.neg, x, backward=backward)
    for given in (None, 400_000_000):
        moved = replace(traffic_of(given, agreement, torch.empty_like(x), GPU), needed=None)
        with too_fast(f": .*{sentence}"):
            check_floor(timing(1.0), moved, GPU, timing(1000))


@pytest.mark.parametrize(
    ("given", "elements", "least_bytes", "assumed"),
    [
        (None, CACHE_BYTES // 4, CACHE_BYTES, True),  # twice as much in and out, less what the cache may keep
        (None, CACHE_BYTES // 8, 0, True),
        (None, 1, 0, True),
        (0, CACHE_BYTES // 4, 0, False),
        (123, CACHE_BYTES // 4, 123, False),
    ],
)
def test_traffic(given: int | None, elements: int, least_bytes: int, assumed: bool) -> None:
    x = torch.empty(elements)
    moved = traffic_of(given, agreement_of(torch.neg, x), torch.empty_like(x), GPU)
    assert moved.least_bytes == least_bytes
    assert (moved.needed is not None) is assumed


SMALL_CACHE = Device(torch.device("cpu"), DeviceFacts(type="cuda", name="NVIDIA H200", host="here", cache_bytes=1000))


@pytest.mark.parametrize(
    ("function", "inputs", "least", "most"),
    [
        (lambda x: x * 2, (torch.randn(512, 64),), 1.8 * 2**17, 2 * 2**17),
        (lambda x, w, dy: x * w, (torch.randn(512, 64), torch.randn(64), torch.randn(2048, 64)), 2**17, 2.7 * 2**17),
        (lambda i: i * 2, (torch.arange(10_000),), 80_000, 80_000),
    ],
    ids=["all", "an argument unused", "integers"],
)
def test_what_is_needed_of_the_inputs(
    function: Callable[..., object], inputs: Sequence[torch.Tensor], least: float, most: float
) -> None:
    """The outputs always are, the inputs as far as they matter; less what the cache may keep."""
    agreement = agreement_of(function, *inputs)
    moved = traffic_of(None, agreement, agreement.run_reference().outputs, SMALL_CACHE)
    assert moved.needed is not None
    assert least - 1000 <= moved.needed() <= min(most - 1000, moved.least_bytes)


def test_what_a_reference_draws_at_random_is_needed_too() -> None:
    """Each of its runs draws the same."""
    x = torch.randn(512, 64)
    agreement = agreement_of(lambda x: torch.nn.functional.dropout(x, 0.3), x)
    with agreement.leaving_state():
        moved = traffic_of(None, agreement, agreement.run_reference().outputs, SMALL_CACHE)
        assert moved.needed is not None
        assert moved.needed() > 1.7 * x.nbytes
