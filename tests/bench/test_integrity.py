"""What makes a number invalid: the floor of memory, a cache that is kept, throttling, results that were remembered."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.bench import integrity
from pytest_gpubench.bench.agreement import Agreement, VariedArguments
from pytest_gpubench.bench.candidates import checked_names, name_functions
from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.integrity import (
    FLOOR_SHARE,
    Traffic,
    auditing,
    check_floor,
    check_timed_calls,
    check_traffic,
    traffic_of,
)
from pytest_gpubench.bench.other_values import other_values
from pytest_gpubench.bench.output_rules import refuse_strange_tensors
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.pace import Pace
from pytest_gpubench.bench.side_effects import Conduct
from pytest_gpubench.bench.work import check_work
from pytest_gpubench.correctness import Tolerance, Variation
from pytest_gpubench.correctness.memory import length_of_union, moved_bytes
from pytest_gpubench.errors import BadRequest, InvalidResult, KernelsDiffer, UnfairComparison, WrongResult
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import DeviceFacts, Outcome, Timing
from pytest_gpubench.running_test import CurrentTest, enforce, keeping_failed
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import round_orders
from pytest_gpubench.timing.base import Rep, call_of
from pytest_gpubench.timing.calls import make_arguments, make_call
from pytest_gpubench.timing.comparison import Match, take_once_more
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.timing.sampling import Sample
from tests.results.measured import timing_of, verdict
from tests.timing.fakes import ArmsTimer, Clock, rep

MIB = 2**20
CACHE_BYTES = 50 * MIB
BYTES_PER_US = 4_000_000.0
"""A copy's bandwidth, of the GPU that is pretended."""

GPU = Device(torch.device("cpu"), DeviceFacts(type="cuda", name="NVIDIA H200", host="here", cache_bytes=CACHE_BYTES))
CPU = Device(torch.device("cpu"), DeviceFacts(type="cpu", name="CPU", host="here", cache_bytes=CACHE_BYTES))
COLD = Settings()


@pytest.fixture(autouse=True)
def bandwidth(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """Count how often the bandwidth is asked for."""
    asked: list[Device] = []

    def known(device: Device) -> float:
        asked.append(device)
        return BYTES_PER_US

    monkeypatch.setattr(integrity, "copy_bandwidth", known)
    return asked


def timing(time_us: float, timer: str = "profiler", label: str = "mine", throttled: Sequence[str] = ()) -> Timing:
    return timing_of((time_us,) * 3, label, timer=timer, throttle_reasons=tuple(throttled))


def agreement_of(
    reference: Callable[..., object], *args: object, setup: Callable[[], object] | None = None
) -> Agreement:
    arguments = VariedArguments.of(make_arguments(args, None, setup))
    return Agreement(reference, arguments, Tolerance(), None, None, False, "forward", torch.device("cpu"))


# the floor: 400 MB take a copy 100 us


def traffic(least_bytes: int, assumed: bool) -> Traffic:
    """Return a traffic of which all is needed."""
    return Traffic(least_bytes, (lambda: least_bytes) if assumed else None)


@pytest.mark.parametrize("assumed", [True, False])
@pytest.mark.parametrize(
    ("time_us", "believed"), [(FLOOR_SHARE * 100 - 1e-6, False), (FLOOR_SHARE * 100, True), (100.0, True), (1.0, False)]
)
def test_both_sides_of_the_floor(time_us: float, believed: bool, assumed: bool) -> None:
    moved = traffic(400_000_000, assumed)
    if believed:
        check_floor(timing(time_us), moved, COLD, GPU, timing(1000))
        return
    with pytest.raises(InvalidResult) as caught:
        check_floor(timing(time_us), moved, COLD, GPU, timing(1000))
    assert str(caught.value).startswith("mine is faster than memory allows: ")
    assert "which a copy on this GPU moves in 100.0 us; does it compute everything in every call? " in str(caught.value)
    assert str(caught.value).endswith("say how much with bytes=")


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
    moved = traffic(400_000_000, assumed)
    if believed:
        check_floor(timing(5), moved, COLD, GPU, timing(reference_us))
        return
    with pytest.raises(InvalidResult, match="faster than memory allows"):
        check_floor(timing(5), moved, COLD, GPU, timing(reference_us))


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

    check_floor(timing(time_us), Traffic(400_000_000, needed), COLD, GPU, timing(reference_us))
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
    moved = Traffic(400_000_000, lambda: needed)
    if believed:
        check_floor(timing(time_us), moved, COLD, GPU, timing(1000))
        return
    with pytest.raises(InvalidResult, match=r"faster than memory allows: .* for (190\.7|3\.8\d*) MiB, which a copy"):
        check_floor(timing(time_us), moved, COLD, GPU, timing(1000))


@pytest.mark.parametrize(
    ("device", "timer", "settings", "least_bytes"),
    [
        (CPU, "wall", COLD, 2**40),
        (CPU, "profiler", COLD, 2**40),
        (GPU, "wall", COLD, 2**40),
        (GPU, "scripted", COLD, 2**40),
        (GPU, "profiler", replace(COLD, cache="hot"), 2**40),
        (GPU, "profiler", COLD, 0),
    ],
)
def test_where_there_is_no_floor_no_bandwidth_is_measured(
    device: Device, timer: str, settings: Settings, least_bytes: int, bandwidth: list[Device]
) -> None:
    check_floor(timing(1e-3, timer), Traffic(least_bytes), settings, device, timing(1000))
    assert bandwidth == []


@pytest.mark.parametrize("cache", ["cold", "dirty"])
def test_no_floor_without_a_bandwidth(monkeypatch: pytest.MonkeyPatch, cache: Any) -> None:
    monkeypatch.setattr(integrity, "copy_bandwidth", lambda device: None)
    check_floor(timing(1e-3), Traffic(2**40), replace(COLD, cache=cache), GPU, timing(1000))


@pytest.mark.parametrize(
    ("given", "least_us", "believed"),
    [(None, 1e-3, True), (0, 1e-3, True), (400_000_000, 80.0, True), (400_000_000, 79.9, False)],
)
def test_a_measurement_of_its_own_has_a_floor_if_it_was_given_one(
    given: int | None, least_us: float, believed: bool
) -> None:
    if believed:
        check_traffic(timing(least_us), given, COLD, GPU)
    else:
        with pytest.raises(InvalidResult, match="mine is faster than memory allows"):
            check_traffic(timing(least_us), given, COLD, GPU)


@pytest.mark.parametrize("given", [-1, 1.0, True, "1MiB", float("nan")])
def test_bytes_that_are_none(given: Any) -> None:
    with pytest.raises(BadRequest, match=r"bytes=.* is not valid: it must be a whole number of bytes, at least 0"):
        check_work(given, None)


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
ROWS = torch.arange(0, 4000, 100)


def inputs_of_norm() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x, a weight, and a dy of four times x's size that the forward run does not read."""
    generator = torch.Generator().manual_seed(1)
    x, weight, dy = (torch.randn(size, generator=generator) for size in ((512, 64), (64,), (2048, 64)))
    return x, weight, dy


@pytest.mark.parametrize(
    ("function", "inputs", "least", "most"),
    [
        (lambda x: x * 2, lambda: (inputs_of_norm()[0],), 1.8 * 2**17, 2 * 2**17),
        (lambda x, w, dy: x * w, inputs_of_norm, 2**17, 2.7 * 2**17),
        (lambda x, i: x[i], lambda: (torch.randn(4000, 64), ROWS), 10_240, 120_000),
        (lambda x: x[:1000] * 2, lambda: (torch.randn(4000, 64),), 256_000, 2.5 * 256_000),
        (lambda i: i * 2, lambda: (torch.arange(10_000),), 80_000, 80_000),
    ],
    ids=["all", "an argument unused", "a gather", "a slice", "integers"],
)
def test_what_is_needed_of_the_inputs(
    function: Callable[..., object], inputs: Callable[[], Sequence[torch.Tensor]], least: float, most: float
) -> None:
    """The outputs always are, the inputs as far as they matter; less what the cache may keep."""
    agreement = agreement_of(function, *inputs())
    moved = traffic_of(None, agreement, agreement.run_reference().outputs, SMALL_CACHE)
    assert moved.needed is not None
    assert least - 1000 <= moved.needed() <= min(most - 1000, moved.least_bytes)


@pytest.mark.parametrize("unused_rows", [0, 512, 4096])
def test_an_argument_that_is_not_read_makes_no_honest_candidate_invalid(
    monkeypatch: pytest.MonkeyPatch, unused_rows: int
) -> None:
    """As a norm whose arguments hold the gradient too; the copy moves a byte a microsecond."""
    monkeypatch.setattr(integrity, "copy_bandwidth", lambda device: 1.0)
    x, weight, _ = inputs_of_norm()
    agreement = agreement_of(lambda x, w, dy: x * w, x, weight, torch.randn(unused_rows, 64))
    outputs = agreement.run_reference().outputs
    honest_us = float(moved_bytes((x, weight), {}, outputs))
    moved = traffic_of(None, agreement, outputs, SMALL_CACHE)
    check_floor(timing(honest_us), moved, COLD, SMALL_CACHE, timing(100 * honest_us))
    with pytest.raises(InvalidResult, match="mine is faster than memory allows"):
        check_floor(timing(honest_us / 10), moved, COLD, SMALL_CACHE, timing(100 * honest_us))


def test_what_is_needed_leaves_inputs_as_they_were() -> None:
    x, weight, dy = inputs_of_norm()
    before = [tensor.clone() for tensor in (x, weight, dy)]
    agreement = agreement_of(lambda x, w, dy: x * w, x, weight, dy)
    moved = traffic_of(None, agreement, agreement.run_reference().outputs, SMALL_CACHE)
    assert moved.needed is not None
    moved.needed()
    assert all(torch.equal(tensor, kept) for tensor, kept in zip((x, weight, dy), before, strict=True))


def test_what_a_reference_draws_at_random_is_needed_too() -> None:
    """Each of its runs draws the same."""
    x = torch.randn(512, 64)
    agreement = agreement_of(lambda x: torch.nn.functional.dropout(x, 0.3), x)
    with agreement.own_random_numbers():
        moved = traffic_of(None, agreement, agreement.run_reference().outputs, SMALL_CACHE)
        assert moved.needed is not None
        assert moved.needed() > 1.7 * x.nbytes


# bytes that a call moves


def sparse() -> torch.Tensor:
    values = torch.ones(2, dtype=torch.float64)
    return torch.sparse_coo_tensor(torch.tensor([[0, 1]]), values, (9,), is_coalesced=True, check_invariants=True)


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (lambda x: (), lambda x: None, 0),
        (lambda x: (3, None, "text"), lambda x: 4.0, 0),
        (lambda x: (x,), lambda x: None, 256),
        (lambda x: (x, x), lambda x: x, 256),
        (lambda x: (x, x.t()), lambda x: x.view(-1), 256),
        (lambda x: (x[:4],), lambda x: x[4:], 256),
        (lambda x: (x[:4],), lambda x: x[2:6], 192),
        (lambda x: (x,), lambda x: x.clone(), 512),
        (lambda x: ({"a": [x]},), lambda x: (x.half(), x.double()), 256 + 128 + 512),
        (lambda x: (x[::2],), lambda x: None, 128),
        (lambda x: (x[:, :1],), lambda x: None, 32),
        (lambda x: (x[:, 3],), lambda x: None, 32),
        (lambda x: (x[0, 0].expand(1000),), lambda x: None, 4),
        (lambda x: (x[0].expand(1000, 8),), lambda x: None, 32),
        (lambda x: (x.view(-1).unfold(0, 32, 1),), lambda x: None, 256),
        (lambda x: (x[:0],), lambda x: None, 0),
        (lambda x: (x.to("meta"),), lambda x: x.to("meta"), 0),
        (lambda x: (sparse(),), lambda x: None, 32),
        (lambda x: (x.requires_grad_(),), lambda x: (x * 2).detach(), 512),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_each_byte_of_memory_once(
    inputs: Callable[[torch.Tensor], tuple[object, ...]], outputs: Callable[[torch.Tensor], object], expected: int
) -> None:
    x = torch.zeros(8, 8)
    assert moved_bytes(inputs(x), {}, outputs(x)) == expected
    assert moved_bytes((), {"x": inputs(x)}, outputs(x)) == expected


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair)))))
def test_the_union_counts_each_number_once(ranges: list[tuple[int, int]]) -> None:
    ranges = [(start + 20, stop + 20) for start, stop in ranges]
    expected = len(set().union(*(range(start, stop) for start, stop in ranges)))
    assert length_of_union(ranges) == length_of_union(ranges[::-1]) == expected


# the cache that no flush reaches


@pytest.mark.parametrize(
    ("device", "settings", "kept_free"),
    [
        (GPU, COLD, True),
        (GPU, replace(COLD, cache="dirty"), True),
        (GPU, replace(COLD, cache="hot"), False),
        (GPU, replace(COLD, timer="scripted"), False),
        (CPU, COLD, False),
    ],
)
def test_nothing_persists_where_a_cache_is_to_be_cold(
    monkeypatch: pytest.MonkeyPatch, device: Device, settings: Settings, kept_free: bool
) -> None:
    done: list[str] = []

    @contextmanager
    def nothing_persists() -> Iterator[None]:
        done.append("begin")
        yield
        done.append("end")

    monkeypatch.setattr(integrity, "nothing_persists", nothing_persists)
    monkeypatch.setattr(integrity, "replaced", lambda: None)
    with auditing(settings, device):
        done.append("measured")
    assert done == (["begin", "measured", "end"] if kept_free else ["measured"])


# clocks, before and after


@pytest.mark.parametrize("found", [["time.perf_counter"], [None, "torch.cuda.synchronize"]])
def test_clocks_are_looked_at_before_and_after(monkeypatch: pytest.MonkeyPatch, found: list[str | None]) -> None:
    answers, measured = iter(found), []
    monkeypatch.setattr(integrity, "replaced", lambda: next(answers))
    with (
        pytest.raises(
            InvalidResult, match=rf"^{found[-1]} was replaced, and measuring relies on it: .*; undo it before"
        ),
        auditing(COLD, CPU),
    ):
        measured.append(1)
    assert measured == [1] * (len(found) - 1)


def test_a_script_needs_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "replaced", lambda: "time.perf_counter")
    with auditing(replace(COLD, timer="scripted"), CPU):
        pass


def test_an_error_of_the_measured_function_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([None, "time.perf_counter"])
    monkeypatch.setattr(integrity, "replaced", lambda: next(answers))
    with pytest.raises(KeyError), auditing(COLD, CPU):
        raise KeyError


# what is INVALID


@pytest.mark.parametrize("enforced", [True, False])
@pytest.mark.parametrize(
    ("outcome", "raised"),
    [(Outcome.PASS, None), (Outcome.INVALID, InvalidResult), (Outcome.NOT_JUDGED, None)],
)
def test_an_invalid_verdict_fails_the_test(outcome: Outcome, raised: type[Exception] | None, enforced: bool) -> None:
    test = CurrentTest("here", COLD, Limits())
    given = verdict("max_time_us=100.0", outcome, "it is what it is", enforced)
    if raised and enforced:
        with pytest.raises(raised, match=r"^it is what it is$"):
            enforce(test, COLD, [given])
    else:
        enforce(test, COLD, [given])
    assert test.warnings == (["it is what it is"] if outcome is Outcome.NOT_JUDGED and enforced else [])


# names


def candidate(x: object) -> None: ...
def reference(x: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "names", "arms"),
    [
        (candidate, None, ["reference", "candidate"]),
        (candidate, ("mine", "torch"), ["torch", "mine"]),
        (candidate, ["mine", "torch"], ["torch", "mine"]),
        (reference, None, ["reference (reference)", "reference"]),
        ({"a": candidate, "b": candidate}, ("torch",), ["torch", "a", "b"]),
        ({"torch": candidate}, ("torch",), ["torch (reference)", "torch"]),
    ],
)
def test_names_of_arms(given: Any, names: Sequence[str] | None, arms: list[str]) -> None:
    assert list(name_functions(given, reference, names)) == arms


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize(
    "names", ["ab", "a", (), ("a", "b", "c"), ("a", ""), ("",), (1, "b"), (1,), 3, {"a", "b"}, {"a": "b"}, iter("ab")]
)
def test_names_that_are_none(names: Any, several: bool) -> None:
    wanted = r"\(reference,\)" if several else r"\(candidate, reference\)"
    with pytest.raises(BadRequest, match=rf"^compare\(names=...\) must be the texts {wanted}.*, found "):
        checked_names(names, several)


def test_names_of_the_wrong_number_or_alike() -> None:
    for names, several in ((("a",), False), (("a", "b"), True)):
        with pytest.raises(BadRequest, match="must be the texts"):
            checked_names(names, several)
    with pytest.raises(BadRequest, match=r"must differ, found \('a', 'a'\)"):
        checked_names(("a", "a"), False)


# tensors that compute later


class Lazy(torch.Tensor):
    """A tensor of a class of its own."""


@pytest.mark.parametrize(
    ("outputs", "expected", "named"),
    [
        (torch.ones(2), torch.ones(2), None),
        (torch.nn.Parameter(torch.ones(2)), torch.ones(2), None),
        (torch.ones(2).as_subclass(Lazy), torch.ones(2), "out"),
        ({"a": [torch.ones(2), torch.ones(2).as_subclass(Lazy)]}, torch.ones(2), r"out\['a'\]\[1\]"),
        (torch.ones(2).as_subclass(Lazy), torch.ones(2).as_subclass(Lazy), None),
        (3.0, torch.ones(2), None),
    ],
)
def test_an_output_of_a_class_of_its_own(outputs: object, expected: object, named: str | None) -> None:
    if named is None:
        refuse_strange_tensors("mine", outputs, expected)
        return
    with pytest.raises(
        InvalidResult, match=rf"^{named} of 'mine' is a Lazy, which may compute later, .*: return a plain"
    ):
        refuse_strange_tensors("mine", outputs, expected)


def with_attribute(name: str) -> torch.Tensor:
    tensor = torch.ones(2)
    setattr(tensor, name, lambda: None)
    return tensor


@pytest.mark.parametrize(
    ("outputs", "expected", "error", "sentence"),
    [
        (with_attribute("later"), torch.ones(2), InvalidResult, "^out of 'mine' has an attribute of its own, 'later'"),
        ([with_attribute("later")], [torch.ones(2)], InvalidResult, r"^out\[0\] of 'mine' has an attribute"),
        (with_attribute("later"), with_attribute("later"), None, ""),
        (with_attribute("_dynamo_dynamic_indices"), torch.ones(2), None, ""),
        (torch.ones(1, 3).expand(2, 3), torch.ones(2, 3), UnfairComparison, "^out of 'mine' is expanded: several"),
        (torch.ones(1, 3).expand(2, 3), torch.ones(1, 3).expand(2, 3), None, ""),
        (torch.ones(1, 3).expand(1, 3), torch.ones(1, 3), None, ""),
        (torch.ones(3, 2).t(), torch.ones(2, 3), None, ""),
    ],
)
def test_an_output_that_is_no_plain_tensor_of_its_own(
    outputs: object, expected: object, error: type[Exception] | None, sentence: str
) -> None:
    with nullcontext() if error is None else pytest.raises(error, match=sentence):
        refuse_strange_tensors("mine", outputs, expected)


def test_an_output_in_the_layout_of_mkldnn() -> None:
    agreement = agreement_of(torch.Tensor.to_mkldnn, torch.ones(2))
    with pytest.raises(BadRequest, match=r"^out of the reference '.*' has the layout of MKL-DNN, .*: return .to_dense"):
        agreement.run_reference()


# what was returned by timed calls


def recorded(candidate: Callable[..., object], agreement: Agreement, calls: int = 2) -> OutputRecorder:
    """Return what is known after calls of both arms in turn."""
    recorder = OutputRecorder(agreement)
    arms = {"reference": agreement.reference, "mine": candidate}
    watched = [recorder.watch(name, make_call(function, agreement.arguments)) for name, function in arms.items()]
    for _ in range(calls):
        for call in (*watched, *watched[::-1]):
            call.prepare()()
    return recorder


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@given(rounds=st.integers(2, 6), arms=st.integers(2, 3), seed=st.integers(0, 1000))
def test_all_calls_of_a_round_write_to_the_same_memory(rounds: int, arms: int, seed: int) -> None:
    """Whatever their order; those of the next round to that of the round before it."""
    agreement = agreement_of(double, torch.ones(4))
    recorder, names = OutputRecorder(agreement, arms=arms), "abc"[:arms]
    calls = {name: recorder.watch(name, make_call(double, agreement.arguments, label=name)) for name in names}
    recorder.begin()
    for number, order in enumerate(round_orders(names, rounds, seed)):
        before = next(iter(recorder.last.values()), None)
        for name in order:
            timed = calls[name].prepare()
            assert not recorder.last  # so the memory of the call before is free
            assert recorder.spare is before
            timed()
        assert (recorder.spare is None) is (number == 0)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")])
def test_every_arm_has_an_output_of_its_own_in_the_end(names: tuple[str, ...]) -> None:
    agreement = agreement_of(double, torch.ones(4))
    recorder = OutputRecorder(agreement, arms=len(names))
    calls = {name: recorder.watch(name, make_call(double, agreement.arguments, label=name)) for name in names}

    def take() -> None:
        for name in (*names, *names):
            calls[name].prepare()()

    take()
    assert len(recorder.last) == 1
    recorder.end()
    recorder.keep_all(take, True)
    assert recorder.last.keys() == set(names)
    assert len({id(output) for output in recorder.last.values()}) == len(names)


def test_an_output_that_is_the_references_in_a_timed_call() -> None:
    out = torch.empty(4)
    agreement = agreement_of(lambda x: torch.mul(x, 2, out=out), torch.ones(4))
    with pytest.raises(UnfairComparison, match="out of 'mine' is memory of the reference's out"):
        recorded(lambda x: out, agreement).check("reference", ["mine"])


def test_views_of_the_same_input_are_no_loan() -> None:
    agreement = agreement_of(lambda x: x[:2], torch.ones(4))
    recorded(lambda x: x[:2], agreement).check("reference", ["mine"])


def test_a_tensor_that_computes_later_only_when_timed() -> None:
    calls: list[int] = []

    def later(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2 if len(calls) == 1 else (x * 2).as_subclass(Lazy)

    agreement = agreement_of(double, torch.ones(4))
    agreement.check("mine", later, agreement.run_reference())
    with pytest.raises(InvalidResult, match=r"is a Lazy, which may compute later"):
        recorded(later, agreement).check("reference", ["mine"])


def test_the_references_own_memory_is_no_output_of_a_candidate() -> None:
    """What the reference wrote says nothing about a candidate that returns it."""
    x, out = torch.arange(4.0), torch.empty(4)
    agreement = agreement_of(lambda x: torch.mul(x, 2, out=out), x)
    expected = agreement.run_reference()
    with pytest.raises((InvalidResult, UnfairComparison), match="memory"):
        agreement.check("mine", lambda x: out, expected)


def test_an_output_in_what_setup_made_is_not_overwritten_by_the_next_setup() -> None:
    """The last call may be the reference's, for which setup has filled the same buffer again."""
    x, buffer = torch.arange(4.0), torch.empty(4)
    agreement = agreement_of(double, setup=lambda: (buffer.copy_(x),))
    recorder = recorded(lambda x: x.mul_(2), agreement)
    recorder.check("reference", ["mine"])


@pytest.mark.parametrize("way", Variation.WAYS)
@pytest.mark.parametrize("in_place", [lambda x: x.mul_(2), lambda x: x.mul_(2)[:]])
def test_an_output_in_what_was_varied_is_not_put_back(way: Any, in_place: Callable[..., object]) -> None:
    x = torch.arange(4.0)
    agreement = agreement_of(double, setup=lambda: (x.clone(),))
    expected = agreement.run_reference()
    agreement.variation.begin(way, agreement.fresh(), agreement.fresh())
    recorder = recorded(in_place, agreement)
    recorder.check_other_values("reference", ["mine"], expected)
    agreement.variation.end()


@pytest.mark.parametrize(
    ("make", "raised", "sentence"),
    [
        (lambda x, first: x * 2, None, ""),
        (
            lambda x, first: first,
            InvalidResult,
            "^mine returns what it had computed before: .* let it compute in every",
        ),
        (lambda x, first: first.clone(), InvalidResult, "^mine returns what it had computed before"),
        (lambda x, first: x * 2 + (x[0] > 1), WrongResult, r"^mine is wrong for other values \(turned round inputs"),
    ],
)
def test_other_values(make: Callable[..., object], raised: type[Exception] | None, sentence: str) -> None:
    x = torch.arange(4.0)
    agreement = agreement_of(double, x)
    expected, first = agreement.run_reference(), x * 2
    with other_values(agreement, expected) as differ:
        assert differ
        recorder = recorded(lambda x: make(x, first), agreement)
        if raised is None:
            recorder.check_other_values("reference", ["mine"], expected)
        else:
            with pytest.raises(raised, match=sentence):
                recorder.check_other_values("reference", ["mine"], expected)
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("function", "inputs", "way"),
    [
        (double, torch.arange(4.0), "turned round"),
        (torch.sum, torch.arange(4.0), "partly levelled"),
        (lambda x: x.flip(0) * x, torch.arange(4.0), "partly levelled"),
        (torch.abs, torch.ones(4), None),
        (torch.sum, torch.zeros(4), None),
        (torch.sum, torch.ones(4), None),
        (torch.log, torch.tensor([0.0, 1.0, 2.0]), "turned round"),  # as infinite as before
        (lambda x: 1 / (x - x[0] + 1), torch.tensor([2.0, 1.0, 3.0]), "turned round"),
        (lambda x: x / (x[0] - 2), torch.tensor([1.0, 1.0, 2.0]), "partly levelled"),  # turned round it is infinite
        (torch.linalg.cholesky, torch.eye(3), None),  # turned round or levelled it is not positive
        (double, torch.arange(4), None),  # offsets, maybe
        (double, torch.tensor([3, 1, 2]), "turned round integer"),
        (lambda x: x.sort().values, torch.tensor([3, 1, 2]), "levelled integer"),
        (lambda x: x + 0, torch.tensor([True, False]), "turned round integer"),
        (double, torch.ones(4, dtype=torch.float8_e4m3fn), None),
        (double, torch.arange(4.0).to(torch.float8_e4m3fn), "turned round"),
        (double, torch.arange(4.0).view(4, 1).expand(4, 4), "turned round"),
        (lambda x: x.shape[0], torch.arange(4.0), None),
        (lambda x: x.nonzero(), torch.arange(4.0), "turned round"),
    ],
)
def test_which_way_gives_other_outputs(function: Any, inputs: torch.Tensor, way: str | None) -> None:
    before = inputs.clone()
    if inputs.dtype is torch.float8_e4m3fn:
        function = lambda x: x.float()  # noqa: E731
    agreement = agreement_of(function, inputs)
    expected = agreement.run_reference()
    with other_values(agreement, expected) as differ:
        assert agreement.variation.way == (way or "as given")
        assert differ is (way is not None)
    assert agreement.variation.way == "as given"
    assert torch.equal(inputs.float(), before.float())


def test_a_call_without_arguments_is_varied_once() -> None:
    """By its random numbers: no way changes what is not there."""
    calls: list[int] = []

    def ones() -> torch.Tensor:
        calls.append(1)
        return torch.ones(4)

    agreement = agreement_of(ones)
    expected = agreement.run_reference()
    before = len(calls)
    with other_values(agreement, expected):
        assert len(calls) == before + 1


def test_a_reference_that_refuses_other_values() -> None:
    def careful(x: torch.Tensor) -> torch.Tensor:
        if x.tolist() != [0, 1, 2, 3]:
            raise ValueError("these only")
        return x * 2

    x = torch.arange(4.0)
    agreement = agreement_of(careful, x)
    with other_values(agreement, agreement.run_reference()) as differ:
        assert not differ
    assert x.tolist() == [0, 1, 2, 3]


def test_values_are_put_back_when_the_round_goes_wrong() -> None:
    x = torch.arange(4.0)
    agreement = agreement_of(double, x)
    with pytest.raises(KeyError), other_values(agreement, agreement.run_reference()):
        raise KeyError
    assert x.tolist() == [0, 1, 2, 3]


# the round that does not count


def match_of(seed: int = 0) -> Match:
    calls = {name: call_of(name, lambda: None) for name in "rc"}
    return Match(calls, "r", seed)


def taken_before() -> Interleaved:
    return Interleaved({name: Sample([rep(100, "ab")] * 40) for name in "rc"})


def test_one_more_round_counts_nothing() -> None:
    timer, taken = ArmsTimer(Clock(), lambda name, number: rep(1, "ab")), taken_before()
    take_once_more(match_of(), timer, taken)
    assert sorted(timer.names) == ["c", "r"]
    assert [len(sample.reps) for sample in taken.samples.values()] == [40, 40]
    assert taken.rounds == []


@pytest.mark.parametrize("times", [1, 2, 3, 1000])
def test_other_kernels_in_one_more_round(times: int) -> None:
    """Even once: what is remembered by what the inputs hold is there already when the round is taken again."""

    def play(name: str, number: int) -> Rep:
        computes = name == "c" and timer.names.count("c") <= times
        return rep(100, "abc" if computes else "ab")

    timer = ArmsTimer(Clock(), play)
    with pytest.raises(KernelsDiffer, match="does not launch the same kernels in every call"):
        take_once_more(match_of(), timer, taken_before())


@pytest.mark.parametrize(
    ("candidate", "vary", "raised", "sentence", "sessions"),
    [
        (double, True, None, "", 2),
        (double, False, None, "", 1),
        (lambda x: x * 3, True, WrongResult, "^c is wrong in a timed call, though right when checked", 1),
        (lambda x: x * (2 + (x[0] < 1)), True, WrongResult, "^c is wrong in a timed call, though right when", 1),
        (lambda x: x * 2 + (x[0] > 1), True, WrongResult, r"^c is wrong for other values \(turned round inputs", 2),
        (lambda x: x * 2 + (x[0] > 1), False, None, "", 1),
        (lambda x: torch.arange(4.0) * 2, True, InvalidResult, "^c returns what it had computed before", 2),
        (lambda x: (x * 2).as_subclass(Lazy), True, InvalidResult, "is a Lazy, which may compute later", 1),
        (lambda x: x.mul_(2), True, UnfairComparison, r"overwrote args\[0\]", 1),
    ],
)
def test_timed_calls_are_checked_as_given_and_with_other_values(
    candidate: Callable[..., object],
    vary: bool,
    raised: type[Exception] | None,
    sentence: str,
    sessions: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda below: 1)  # no look at the inputs before a rep
    agreement = agreement_of(double, torch.arange(4.0))
    expected = agreement.run_reference()
    recorder = OutputRecorder(agreement, arms=2, conduct=Conduct(agreement, "rc"))
    functions = {"r": double, "c": candidate}
    calls = {
        name: recorder.watch(name, make_call(each, agreement.arguments, label=name)) for name, each in functions.items()
    }
    timer, match = ArmsTimer(Clock(), lambda name, number: rep(100, "ab")), Match(calls, "r")
    recorder.begin()
    for name in match.orders(1)[0]:
        calls[name].prepare()()
    with nullcontext() if raised is None else pytest.raises(raised, match=sentence):
        check_timed_calls(recorder, match, timer, taken_before(), expected, vary)
    assert [sorted(names) for names in timer.names_by_session] == [["c", "r"]] * sessions


# what is noted


@pytest.mark.parametrize(
    ("error", "noted"),
    [
        (InvalidResult("no"), True),
        (KernelsDiffer("no"), True),
        (WrongResult("no"), True),
        (ValueError("no"), False),
        (BadRequest("no"), False),
    ],
)
def test_what_has_no_number_is_noted(error: Exception, noted: bool) -> None:
    test = CurrentTest("here", COLD, Limits(min_speedup=1.5))
    calls = {name: make_call(double, label=name) for name in ("reference", "a", "b")}
    request = CompareRequest(COLD, CPU, test.limits, (), calls, agreement_of(double))
    with pytest.raises(type(error)), keeping_failed(test, request, []):
        raise error
    found = {each.timing.label: [verdict.outcome for verdict in each.verdicts] for each in test.measurements}
    assert found == ({"a": [Outcome.INVALID], "b": [Outcome.INVALID]} if noted else {})
    assert all(each.role == "candidate" and each.timing.unmeasured == "no" for each in test.measurements)
    assert all(verdict.sentence == "no" for each in test.measurements for verdict in each.verdicts)


# tolerances that hide a change


@pytest.mark.parametrize(
    ("function", "tolerance", "raised"),
    [
        (lambda x: x.mean() * 100, Tolerance(0.5, 1000), True),
        (lambda x: x.mean() * 100, Tolerance(0, 1e-5), False),
        (lambda x: x.amax() + 0 * x.sum(), Tolerance(0.5, 1000), False),  # nothing changes
        (lambda x: x.mean() * 1e-7, Tolerance(), False),  # the dtype's own
        (double, Tolerance(0.5, 1000), True),
    ],
)
def test_a_tolerance_that_hides_other_values(
    function: Callable[..., object], tolerance: Tolerance, raised: bool
) -> None:
    agreement = replace(agreement_of(function, torch.tensor([4.0, 1.0, 1.0])), tolerance=tolerance)
    with (
        pytest.raises(
            UnfairComparison, match=r"^out of the reference changes by .*, which rtol=0.5 and atol=1000 allow"
        )
        if raised
        else nullcontext(),
        other_values(agreement, agreement.run_reference()),
    ):
        pass


@pytest.mark.parametrize(
    ("function", "inputs", "noted"),
    [
        (double, torch.arange(4.0), False),
        (torch.abs, torch.ones(4), True),
        (lambda x: torch.ones(2), torch.ones(4), True),
    ],
)
def test_inputs_that_cannot_be_varied_are_a_remark(
    function: Callable[..., object], inputs: torch.Tensor, noted: bool
) -> None:
    agreement = agreement_of(function, inputs)
    with other_values(agreement, agreement.run_reference()) as differ:
        assert differ is not noted
    assert bool(agreement.remarks) is noted
    assert all("returned the same when the values of its inputs were to change" in each for each in agreement.remarks)
    timed_backward = replace(agreement, backward="backward", remarks=[])
    with other_values(timed_backward, agreement.run_reference()):
        assert timed_backward.remarks == []


@pytest.mark.parametrize(("numbers", "noted"), [(0, False), (1, False), (2, True)])
def test_a_search_may_draw_single_numbers(numbers: int, noted: bool) -> None:
    agreement = agreement_of(double, torch.ones(numbers))
    with other_values(agreement, agreement.run_reference()) as differ:
        assert not differ
    assert bool(agreement.remarks) is noted


@pytest.mark.parametrize(
    ("outputs", "raised", "noted"),
    [
        (torch.full((3,), 1e-6), True, False),
        ((torch.full((3,), 1e-6), torch.zeros(2)), True, False),
        ((torch.full((3,), 1e-6), torch.ones(2)), False, True),
        ((torch.full((3,), 1e-6), torch.arange(2)), False, True),
        (torch.zeros(3), False, False),
        (torch.ones(3), False, False),
        (torch.arange(3.0), False, False),
        (3, False, False),
    ],
)
def test_outputs_that_zeros_would_match(outputs: object, raised: bool, noted: bool) -> None:
    agreement = agreement_of(lambda: outputs)
    with (
        pytest.raises(
            UnfairComparison, match=r"^a candidate that computes nothing would pass: .* would tell \(or golden"
        )
        if raised
        else nullcontext()
    ):
        agreement.refuse_flat(agreement.run_reference())
    assert bool(agreement.remarks) is noted
    replace(agreement, golden="float64").refuse_flat(agreement.run_reference())


# the pace with other values


def pace_of(play: Callable[[str, bool, int], float]) -> tuple[Pace, dict[str, float]]:
    """Return the pace of calls that take so long, by arm, whether values are varied, and the number of that change."""
    x = torch.arange(4.0)
    agreement = agreement_of(double, x)
    agreement.vary("turned round")
    changes: list[tuple[bool, list[str]]] = []

    def take(name: str, number: int) -> Rep:
        varied = x[0].item() == 3
        if not changes or changes[-1][0] is not varied:
            changes.append((varied, []))
        is_first = name not in changes[-1][1]
        changes[-1][1].append(name)
        return rep(play(name, is_first, len(changes)), "ab")

    timer, match = ArmsTimer(Clock(), take), match_of()
    taken = taken_before()
    return Pace(agreement, match, timer, taken), take_once_more(match, timer, taken)


@pytest.mark.parametrize(
    ("play", "raised"),
    [
        (lambda name, is_first, change: 100.0, False),
        (lambda name, is_first, change: 120.0 if name == "c" and is_first else 100.0, False),
        (lambda name, is_first, change: 130.0 if name == "c" and is_first else 100.0, True),
        (lambda name, is_first, change: 130.0 if name == "c" else 100.0, False),  # it has become slower for good
        (lambda name, is_first, change: 130.0 if name == "c" and change == 1 else 100.0, False),  # by chance
        (lambda name, is_first, change: 130.0 if name == "c" and change < 4 else 100.0, False),
        (lambda name, is_first, change: 130.0 if is_first else 100.0, False),  # the reference too
        (lambda name, is_first, change: 1000.0 if name == "r" and is_first else 100.0, False),
    ],
)
def test_a_candidate_that_is_slower_whenever_its_inputs_change(play: Any, raised: bool) -> None:
    pace, varied = pace_of(play)
    with (
        pytest.raises(InvalidResult, match=r"^c took 130.0 us when the values of its inputs had changed, and usually")
        if raised
        else nullcontext()
    ):
        pace.check(["c"], varied)


@pytest.mark.parametrize(("call_us", "raised"), [(1.9, False), (2.4, True)])
def test_a_microsecond_more_is_no_suspicion(call_us: float, raised: bool) -> None:
    pace, varied = pace_of(lambda name, is_first, change: call_us if name == "c" and is_first else 1.0)
    pace = replace(pace, taken=Interleaved({name: Sample([rep(1, "ab")] * 40) for name in "rc"}))
    with pytest.raises(InvalidResult) if raised else nullcontext():
        pace.check(["c"], varied)
