"""Reps of one call: what throttles them, records that are lost, kernels that differ, garbage, and its own errors."""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence

import pytest

from pytest_gpubench import BadRequest, GpuBenchError, KernelsDiffer, NothingRecorded, ProfilerBusy
from pytest_gpubench.timing.rounds import Arm, Interleaved, Sample, take_rounds
from tests.timing.fakes import (
    HEAT,
    LOST,
    POWER,
    Clock,
    Counted,
    FakeTimer,
    SmallTimer,
    call_of,
    instrument_of,
    number_of,
    numbered,
    rep,
)

ATTEMPTS = 3


def batch(
    timer: FakeTimer,
    wanted: int,
    *,
    masks: Sequence[int] = (),
    sample: Sample | None = None,
    function: Callable[[], object] = lambda: None,
    attempts: int = ATTEMPTS,
) -> Sample:
    sample = Sample() if sample is None else sample
    call = call_of(function)
    arms, taken = {call.label: Arm(call)}, Interleaved({call.label: sample})
    take_rounds(instrument_of(timer, masks), arms, [(call.label,)] * wanted, taken, 1e9, attempts=attempts)
    return sample


def numbers(sample: Sample) -> list[int]:
    """Return which of all the reps that were taken are in the sample."""
    return [number_of(taken) for taken in sample.reps]


# throttling


def test_a_session_that_is_full_keeps_throttled_reps(clock: Clock) -> None:
    timer = SmallTimer(clock)
    sample = batch(timer, 8, masks=[POWER] * 5)
    assert numbers(sample) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert (sample.discarded, sample.throttle_mask) == (2, POWER)
    assert timer.sizes == [10]


def test_what_was_kept_before_stays_throttled(clock: Clock) -> None:
    sample = batch(FakeTimer(clock), 2, sample=Sample([numbered(9)], throttle_mask=POWER, discarded=3), masks=[0, HEAT])
    assert (numbers(sample), sample.throttle_mask, sample.discarded) == ([9, 0, 2], POWER, 4)


# records that are not complete, kernels that differ


@pytest.mark.parametrize("failures", [1, 2])
def test_a_session_whose_records_are_lost_is_taken_again(clock: Clock, failures: int) -> None:
    timer = FakeTimer(clock, errors=[LOST] * failures)
    sample = batch(timer, 4, masks=[POWER])
    assert sample.remeasured == failures
    assert timer.sizes == [5, *[4] * failures]
    assert numbers(sample) == list(range(timer.taken - 4, timer.taken))
    assert (sample.discarded, sample.throttle_mask) == (0, 0)  # what was thrown away does not count


@pytest.mark.parametrize("error", [LOST, KernelsDiffer("one call launched nothing")])
@pytest.mark.parametrize(("attempts", "times"), [(3, "3 times"), (1, "1 time")])
def test_it_gives_up_after_so_many_attempts(clock: Clock, error: GpuBenchError, attempts: int, times: str) -> None:
    timer = FakeTimer(clock, errors=[error] * 9)
    sample = Sample([numbered(0)])
    with pytest.raises(type(error)) as caught:
        batch(timer, 4, sample=sample, attempts=attempts)
    assert str(caught.value) == f"{error} (measured {times})"
    assert caught.value.__suppress_context__
    assert timer.sizes == [4] * attempts
    assert (numbers(sample), sample.remeasured) == ([0], attempts - 1)


@pytest.mark.parametrize("error", [NothingRecorded("no work"), ProfilerBusy("another one"), BadRequest("what?")])
def test_what_another_attempt_would_not_change_is_raised_at_once(clock: Clock, error: GpuBenchError) -> None:
    timer = FakeTimer(clock, errors=[error])
    with pytest.raises(type(error)) as caught:
        batch(timer, 4)
    assert caught.value is error
    assert timer.sizes == [4]


@pytest.mark.parametrize(
    ("kernels", "first", "difference"),
    [
        (["ab", "ab", "abc"], None, "rep 1 and rep 3 differ, 1 x c only in the other"),
        (["aab", "ab", "ab"], None, "rep 1 and rep 2 differ, 1 x a only in one"),
        (["ab", "ab", "ab"], "ac", "1 x c only in one; 1 x b only in the other"),
        (["", "", ""], "a", "1 x a only in one"),
        (["a", "abb", "a"], None, "rep 1 and rep 2 differ, 2 x b only in the other;"),
        (["aac", "ab", "aac"], None, "1 x a only in one; 1 x c only in one; 1 x b only in the other;"),
        (["abcd", "", ""], None, "1 x a only in one; 1 x b only in one; 1 x c only in one; 1 x d only in one;"),
        (
            ["abc", "de", "abc"],
            None,
            "1 x a only in one; 1 x b only in one; 1 x c only in one; 1 x d only in the other; ...;",
        ),
    ],
)
def test_kernels_that_differ_within_or_between_batches_are_refused(
    clock: Clock, kernels: list[str], first: str | None, difference: str
) -> None:
    """No two samples would mean the same thing."""
    timer = FakeTimer(clock, lambda number: rep(9, kernels[number % 3]))
    sample = Sample([rep(9, first)] if first else [])
    with pytest.raises(KernelsDiffer, match=r"^'softmax' does not launch the same kernels in every call: ") as caught:
        batch(timer, 3, sample=sample)
    assert difference in str(caught.value)
    assert str(caught.value).endswith("does it autotune, cache or branch? (measured 3 times)")
    assert (len(sample.reps), sample.remeasured) == (1 if first else 0, 2)


# garbage collection, exceptions


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def was_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    gc.enable() if request.param else gc.disable()
    yield request.param
    gc.enable()


@pytest.mark.parametrize("errors", [[], [LOST], [LOST] * 3, [NothingRecorded("no work")]])
def test_garbage_is_not_collected_between_reps(clock: Clock, was_on: bool, errors: list[Exception]) -> None:
    timer = FakeTimer(clock, errors=errors)
    with contextlib.suppress(GpuBenchError):
        batch(timer, 4)
    assert all(session.collecting == [False] * 4 for session in timer.sessions)
    assert gc.isenabled() is was_on


@pytest.mark.parametrize(
    "error", [ValueError("broken"), BadRequest("what?"), ProfilerBusy("another one"), KeyboardInterrupt()]
)
def test_what_the_function_raises_goes_through_and_leaves_everything_as_it_was(
    clock: Clock, was_on: bool, error: BaseException
) -> None:
    timer, function, sample = FakeTimer(clock), Counted({7: error}), Sample([numbered(0)])
    with pytest.raises(type(error)) as caught:
        batch(timer, 9, function=function, sample=sample)
    assert caught.value is error
    assert hasattr(error, "__notes__") is (type(error) is ValueError), "the others are not the function's fault"
    assert function.calls == 7
    assert [session.left for session in timer.sessions] == [True]
    assert gc.isenabled() is was_on
    assert (numbers(sample), sample.remeasured) == ([0], 0)


@pytest.mark.parametrize(
    ("sample", "number"), [(Sample(), 7), (Sample([numbered(0)] * 5), 12), (Sample([numbered(0)] * 5, discarded=2), 14)]
)
def test_an_exception_says_in_which_rep_it_was_raised(clock: Clock, sample: Sample, number: int) -> None:
    """Of all the batches together."""
    error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        batch(FakeTimer(clock), 9, function=Counted({7: error}), sample=sample)
    assert getattr(error, "__notes__", []) == [f"gpu_bench: raised in rep {number} of 'softmax'"]
