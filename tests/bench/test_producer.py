"""A producer: it runs before each rep, and leaves what calls are given as it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_gpubench import BadRequest, UnfairComparison
from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.arguments import VariedArguments, kept_arguments
from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.producer import check_producer
from pytest_gpubench.bench.request import MeasureRequest
from pytest_gpubench.correctness import Tolerance
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.timing import profiler
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.verdict.limits import Limits
from tests.bench.calls import checked_rounds, double
from tests.timing.test_regions import FakeGpu, timer_of

FIRST_CALLS = 3

Function = Callable[..., object]


def request_of(produce: Function, function: Function, *args: object, **kwargs: object) -> MeasureRequest:
    settings = Settings(device="cpu", cache=Producer(produce))
    return MeasureRequest(settings, cpu_device(), Limits(), (args, kwargs), {"f": make_call(function)})


def test_it_may_write_what_the_inputs_hold() -> None:
    x, calls = torch.ones(1000), list[int]()

    def fill() -> None:
        calls.append(1)
        x.fill_(1)

    check_producer(request_of(fill, torch.neg, x))
    assert len(calls) == FIRST_CALLS


def test_what_it_writes_into_tensors_of_its_own_is_not_looked_at() -> None:
    x, other = torch.ones(1000), torch.ones(1000)
    check_producer(request_of(lambda: other.add_(x), torch.neg, x))
    assert not other.equal(x)


class Layer:
    def __init__(self) -> None:
        self.weight = torch.ones(10)

    def __call__(self, *args: object) -> None: ...


LAYER, BIAS = Layer(), torch.ones(10)


def add_bias(x: torch.Tensor) -> torch.Tensor:
    return x + BIAS


def test_what_it_changes_before_it_raises_is_put_back() -> None:
    x = torch.ones(10)

    def fails() -> None:
        x.neg_()
        raise KeyError

    with pytest.raises(KeyError):
        check_producer(request_of(fails, torch.neg, x))
    assert x.tolist() == [1] * 10


@pytest.mark.parametrize(
    ("changed", "function", "named"),
    [
        (lambda given: given[0][0], torch.neg, r"args\[0\]"),
        (lambda given: given[1]["y"][1], torch.neg, r"kwargs\['y'\]\[1\]"),
        (lambda given: LAYER.weight, LAYER, "weight of Layer"),
        (lambda given: BIAS, add_bias, "BIAS of add_bias"),
    ],
    ids=["argument", "keyword", "of an object", "of a function"],
)
def test_what_it_changes_is_named_and_put_back(
    changed: Callable[[Any], torch.Tensor], function: Function, named: str
) -> None:
    request = request_of(lambda: tensor.neg_(), function, torch.ones(10), y=[1, torch.ones(3)])
    tensor = changed(request.given)
    with pytest.raises(BadRequest, match=rf"^producer <lambda> changes {named}, so no call would be given what the"):
        check_producer(request)
    assert tensor.eq(1).all()


def test_its_switches_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.cudnn.benchmark", False)

    def fill() -> None:
        torch.backends.cudnn.benchmark = True

    with pytest.raises(UnfairComparison, match=r"^producer fill changed torch\.backends\.cudnn\.benchmark from False"):
        check_producer(request_of(fill, torch.neg))
    assert not torch.backends.cudnn.benchmark


def test_one_whose_body_does_not_run_is_refused() -> None:
    def fill() -> Iterator[None]:
        yield

    with pytest.raises(BadRequest, match=r"^'producer fill' returns a generator, whose work may not be done by then"):
        check_producer(request_of(fill, torch.neg))


def test_without_one_nothing_is_looked_at() -> None:
    request = MeasureRequest(Settings(), cpu_device(), Limits(), None, {})
    check_producer(request)


# a comparison


def comparison(candidate: Function, x: torch.Tensor, produce: Function, reference: Function = double) -> CompareRequest:
    functions = {"double": reference, "c": candidate}
    arguments = VariedArguments.of(kept_arguments([*functions.values()], (x,), None, None))
    agreement = Agreement(reference, arguments, Tolerance(), None, None, False, "forward", torch.device("cpu"))
    calls = {name: make_call(each, arguments, label=name) for name, each in functions.items()}
    settings = Settings(device="cpu", timer="wall", cache=Producer(produce), reps=2, warmup=1)
    return CompareRequest(settings, cpu_device(), Limits(), ((x,), None), calls, agreement)


def test_cache_is_watched_once_the_producer_and_the_reference_were_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may set its limit in its first call: all that come after have that."""
    done: list[str] = []

    def candidate(x: torch.Tensor) -> torch.Tensor:
        done.append("candidate")
        return 2 * x

    def reference(x: torch.Tensor) -> torch.Tensor:
        done.append("reference")
        return 2 * x

    @contextmanager
    def watched(*given: object) -> Iterator[Callable[[], None]]:
        done.append("watched")
        yield lambda: None
        done.append("end")

    monkeypatch.setattr("pytest_gpubench.bench.comparison.watching_cache", watched)
    request = comparison(candidate, torch.ones(3), lambda: done.append("producer"), reference)
    request.measure(lambda text: None)
    begun = done.index("watched")
    assert {"producer", "reference"} == set(done[:begun])
    assert done[begun - 1] == "reference"
    assert {"producer", "reference", "candidate"} == set(done[begun + 1 : -1])
    assert done[-1] == "end"


def test_a_producer_is_left_out_of_the_other_values_alone() -> None:
    """It writes the values as given; the next measurement needs it again."""
    producer, left_out = Producer(lambda: None), list[bool]()

    def candidate(x: torch.Tensor) -> torch.Tensor:
        left_out.append(producer.is_left_out)
        return double(x)

    replace(checked_rounds(candidate), cache=producer).check()
    assert set(left_out) == {False, True}
    assert not producer.is_left_out


def test_the_profiler_does_not_miss_a_producer_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    producer, timer = Producer(lambda: gpu.launch("fill", 10)), timer_of(gpu)
    timer.cache, timer.flush_kernels = producer, ("flush",)

    def flush() -> None:
        gpu.launch("flush", 10)
        producer.run(gpu.wait)

    def candidate(x: torch.Tensor) -> torch.Tensor:
        gpu.launch("a", 50_000)
        gpu.launch("b", 50_000)
        return double(x)

    timer.flush = flush
    checked = replace(checked_rounds(candidate), timer=timer, cache=producer)
    gpu.recorded.clear()
    monkeypatch.setattr(profiler, "tracing", lambda device: nullcontext(gpu))
    checked.check()
    assert [each.label for each in gpu.recorded].count("fill") == 1
