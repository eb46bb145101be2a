"""Measured peaks of a GPU: sizes, reps, errors and remarks."""

from collections.abc import Callable, Sequence
from itertools import chain, cycle, repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from pytest_gpubench import IncompleteRecords, ProfilerBusy
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.results.model import Peaks
from pytest_gpubench.timing import kernels, peaks
from pytest_gpubench.timing.base import Call, Rep, call_of
from pytest_gpubench.timing.calls import normal_noise
from pytest_gpubench.timing.peaks import copy_bandwidth, measured_peaks, parts
from tests.results.measured import facts
from tests.timing.fakes import HEAT, POWER, ArmsTimer, Clock

MEMORY_REPS = 8


def gpu(name: str = "NVIDIA H200", nvml: Any = None, **given: Any) -> Device:
    return Device(torch.device("cpu"), facts(name, **{"cache_bytes": 2**20, **given}), nvml)


def peaks_of(device: Device, dtypes: Sequence[str] | None = ()) -> Peaks:
    found = measured_peaks(device, dtypes)
    assert found is not None
    return found


# what is tried


@pytest.mark.parametrize("number", [1, 2, 3])
def test_parts_are_aligned_apart_and_as_large_as_fit(number: int) -> None:
    pool = torch.zeros(2**16)
    found = parts(pool, 2**18, number)
    starts = [part.data_ptr() - pool.data_ptr() for part in found]
    assert len(found) == number
    assert all(start % peaks.ALIGNMENT_BYTES == 0 for start in starts)
    assert starts == [place * found[0].nbytes for place in range(number)]
    total = sum(part.nbytes for part in found)
    assert 2**18 - number * peaks.ALIGNMENT_BYTES < total <= 2**18


# what is measured


class Played(ArmsTimer):
    """Play a time for each call, the first rep of a session twice as long."""

    def __init__(self, time_us: Callable[[str], float]) -> None:
        super().__init__(Clock(), self.play_call)
        self.time_us = time_us

    def play_call(self, label: str, number: int) -> Rep:
        before = self.names[number - len(self.sessions[-1].taken) : number]
        return Rep(self.time_us(label) * (1 if label in before else 2))

    def __call__(self, device: Device, cache: str) -> "Played":
        assert cache == "cold"
        return self

    @property
    def idles_s(self) -> list[float]:
        return [idle_s for session in self.sessions for idle_s in session.idles_s]


SIZES = (2**14, 2**15, 2**16)
GBPS = {"copy": 40.0, "neg": 42.0, "add": 44.0, "read": 50.0, "sum": 48.0, "zero": 60.0, "fill": 55.0}


def memory_us(label: str) -> float:
    """Return the time at these rates, the smallest size at twice them."""
    name, size = label.split()
    moved = {"add": 3 * (int(size) // 3 // 512 * 512)}.get(name, int(size))
    return moved / GBPS[name] / 1e3 / (2 if int(size) == SIZES[0] else 1)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    timer = Played(memory_us)
    monkeypatch.setattr(peaks, "ProfilerTimer", timer)
    monkeypatch.setattr(peaks, "flush_buffer", lambda device: None)
    monkeypatch.setattr(peaks, "SIZES_BYTES", SIZES)
    monkeypatch.setattr(kernels, "flush_of", lambda whole, only_reads: whole.sum if only_reads else None)
    monkeypatch.setattr(Device, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return timer


def test_memory_is_measured_at_every_size_and_the_fastest_way_counts(played: Played) -> None:
    """Once for each GPU."""
    one, other = gpu(), gpu()
    found, _, again = map(peaks_of, (one, other, one))
    assert found == again
    assert (found.copy_gbps, found.read_gbps) == pytest.approx((42, 50))
    rates = {(point.read_share, point.moved_bytes): point.gbps for point in found.memory}
    thirds = [3 * (size // 3 // 512 * 512) for size in SIZES]
    assert rates.keys() == {(share, size) for share in (0, 0.5, 1) for size in SIZES} | {(2 / 3, n) for n in thirds}
    assert rates[0.5, SIZES[0]] == pytest.approx(84)
    assert rates[0.0, SIZES[2]] == pytest.approx(60)
    assert rates[2 / 3, thirds[1]] == pytest.approx(44)
    assert len(played.names) == 2 * len(GBPS) * len(SIZES) * MEMORY_REPS
    assert set(played.idles_s) == {0}
    assert found.remarks == ()
    assert (found.datasheet_gbps, found.cache_bytes) == (4800, 2**20)


@pytest.mark.parametrize(("clock_mhz", "boost"), [(1980, 1980 / 1830), (1500, 1), (None, 1)])
def test_a_clock_above_the_datasheets_is_told(played: Played, clock_mhz: int | None, boost: float) -> None:
    assert peaks_of(gpu(max_sm_clock_mhz=clock_mhz)).boost == boost


def test_nothing_on_the_cpu(played: Played) -> None:
    assert measured_peaks(cpu_device(), ["float32"]) is None
    assert played.names == []


@pytest.mark.parametrize("lost", [2, 3])
def test_incomplete_records_are_taken_again(played: Played, lost: int) -> None:
    played.errors = chain([IncompleteRecords("lost")] * lost, repeat(None))
    assert peaks_of(gpu()).remarks == ("memory: not measured, lost (measured 3 times)",) * (lost == 3)


@pytest.mark.parametrize(
    ("most_elements", "gbps", "largest_bytes", "remark"),
    [
        (SIZES[1] // 4, 42, SIZES[1], "measured with 32 KiB at most, there was no room for more"),
        (1, None, 0, "not measured, there is no room for a copy of 16 KiB: free memory of the GPU"),
    ],
)
def test_too_little_room_is_said(
    monkeypatch: pytest.MonkeyPatch,
    played: Played,
    most_elements: int,
    gbps: float | None,
    largest_bytes: int,
    remark: str,
) -> None:
    zeros = torch.zeros

    def full(elements: int, **options: Any) -> torch.Tensor:
        if elements > most_elements:
            raise torch.OutOfMemoryError("full")
        return zeros(elements, **options)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(torch, "zeros", full)
        found = peaks_of(device := gpu())
    assert found.copy_gbps == (gbps and pytest.approx(gbps))
    assert max((point.moved_bytes for point in found.memory), default=0) == largest_bytes
    assert found.remarks == (f"memory: {remark}",)
    assert peaks_of(device).copy_gbps == pytest.approx(42), "there may be room the next time"


# matmuls


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, played: Played) -> Played:
    """Multiply small matrices: 0.1 TFLOP/s by columns, a little less by rows."""
    monkeypatch.setattr(peaks, "MATMUL_SIDES", (16, 32))

    def time_us(label: str) -> float:
        if label.split()[0] in GBPS:
            return memory_us(label)
        _, rows, *layout = label.split()
        return 2 * int(rows) ** 3 / 1e5 * (1.1 if layout == ["by", "rows"] else 1)

    played.time_us = time_us
    return played


BOTH = "throttled by software power cap, software thermal slowdown while"
REMARKS = (f"memory: {BOTH} it was measured", f"float64 matmuls: {BOTH} they were measured")


@pytest.mark.parametrize(
    ("masks", "dtypes", "gbps", "remarks"),
    [
        ([0] + [POWER] * (MEMORY_REPS - 1), (), 21, ()),  # the slow first is clean
        ([POWER, HEAT], ["float64"], 42, REMARKS),
        ([HEAT, POWER], ["float64"], 42, REMARKS),
    ],
)
def test_throttled_reps_count_only_where_there_are_no_others(
    small: Played, masks: list[int], dtypes: Sequence[str], gbps: float, remarks: tuple[str, ...]
) -> None:
    read = cycle(masks)
    found = peaks_of(gpu(nvml=SimpleNamespace(throttle_mask=lambda: next(read))), dtypes)
    assert found.copy_gbps == pytest.approx(gbps)
    assert found.remarks == remarks


def test_the_fastest_matmul_counts_and_is_known_from_then_on(small: Played) -> None:
    device = gpu()
    for dtypes in (["bfloat16"], ["float32", "float64"]):
        assert peaks_of(device, dtypes).matmul_tflops == {name: pytest.approx(0.1) for name in dtypes}
    before = len(small.names)
    assert list(peaks_of(device, ["float32"]).matmul_tflops) == ["float32"]
    assert list(peaks_of(device, None).matmul_tflops) == ["bfloat16", "float32", "float64"]
    assert len(small.names) == before


@pytest.mark.parametrize("multiprocessors", [None, 132])
def test_shapes(monkeypatch: pytest.MonkeyPatch, played: Played, multiprocessors: int | None) -> None:
    """Squares, and a shape that leaves no multiprocessor idle, where their number is known."""
    tried: list[tuple[int, int, int]] = []

    def matmuls(device: Device, name: str, rows: int, columns: int, depth: int) -> list[Call]:
        tried.append((rows, columns, depth))
        return [call_of("copy 65536", lambda: None)]

    monkeypatch.setattr(peaks, "matmuls", matmuls)
    measured_peaks(gpu(multiprocessors=multiprocessors), ["bfloat16"])
    squares = [(side, side, side) for side in (2048, 4096, 8192)]
    assert tried == [*squares, *([(16896, 4096, 8192)] if multiprocessors else [])]


def test_float32_is_called_by_what_it_is_multiplied_as(monkeypatch: pytest.MonkeyPatch, small: Played) -> None:
    def names(*dtypes: str) -> list[str]:
        return list(peaks_of(gpu(), dtypes).matmul_tflops)

    assert names("float32", "bfloat16", "float32") == ["float32", "bfloat16"]
    exact = torch.mm

    def rounding(first: torch.Tensor, second: torch.Tensor, **options: Any) -> torch.Tensor:
        return exact((first * 1024).round() / 1024, second, **options)

    monkeypatch.setattr(torch, "mm", rounding)
    assert names("bfloat16", "float32", "tfloat32") == ["bfloat16", "tfloat32"]


def test_longer_matmuls_rest_first_and_too_long_ones_are_not_tried(
    monkeypatch: pytest.MonkeyPatch, small: Played
) -> None:
    measured_peaks(gpu(), ["bfloat16"])
    expected_us = 2 * 32**3 / 1e5
    assert small.idles_s[-1] == pytest.approx(3 * expected_us / 1e6)
    monkeypatch.setattr(peaks, "LONGEST_TRIAL_US", expected_us * 0.99)
    before = len(small.names)
    measured_peaks(gpu(), ["bfloat16"])
    assert not any(label.startswith("bfloat16 32") for label in small.names[before:])


@pytest.mark.parametrize(("expected_us", "reps"), [(1, 10), (2499, 10), (2501, 9), (8332, 3), (8334, 3), (24_999.0, 3)])
def test_matmuls_are_repeated_within_a_budget(small: Played, expected_us: float, reps: int) -> None:
    """Of the first it is not known how long it takes; the second has eight times its work."""
    small.time_us = lambda label: memory_us(label) if label.split()[0] in GBPS else expected_us / 8
    measured_peaks(gpu(), ["bfloat16"])
    assert [small.names.count(f"bfloat16 {rows} by rows") for rows in (16, 32)] == [3, reps]


def test_a_dtype_that_cannot_be_multiplied_is_missing(small: Played) -> None:
    found = peaks_of(gpu(), ["no_such_dtype", "float64"])
    assert list(found.matmul_tflops) == ["float64"]
    assert [remark.rpartition(",")[0] for remark in found.remarks] == ["no_such_dtype matmuls: not measured"]


@pytest.mark.parametrize(("most_rows", "tflops"), [(16, {"float64": pytest.approx(0.1)}), (8, {})])
def test_no_room_for_a_matmul_is_said(
    monkeypatch: pytest.MonkeyPatch, small: Played, most_rows: int, tflops: dict[str, Any]
) -> None:
    """There may be room the next time."""
    matmuls, device = peaks.matmuls, gpu()

    def full(device: Device, name: str, rows: int, columns: int, depth: int) -> list[Call]:
        if rows > most_rows:
            raise torch.OutOfMemoryError("full")
        return matmuls(device, name, rows, columns, depth)

    remarks = (f"float64 matmuls: there was no room for {2 * most_rows} x {2 * most_rows} x {2 * most_rows}",)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(peaks, "matmuls", full)
        found, kept = peaks_of(device, ["float64"]), measured_peaks(device, None)
    assert (found.matmul_tflops, found.remarks) == (tflops, remarks)
    assert kept is not None
    assert kept.matmul_tflops == tflops
    again = peaks_of(device, ["float64"])
    assert (list(again.matmul_tflops), again.remarks) == (["float64"], ())
    taken = len(small.names)
    assert peaks_of(device, ["float64"]) == again
    assert len(small.names) == taken, "once there was room"


@pytest.mark.parametrize("error", [ProfilerBusy("another is on"), OSError("ptxas is missing\nfrom here")])
def test_an_error_is_a_remark_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, small: Played, error: Exception
) -> None:
    """The peaks are no result of a test: what it measured itself is not lost because they could not be."""

    def broken(device: Device, cache: str) -> None:
        raise error

    said = str(error).splitlines()[0]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(peaks, "ProfilerTimer", broken)
        found = peaks_of(device := gpu(), ["bfloat16"])
    assert (found.copy_gbps, found.read_gbps, found.memory, found.matmul_tflops) == (None, None, (), {})
    assert found.remarks == (f"memory: not measured, {said}", f"matmuls: not measured, {said}")
    again = peaks_of(device, ["bfloat16"])
    assert again.copy_gbps == pytest.approx(42)
    assert (set(again.matmul_tflops), again.remarks) == ({"bfloat16"}, ())


def test_what_was_measured_before_an_error_stays(small: Played) -> None:
    device = gpu()
    peaks_of(device, ["bfloat16"])
    small.errors = repeat(IncompleteRecords("lost"))
    found = peaks_of(device, ["bfloat16", "float64"])
    assert found.copy_gbps == pytest.approx(42)
    assert set(found.matmul_tflops) == {"bfloat16"}
    assert found.remarks == ("matmuls: not measured, lost (measured 3 times)",)


def test_the_matmuls_are_products(played: Played) -> None:
    for call in peaks.matmuls(gpu(), "float64", 8, 6, 4):
        product: Any = call.prepare()()
        first, second = (normal_noise((rows, 4), torch.float64, torch.device("cpu"), 0) for rows in (8, 6))
        torch.testing.assert_close(product, first @ second.t())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.complex64])
def test_noise_leaves_the_generators_of_others_alone(dtype: torch.dtype) -> None:
    before = torch.get_rng_state()
    noise = normal_noise((64, 64), dtype, torch.device("cpu"), 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert noise.dtype is dtype
    assert 0.9 < noise.to(torch.complex64).std() < 1.1


# the bandwidth of a copy

LEAST_COPIED_BYTES = 2**28


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, played: Played) -> list[Any]:
    """Keep the buffers off this machine's memory; the list tells what was asked for."""
    asked: list[Any] = []
    zeros = torch.zeros

    def small(elements: int, **options: Any) -> torch.Tensor:
        asked.append((elements, options["dtype"]))
        return zeros(4, dtype=options["dtype"])

    monkeypatch.setattr(torch, "zeros", small)
    monkeypatch.setattr(peaks, "flush_buffer", lambda device: asked.append("flush"))
    return asked


@pytest.mark.parametrize(
    ("cache_bytes", "copied_bytes"),
    [
        (50 * 2**20, LEAST_COPIED_BYTES),
        (LEAST_COPIED_BYTES // 4, LEAST_COPIED_BYTES),
        (LEAST_COPIED_BYTES // 4 + 1, LEAST_COPIED_BYTES + 4),
        (2**30, 2**32),
    ],
)
def test_the_fastest_copy_counts_and_is_found_once_for_each_gpu(
    monkeypatch: pytest.MonkeyPatch, played: Played, made: list[Any], cache_bytes: int, copied_bytes: int
) -> None:
    """Of reps of which the first takes twice as long as the others."""
    target = torch.ones(4, dtype=torch.int32)
    monkeypatch.setattr(torch, "empty_like", lambda source: target)
    played.time_us = lambda label: 125.0
    one, other = gpu(cache_bytes=cache_bytes), gpu(cache_bytes=cache_bytes)
    assert {copy_bandwidth(each) for each in (one, other, one)} == {2 * copied_bytes / 125}
    assert made == ["flush", (copied_bytes // 4, torch.int32)] * 2
    assert played.sizes == [peaks.BANDWIDTH_REPS] * 2
    assert target.tolist() == [0, 0, 0, 0]


def test_what_is_copied_while_the_gpu_is_throttled_is_measured_again(played: Played, made: list[Any]) -> None:
    masks = chain([HEAT] * peaks.BANDWIDTH_REPS, repeat(0))
    device = gpu(nvml=SimpleNamespace(throttle_mask=lambda: next(masks)))
    played.time_us = lambda label: 250.0 if len(played.sessions) == 1 else 125.0
    slow, fast, kept = (copy_bandwidth(device) for _ in range(3))
    assert (slow, fast, kept) == (2 * LEAST_COPIED_BYTES / 250, 2 * LEAST_COPIED_BYTES / 125, fast)
    assert played.sizes == [peaks.BANDWIDTH_REPS] * 2


def test_without_room_for_a_copy_there_is_no_number(
    monkeypatch: pytest.MonkeyPatch, played: Played, made: list[Any]
) -> None:
    played.time_us, device = lambda label: 1.0, gpu()
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(torch, "empty_like", Mock(side_effect=torch.OutOfMemoryError("full")))
        assert copy_bandwidth(device) is None
    assert copy_bandwidth(device) is not None, "there may be room the next time"
