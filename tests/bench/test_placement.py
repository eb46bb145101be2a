"""A limit that fails closely is measured again at other addresses, and fails only if it does there too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from pytest_gpubench import Measurement, Speedup, Timing, Verdict
from pytest_gpubench.bench import placement
from pytest_gpubench.bench.placement import elsewhere, is_close_fail
from pytest_gpubench.bench.request import MeasureRequest
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.timing.calls import make_arguments, make_call
from pytest_gpubench.verdict.limits import Limits
from tests.results.measured import kernel as kernel_of


def item(
    kind: str, asked: str, outcome: Outcome = Outcome.FAIL, median_us: float = 100.0, ratio: float = 1.0, **more: Any
) -> Measurement:
    about: Any = {"timer": "profiler", "cache": "cold", "device": "NVIDIA H200"} | more
    timing = Timing(label="f", samples_us=(median_us,), **about)
    speedup = Speedup(ratio=ratio, interval=None, quads=20, alpha=0.001, reference="g", reference_us=100.0, seed=0)
    verdict = Verdict(kind=kind, asked=asked, outcome=outcome, sentence=f"{kind} {outcome.value}")
    return Measurement(timing=timing, verdicts=(verdict,), speedup=speedup)


@pytest.mark.parametrize(
    ("measurement", "is_close"),
    [
        (item("max_time_us", "67"), True),
        (item("max_time_us", "66"), False),
        (item("max_time_us", "1", timer="wall"), True),
        (item("max_time_us", "100", Outcome.PASS, timer="wall"), False),
        (item("max_time_us", "{'A100': 80, 'H200': 96}"), True),
        (item("min_speedup", "1.49"), True),
        (item("min_speedup", "1.5"), False),
        (item("min_speedup", "{'f': 1.04, 'g': 2}"), True),
        (item("min_gbps", "1490", moved_bytes=10**8), True),
        (item("min_gbps", "1510", moved_bytes=10**8), False),
        (item("min_tflops", "1.49", flops=10**8), True),
        (item("min_tflops", "1.51", flops=10**8), False),
        (item("min_peak_fraction", "0.8"), True),
        (item("max_rel_std", "0.02"), False),
        (item("max_kernels", "1"), False),
        (item("max_time_us", "96", Outcome.INCONCLUSIVE), False),
        (item("max_time_us", "96", Outcome.INVALID), False),
    ],
)
def test_a_close_fail(measurement: Measurement, is_close: bool) -> None:
    assert is_close_fail(measurement.verdicts[0], measurement, item("min_speedup", "1")) == is_close


@pytest.mark.parametrize(
    ("kind", "asked", "kernel", "is_close"),
    [
        ("min_speedup", "1.049", "add", True),
        ("min_speedup", "1.05", "add", False),
        ("min_speedup", "1.05", "other", True),
        ("max_time_us", "80", "add", True),
    ],
)
def test_a_close_fail_of_the_same_kernels(kind: str, asked: str, kernel: str, is_close: bool) -> None:
    ours, theirs = (item(kind, asked, kernels=(kernel_of(name, 1, 100.0),)) for name in ("add", kernel))
    assert is_close_fail(ours.verdicts[0], ours, theirs) == is_close
    assert placement._least(ours.verdicts[0], ours, theirs) == (2 if asked.startswith("1.0") and kernel == "add" else 3)


F, P, OPEN = Outcome.FAIL, Outcome.PASS, Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("limit", "places", "why"),
    [
        ("96", [(F, 100.0), (F, 99.0)], ""),
        ("96", [(F, 100.0), (P, 95.0)], "decides: max_time_us fail; at other addresses 95.00 us"),
        ("96", [(F, 100.0), (OPEN, 96.0)], "decides: max_time_us fail; at other addresses 96.00 us"),
        ("96", [(F, 100.0), (OPEN, 99.0)], ""),
        ("96", [(F, 100.0), (Outcome.INVALID, 95.0)], ""),
        ("96", [(F, 100.0), (Outcome.NOT_JUDGED, 95.0)], ""),
        # they differ by less than the fastest misses the limit by, or by more
        ("100", [(F, 102.0), (F, 102.1)], ""),
        ("100", [(F, 102.0), (F, 103.9)], ""),
        ("100", [(F, 102.0), (F, 104.1)], "matters as much: max_time_us fail; at other addresses 104.1 us"),
        ("100", [(F, 103.9), (F, 102.0)], ""),
        ("100", [(F, 104.1), (F, 102.0)], "matters as much: max_time_us fail; at other addresses 102.0 us"),
        ("100", [(F, 104.0), (F, 104.0), (F, 104.0)], ""),
        ("100", [(F, 104.0), (F, 105.0), (F, 104.5), (F, 103.0), (F, 105.9)], ""),
        ("100", [(F, 104.0), (F, 105.0), (F, 104.5), (F, 103.0), (F, 106.2)], "matters as much: "),
        ("100", [(F, 104.0), (F, 105.0), (P, 99.0)], "decides: "),
    ],
)
def test_a_close_fail_needs_all_placements(limit: str, places: Sequence[tuple[Outcome, float]], why: str) -> None:
    items = [item("max_time_us", limit, *each) for each in places]
    (verdict,) = placement.confirmed(items, items[0]).verdicts
    assert verdict.outcome is (OPEN if why else F)
    assert verdict.sentence.startswith(f"the place of its memory {why}" if why else "max_time_us fail")


def speedup_in(*ratios: float) -> Measurement:
    """Return a measurement that misses min_speedup=1 by 2 %, and lies between these."""
    found = item("min_speedup", "1", ratio=0.98)
    assert found.speedup is not None
    return msgspec.structs.replace(found, speedup=msgspec.structs.replace(found.speedup, interval=Interval(*ratios)))


@pytest.mark.parametrize(
    ("intervals", "is_open"),
    [
        ([(0.975, 0.985)], True),
        ([(0.975, 0.985), (0.98, 0.99)], True),
        ([(0.975, 0.985), (0.98, 0.99), (0.984, 0.986)], False),
        ([(0.975, 0.985), (0.98, 0.99), (0.986, 0.988)], True),
        ([(0.975, 0.985), (0.98, 0.99), (0.986, 0.988), (0.98, 0.99)], True),
        ([(0.975, 0.985), (0.98, 0.99), (0.986, 0.988), (0.98, 0.99), (0.98, 0.99)], False),
        ([(0.959, 0.961), (0.981, 0.982)], False),
    ],
    ids=["one", "two", "three that agree", "three that differ", "four", "five", "far apart"],
)
def test_placements_are_added_until_they_tell(intervals: Sequence[tuple[float, float]], is_open: bool) -> None:
    places = [speedup_in(*each) for each in intervals]
    assert placement._is_open(places, places[0]) == is_open


# other addresses


def request_of(
    args: Sequence[object], kwargs: Mapping[str, object] | None = None, setup: Callable[[], object] | None = None
) -> MeasureRequest:
    """Return a request whose call returns its arguments."""
    call = make_call(lambda *args, **kwargs: (args, kwargs), make_arguments(args, kwargs, setup))
    remake = None if setup else request_of
    return MeasureRequest(Settings(), cpu_device(), Limits(), (args, kwargs), {"f": call}, remake=remake)


def given_elsewhere(request: MeasureRequest) -> Any:
    """Return the arguments that the call gets at other addresses."""
    with elsewhere(request) as other:
        return other.calls["f"].prepare()()


def test_tensors_lie_elsewhere_with_the_same_values() -> None:
    x = torch.rand(64, 32)
    rows = torch.arange(64)
    (moved, (again, text)), found = given_elsewhere(request_of((x, (rows, "text")), {"mask": x.t()[1:]}))
    assert text == "text"
    for one, other in ((x, moved), (rows, again), (x.t()[1:], found["mask"])):
        assert torch.equal(one, other)
        assert (one.stride(), one.dtype) == (other.stride(), other.dtype)
        assert one.data_ptr() != other.data_ptr()
    assert moved.data_ptr() >= moved.untyped_storage().data_ptr() + 66048
    assert found["mask"].data_ptr() == moved.data_ptr() + x.element_size(), "views of one memory stay so"


def test_tensors_that_a_producer_knows_stay() -> None:
    x = torch.rand(3)
    (found,), _ = given_elsewhere(replace(request_of((x,)), settings=Settings(cache=Producer(x.sum))))
    assert found is x


def test_what_setup_makes_is_left_to_it() -> None:
    made = torch.rand(3)
    request = request_of((), setup=lambda: (made,))
    with elsewhere(request) as other:
        assert other is request


def test_free_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of other streams, devices and pools stay free: torch would not hand them out."""

    def segment(*blocks: tuple[int, str], **other: Any) -> dict[str, Any]:
        about = {"device": 0, "stream": 7, "segment_pool_id": (0, 0)} | other
        return about | {"blocks": [{"size": size, "state": state} for size, state in blocks]}

    segments = [
        segment((512, "inactive"), (1024, "active_allocated"), (4096, "inactive")),
        segment((2**21, "inactive")),
        segment((1, "inactive"), device=1),
        segment((2, "inactive"), stream=0),
        segment((3, "inactive"), segment_pool_id=(0, 1)),
    ]
    taken: list[int] = []
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: taken.append(size))
    placement._free_memory(torch.device("cuda", 0))
    assert taken == [2**21, 4096, 512], "the largest first: each finds a block of its own size"


# a test with a limit

HEAD = """
import pytest, torch
from hypothesis import given, strategies as st
from itertools import cycle
from pytest_gpubench import scripted

def placed(at_home, elsewhere=None):
    "Return a function that takes these times, by where its argument lies."
    @scripted([at_home])
    def f(x):
        f.__gpu_bench_script__.samples = cycle([at_home if elsewhere is None or x.data_ptr() == home else elsewhere])
        return x * 2
    return f

x = torch.ones(1000)
home = x.data_ptr()
"""
MEASURE = "gpu_bench.measure(placed({}), (x,), label='f')"
COMPARE = "gpu_bench.compare({{'f': placed({})}}, placed(10.0), (x,))"
OTHER_KERNELS = "gpu_bench.compare({{'f': placed({})}}, scripted([10.0], ['other'])(lambda x: x * 2), (x,))"


@pytest.fixture
def outcomes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, int], str]]:
    """Return a function that runs a call in a marked test; scripted times are taken for those of a device."""

    def run(
        mark: str, call: str, *options: str, timer: str = "scripted", drawn: str = "gpu_bench"
    ) -> tuple[dict[str, int], str]:
        monkeypatch.setattr(Settings, "takes_times", True)
        monkeypatch.setattr(placement, "APART_S", 0.0)
        body = f"@pytest.mark.perf({mark})\ndef test_it({drawn}):\n    {call}\n"
        pytester.makepyfile(HEAD + body)
        result = pytester.runpytest_inprocess(f"--gpu-bench-timer={timer}", "-p", "no:benchmark", *options)
        return result.parseoutcomes(), result.stdout.str()

    return run


@pytest.mark.parametrize(
    ("mark", "call", "outcome"),
    [
        ("max_time_us=10.0", MEASURE.format("10.2, 10.1"), "failed"),
        ("max_time_us=10.0", MEASURE.format("10.3, 10.1"), "inconclusive"),
        ("max_time_us=10.0", MEASURE.format("10.2, 9.9"), "inconclusive"),
        ("max_time_us=10.0", MEASURE.format("9.9, 10.2"), "passed"),
        ("max_time_us=10.0, kernels='other'", MEASURE.format("10.2, 9.9"), "failed"),
        ("min_speedup=1.0", COMPARE.format("10.2, 9.9"), "inconclusive"),
        ("min_speedup=1.0", COMPARE.format("10.6, 9.9"), "failed"),
        ("min_speedup=1.0", OTHER_KERNELS.format("15.1, 9.9"), "failed"),
    ],
)
def test_a_fail_that_other_addresses_do_not_confirm(
    mark: str, call: str, outcome: str, outcomes: Callable[..., tuple[dict[str, int], str]]
) -> None:
    found, printed = outcomes(mark, call)
    assert found == {outcome: 1}, printed
    told = " ".join(printed.split())
    assert ("the place of its memory" in told) == (outcome == "inconclusive")
    assert ("; at other addresses" in told) == (outcome == "inconclusive")


def test_fixed_reps_have_one_placement(outcomes: Callable[..., tuple[dict[str, int], str]]) -> None:
    found, _ = outcomes("max_time_us=10.0", MEASURE.format("10.2, 9.9"), "--gpu-bench-reps=40")
    assert found == {"failed": 1}


def test_a_fail_by_the_hosts_clock_is_confirmed_later(outcomes: Callable[..., tuple[dict[str, int], str]]) -> None:
    call = "import time; gpu_bench.measure(lambda x: time.sleep(0.03 * (x.data_ptr() == home)), (x,))"
    options = "--gpu-bench-device=cpu", "--gpu-bench-budget-s=0.2"
    found, printed = outcomes("max_time_us=10000", call, *options, timer="wall")
    assert found == {"inconclusive": 1}, printed
    told = " ".join(printed.split())
    assert "the load of the host or the place of its memory decides: " in told
    assert "; later, at other addresses " in told


def test_what_cannot_be_measured_elsewhere_fails(outcomes: Callable[..., tuple[dict[str, int], str]]) -> None:
    call = "f = placed(10.2, 9.9); gpu_bench.measure(scripted([10.2])(lambda x: 1 / (x.data_ptr() == home)), (x,))"
    found, printed = outcomes("max_time_us=10.0", call)
    assert found == {"failed": 1}
    assert "LimitBroken" in printed
    assert "; at other addresses it raised ZeroDivisionError('division by zero')" in printed


def test_an_example_of_given_is_confirmed_too(outcomes: Callable[..., tuple[dict[str, int], str]]) -> None:
    found, printed = outcomes("min_speedup=1.0)\n@given(st.just(1)", COMPARE.format("10.2, 9.9"), drawn="gpu_bench, n")
    assert found == {"inconclusive": 1}
    assert "the place of its memory decides" in printed


@pytest.mark.parametrize("call", ["gpu_bench.measure(f, (x,))", "gpu_bench.compare({'f': f}, placed(10.0), (x,))"])
def test_a_measured_function_is_freed_at_once(call: str, outcomes: Callable[..., tuple[dict[str, int], str]]) -> None:
    """No request refers to itself: what a function holds is not left to the garbage collector."""
    body = (
        f"import gc, weakref; gc.disable(); f = scripted([9.9])(lambda x: x * 2); seen = weakref.ref(f); {call}; del f"
    )
    found, printed = outcomes("max_time_us=10.0", f"{body}; gc.enable(); assert seen() is None")
    assert found == {"passed": 1}, printed
