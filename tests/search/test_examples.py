"""What does not fit into memory is rejected, what failed fails again, and nothing that an example held is kept."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FailedHealthCheck, Flaky, Unsatisfiable, UnsatisfiedAssumption

from pytest_gpubench import DeviceUnavailable, LimitBroken, MeasurementError, WrongResult
from pytest_gpubench import strategies as gst
from pytest_gpubench.search import Example
from pytest_gpubench.search.given import Examples
from tests.search.errors import caused_by, full, notes, with_context
from tests.search.intercepted import follow

pytestmark = pytest.mark.usefixtures("quick_collection")


def raise_full(n: int) -> None:
    raise full()


def test_what_does_not_fit_is_rejected_once_and_for_all() -> None:
    error, warnings, calls = follow(lambda n: raise_full(n) if n > 50 else None)
    assert error is None
    large = {n for n in calls if n > 50}
    assert len(large) > 1
    assert warnings == [f"{len(large)} examples did not fit into GPU memory (the smallest n={min(large)})"]
    assert all(calls.count(n) == 1 for n in large)


@pytest.mark.parametrize(("full_at", "told"), [(7, ["1 example did not fit into GPU memory (n=7)"]), (0, [])])
def test_one_that_does_not_fit_is_told(full_at: int, told: list[str]) -> None:
    found = follow(lambda n: raise_full(n) if n == full_at else None, sizes=st.integers(1, 9))
    assert found[:2] == (None, told)


def test_a_failure_beside_what_does_not_fit_is_shrunk() -> None:
    def body(n: int) -> None:
        if n > 50:
            raise full()
        if n > 20:
            raise LimitBroken("slow")

    found = follow(body)
    assert type(found.error) is LimitBroken
    assert found.calls[-1] == 21
    assert "did not fit into GPU memory" in notes(found.error)


def test_fail_lets_it_fail_and_shrink() -> None:
    found = follow(lambda n: raise_full(n) if n > 50 else None, on_out_of_memory="fail")
    assert type(found.error) is torch.OutOfMemoryError
    assert found.calls[-1] == 51
    assert found.warnings == []


@pytest.mark.parametrize("which", ["reject", "fail"])
@pytest.mark.parametrize("error", [full(), LimitBroken("slow"), WrongResult("wrong"), MeasurementError("no")])
@pytest.mark.parametrize("then", ["fits", "full", "other"])
def test_an_example_that_failed_fails_again(which: str, error: Exception, then: str) -> None:
    """Memory comes and goes, and what is measured once more may come out otherwise: never flaky."""
    seen: set[int] = set()

    def body(n: int) -> None:
        if n > 20 and n not in seen:
            seen.add(n)
            raise type(error)(str(error))
        if n > 20 and then == "full":
            raise full()
        if n > 20 and then == "other":
            raise MeasurementError("other")

    found = follow(body, which)
    assert not isinstance(found.error, (Flaky, FailedHealthCheck))
    if isinstance(error, torch.OutOfMemoryError) and which == "reject":
        assert found.error is None
    else:
        assert type(found.error) is type(error)
        assert str(found.error) == str(error)
        assert found.calls[-1] == 21


def test_a_test_of_its_own_that_is_flaky_is_called_so() -> None:
    seen: set[int] = set()

    def body(n: int) -> None:
        if n > 20 and n not in seen:
            seen.add(n)
            raise AssertionError("of the user")

    assert isinstance(follow(body).error, Flaky)


def test_what_passed_is_not_rejected_later() -> None:
    """But for what was drawn: the test has not been called with it."""
    examples = Examples("reject")
    assert examples.draw("ones(9)", {}, lambda: 5) == 5
    with pytest.raises(UnsatisfiedAssumption):
        inside(lambda: examples.draw("ones(9)", {}, lambda: raise_full(9)))
    assert examples.run(Example("n=1", {}), lambda: 5) == 5
    assert examples.run(Example("n=1", {}), lambda: raise_full(1)) is None
    assert [each.text for each in examples.rejected] == ["ones(9)"]
    with pytest.raises(UnsatisfiedAssumption):
        inside(lambda: examples.run(Example("n=2", {}), lambda: raise_full(2)))
    with pytest.raises(UnsatisfiedAssumption):
        inside(lambda: examples.run(Example("n=2", {}), lambda: 5))


def inside(call: Callable[[], object]) -> None:
    """Call in a test of hypothesis, and let through what it makes of a rejected example."""
    raised: list[BaseException] = []

    @settings(max_examples=1, database=None, phases=[Phase.generate])
    @given(st.none())
    def test(nothing: None) -> None:
        try:
            call()
        except UnsatisfiedAssumption as error:
            raised.append(error)

    test()
    if raised:
        raise raised[0]


@pytest.mark.parametrize("sizes", [st.integers(1, 9), st.integers(1, 10**6)])
def test_where_nothing_fits_the_error_says_so(sizes: Any) -> None:
    found = follow(raise_full, sizes=sizes)
    assert isinstance(found.error, (Unsatisfiable, FailedHealthCheck))
    assert "did not fit into GPU memory (the smallest n=1), and no other was tried; lower max_bytes" in notes(
        found.error
    )


@pytest.mark.parametrize(("fitting", "said"), [(2, True), (3, False)])
def test_nearly_nothing_fits(fitting: int, said: bool) -> None:
    examples = Examples("reject")
    examples.outcomes = {(n,): Example(f"n={n}", {"n": n}) for n in range(18, 0, -1)}
    examples.outcomes |= {(f"fits {n}",): None for n in range(fitting)}
    text = "18 examples did not fit into GPU memory (the smallest n=1)"
    more = ", of 20 in all: nearly nothing was searched; lower max_bytes or max_side, or free memory"
    assert examples.sentence == text + (more if said else "")


@pytest.mark.parametrize("which", ["reject", "fail"])
def test_what_an_example_held_is_given_back(which: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next example nothing of one that did not fit, or failed, is alive, though hypothesis keeps its error."""
    held: list[weakref.ref[torch.Tensor]] = []
    emptied: list[int] = []
    """The number of those alive, each time that the cache is emptied."""
    monkeypatch.setattr("pytest_gpubench.search.given.context_error", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(sum(each() is not None for each in held)))

    def body(n: int) -> None:
        gc.collect()
        assert [each() for each in held] == [None] * len(held)
        x = torch.ones(n)
        held.append(weakref.ref(x))
        cycle: list[object] = [x]
        cycle.append(cycle)
        if n > 50:
            raise caused_by(full(), DeviceUnavailable("no room"))

    found = follow(body, which)
    assert emptied == [0] * (len({n for n in found.calls if n > 50}) if which == "reject" else 0)
    assert type(found.error) is (DeviceUnavailable if which == "fail" else type(None))
    assert len(held) > 10


def test_a_tensor_that_is_drawn_and_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    original = gst.LazyTensor.make

    def tight(lazy: gst.LazyTensor) -> torch.Tensor:
        if lazy.shape > (50,):
            raise full()
        return original(lazy)

    monkeypatch.setattr(gst.LazyTensor, "make", tight)
    found = follow(lambda x: None, sizes=gst.tensors(st.integers(1, 99), device="cpu"))
    assert found.error is None
    assert "did not fit into GPU memory (the smallest tensor(shape=(" in found.warnings[0]
    failed = follow(lambda x: None, "fail", sizes=gst.tensors(st.integers(1, 99), device="cpu"))
    assert type(failed.error) is torch.OutOfMemoryError

    @settings(max_examples=40, database=None, derandomize=True)
    @given(x=gst.tensors(st.integers(1, 99), device="cpu"))
    def outside(x: torch.Tensor) -> None:
        pass

    with pytest.raises(torch.OutOfMemoryError):
        outside()


def test_the_shape_that_breaks_cuda_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on every example fails, small ones too: none is tried."""
    broken: list[int] = []
    monkeypatch.setattr("pytest_gpubench.search.given.context_error", lambda: "an illegal access" if broken else None)

    def body(n: int) -> None:
        if n > 50:
            broken.append(n)
        if broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    found = follow(body)
    assert type(found.error) is RuntimeError
    assert found.calls[-1] == broken[0] > 50
    assert notes(found.error).endswith(
        f"gpu_bench: the CUDA context broke in this example, not shrunk: @example(n={broken[0]})"
    )


def test_an_error_that_only_speaks_of_cuda_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.search.given.context_error", lambda: None)

    def body(n: int) -> None:
        if n > 50:
            raise RuntimeError("CUDA error: invalid argument")

    assert follow(body).calls[-1] == 51


def draw(monkeypatch: pytest.MonkeyPatch, *choices: object) -> None:
    """Have hypothesis have drawn what is given."""
    monkeypatch.setattr("pytest_gpubench.search.example.hypothesis_choices", lambda: choices)


def test_what_is_drawn_in_the_call_tells_examples_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What did not fit stays left out, though it fits the next time; another is tried."""
    examples, drawn = Examples("reject"), [(5,), (5,), (6,), (5,)]

    def run(fits: bool) -> object:
        draw(monkeypatch)
        return examples.run(Example("n=data(...)", {}), lambda: call(fits))

    def call(fits: bool) -> int:
        draw(monkeypatch, *drawn.pop(0))
        if not fits:
            raise full()
        return 7

    for fits in (False, True):
        with pytest.raises(UnsatisfiedAssumption):
            inside(lambda: run(fits))  # noqa: B023 # called at once
    assert run(True) == 7
    assert (len(examples.rejected), len(examples.outcomes)) == (1, 2)
    assert examples.sentence.startswith("1 example did not fit")
    with pytest.raises(UnsatisfiedAssumption):
        inside(lambda: run(True))


def test_what_is_drawn_from_our_strategies_is_known_by_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Examples("reject")
    draw(monkeypatch, 1)
    with pytest.raises(UnsatisfiedAssumption):
        inside(lambda: examples.draw("tensor(shape=(3,), seed=0)", {}, lambda: raise_full(1)))
    draw(monkeypatch, 1, 2)
    with pytest.raises(UnsatisfiedAssumption):
        inside(lambda: examples.draw("tensor(shape=(3,), seed=0)", {}, lambda: 1))


# which errors are of a GPU whose memory is full


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (full(), True),
        (caused_by(full(), DeviceUnavailable("no room for the buffer")), True),
        (RuntimeError("CUDA error: out of memory\nCompile with ..."), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("CUDA error: out of memory"), False),
        (MemoryError(), False),
        (DeviceUnavailable("no room"), False),
        (with_context(AssertionError("the fallback is wrong"), full()), False),  # raised while handling it
    ],
)
def test_what_is_out_of_memory(error: Exception, expected: bool) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(UnsatisfiedAssumption if expected else type(error)):
        inside(lambda: Examples("reject").run(Example("n=1", {}), fail))
