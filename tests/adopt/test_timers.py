"""What timers of other tools are given is handed on, and what they return is made of our samples."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import triton.testing
from torch.utils.benchmark import Timer
from triton.testing import do_bench

from pytest_gpubench.adopt.timers import Timed, adopting

SAMPLES_US = [1000.0, 3000.0, 2000.0]


def add() -> int:
    return 3


@pytest.fixture
def timed() -> Iterator[list[Timed]]:
    found: list[Timed] = []

    def keep(each: Timed) -> Sequence[float]:
        found.append(each)
        return SAMPLES_US

    with adopting(keep):
        yield found


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda: do_bench(add), 2.0),
        (lambda: triton.testing.do_bench(add, 1, 2), 2.0),
        (lambda: do_bench(add, quantiles=[0.5, 0.0, 1.0]), [2.0, 1.0, 3.0]),
        (lambda: do_bench(fn=add, rep=500, return_mode="min"), 1.0),
        (lambda: triton.testing.do_bench_cudagraph(add, 20, return_mode="all"), [1.0, 3.0, 2.0]),
        (lambda: triton.testing.do_bench_cudagraph(add, 20, None, [1.0]), 3.0),
        (lambda: Timer("add()", globals={"add": add}).timeit(7).median, 0.002),
        (
            lambda: Timer("add()", globals={"add": add}).blocked_autorange(min_run_time=1).raw_times,
            [0.001, 0.003, 0.002],
        ),
        (lambda: Timer("add()", globals={"add": add}, label="a sum").adaptive_autorange().label, "a sum"),
    ],
)
def test_a_timer_hands_its_function_on(timed: list[Timed], call: Callable[[], object], result: object) -> None:
    assert call() == pytest.approx(result)
    assert [each.function for each in timed] == [add]


def test_timers_are_themselves_again() -> None:
    before = do_bench.__code__
    with adopting(lambda timed: SAMPLES_US):
        assert do_bench.__code__ is not before
    assert do_bench.__code__ is before


def test_gradients_are_dropped_and_are_what_a_backward_returns(timed: list[Timed]) -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    do_bench(lambda: torch.autograd.backward(y.sum(), retain_graph=True), grad_to_none=[x])
    (each,) = timed
    for _ in range(2):
        assert each.setup is not None
        each.setup()
        assert each.function()[0].tolist() == [2, 2, 2]


def test_a_statement_is_run_after_its_setup(timed: list[Timed]) -> None:
    seen: list[int] = []
    Timer("seen.append(x)", setup="x = 4", globals={"seen": seen}, sub_label="late").timeit()
    assert (seen, timed[0].label) == ([], "late")
    timed[0].function()
    assert seen == [4]


# who is not redirected


def time_it(fn: Callable[[], object]) -> object:
    return f"the timer's own: {fn()}"


OWN = "the timer's own: 3"


@pytest.fixture
def own_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def adapter(original: object, handle: Callable[[Timed], object], caller: object, fn: Callable[..., Any]) -> object:
        return handle(Timed(fn))

    monkeypatch.setattr("pytest_gpubench.adopt.timers.ADAPTERS", {f"{__name__}:time_it": adapter})


@pytest.mark.parametrize(
    ("module", "found", "found_given"),
    [
        ("triton.runtime.autotuner", OWN, OWN),
        ("torch._inductor.runtime", OWN, OWN),
        ("torch.utils._contextlib", OWN, [1.0]),  # a decorator of torch's around a benchmark
        ("tritonbench.operators", [1.0], [1.0]),
    ],
)
@pytest.mark.usefixtures("own_timer")
def test_autotuners_time_by_themselves(module: str, found: object, found_given: object) -> None:
    """So does what they are given: `do_bench=` of `triton.autotune`."""
    given: dict[str, Any] = {"__name__": "kernels", "time_it": time_it, "add": add}
    exec("def do_bench(): return time_it(add)", given)
    namespace: dict[str, Any] = given | {"__name__": module, "do_bench": given["do_bench"]}
    exec("def tune(): return time_it(add)\ndef tune_given(): return do_bench()", namespace)
    with adopting(lambda timed: [2.0]), adopting(lambda timed: [1.0]):
        assert (namespace["tune"](), namespace["tune_given"]()) == (found, found_given)


@pytest.mark.usefixtures("own_timer")
def test_the_inner_of_two_contexts_is_handed_the_call() -> None:
    """What runs while a call is measured times by itself."""
    inner: list[object] = []

    def measure(timed: Timed) -> Sequence[float]:
        inner.append(time_it(add))
        return [2.0]

    with adopting(lambda timed: [1.0]):
        with adopting(measure):
            assert (time_it(add), time_it(add)) == ([2.0], [2.0])
        assert time_it(add) == [1.0]
    assert [time_it(add), *inner] == [OWN] * 3


def test_timers_that_are_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ("no_such_package:f", "triton.no_such_module:do_bench", "triton.testing:no_such_timer")
    monkeypatch.setattr("pytest_gpubench.adopt.timers.ADAPTERS", dict.fromkeys(missing, print))
    with adopting(lambda timed: [1.0]):
        assert time_it(add) == OWN


# names


@dataclass
class Input:
    x: int
    provider: str
    tensor: object = None


def speed(fwd: Callable[[], object], mode: str, rep: int = 10) -> object:
    return do_bench(fwd)


def of_input(given: Input) -> object:
    return speed(lambda: 0, "full")


def of_function(op: Callable[..., object], *args: object) -> object:
    return do_bench(lambda: op(*args))


def with_switches(baseline: bool, cudagraph: bool) -> object:
    return do_bench(lambda: 0)


def without_arguments() -> object:
    return do_bench(lambda: 0)


@pytest.mark.parametrize(
    ("call", "label"),
    [
        (lambda: of_input(Input(1024, "liger", [])), "speed(x=1024, provider=liger, mode=full)"),
        (lambda: of_input(Input(1024, "full", [])), "speed(x=1024, provider=full)"),
        (lambda: speed(add, "x"), "add(fwd=add, mode=x)"),
        (lambda: of_function(torch.softmax, 1), "of_function(op=softmax)"),
        (
            lambda: of_function(torch.add, torch.ones(2, 3), torch.ones(3, dtype=torch.bfloat16), 1),
            "of_function(op=add, args=float32[2x3] bfloat16[3])",
        ),
        (lambda: with_switches(True, False), "with_switches(baseline=True)"),
        (lambda: [without_arguments()], "without_arguments"),
        (lambda: speed(add, "x" * 200), f"add(fwd=add, mode={'x' * 101}…"),
    ],
)
def test_a_call_is_known_by_the_arguments_around_it(timed: list[Timed], call: Callable[[], object], label: str) -> None:
    call()
    assert timed[0].label == label
