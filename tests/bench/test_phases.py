"""Phases: what is refused, and what is told of functions whose times are scripted or read from a clock."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_gpubench import BadRequest, Measurement, Phases, Timing, scripted
from pytest_gpubench.bench.phases import PhasesRequest, phase_calls
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.summary import Interval, median_interval
from pytest_gpubench.timing.calls import make_arguments
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.verdict.limits import Limits

Function = Callable[..., object]


@scripted([30.0])
def encoder(*args: object) -> None: ...


@scripted([10.0])
def decoder(*args: object) -> None: ...


@scripted([36.0])
def both(*args: object) -> None: ...


BOTH = {"encoder": encoder, "decoder": decoder}


def request_of(
    phases: Any,
    whole: Any = None,
    elements: Any = None,
    limits: Limits | None = None,
    given: dict[str, Any] | None = None,
    **settings: Any,
) -> PhasesRequest:
    """Return a request for phases on the CPU; given: what `make_arguments` takes."""
    calls, label = phase_calls(phases, whole, make_arguments(**given or {}))
    chosen = Settings(device="cpu", **{"timer": "scripted", **settings})
    return PhasesRequest(chosen, cpu_device(), limits or Limits(), (), calls, label, elements)


def measured(*asked: Any, **more: Any) -> tuple[Phases, Sequence[Measurement]]:
    found = request_of(*asked, **more).measure(lambda text: None)
    return found.result, found.measurements


# what is found


def test_phases_against_their_whole() -> None:
    found, measurements = measured(BOTH, both, 18, seed=5)
    assert [(each.name, each.median_us, each.share) for each in found.phases] == [
        ("encoder", 30.0, 0.75),
        ("decoder", 10.0, 0.25),
    ]
    assert found["encoder"].interval == Interval(30.0, 30.0)
    assert (found.sum_us, found.sum_interval) == (40.0, Interval(40.0, 40.0))
    assert found.ratio == pytest.approx(40 / 36)
    assert not found.adds_up
    assert found.explanation.startswith("each phase alone starts with a cold cache, while in the whole")
    assert found.whole is not None
    assert (found.whole.name, found.whole.median_us, found.whole.share) == ("both", 36.0, 1.0)
    assert (found.title, found.timer, found.cache, found.rounds, found.seed) == ("both", "scripted", "cold", 20, 5)
    assert (found["decoder"].elements_per_s, found.sum_elements_per_s) == (1.8e6, 4.5e5)
    assert found.whole.elements_per_s == 5e5
    assert [item.timing.label for item in measurements] == ["encoder", "decoder", "both"]
    assert all(item.timing.reps == 40 and not item.verdicts for item in measurements)


def test_without_a_whole_or_elements_nothing_is_compared() -> None:
    found, measurements = measured(BOTH)
    assert (found.whole, found.ratio, found.sentence, found.title) == (None, None, "", "encoder, decoder")
    assert (found["encoder"].elements_per_s, found.sum_elements_per_s) == (None, None)
    assert len(measurements) == 2
    found, (measurement,) = measured({"only": encoder})
    assert (found["only"].share, found.sum_us, found.rounds, measurement.timing.reps) == (1.0, 30.0, 20, 40)


@pytest.mark.parametrize(("reps", "rounds"), [(1, 1), (2, 1), (3, 2), (12, 6)])
def test_as_many_reps_as_asked_for(reps: int, rounds: int) -> None:
    found, measurements = measured(BOTH, both, reps=reps)
    assert found.rounds == rounds
    assert {item.timing.reps for item in measurements} == {2 * rounds}
    assert (found.ratio_interval is None) == (rounds < 6)


def test_all_are_called_in_turn_with_the_same_arguments() -> None:
    calls: list[tuple[str, tuple[object, ...]]] = []
    made = iter(range(10_000))

    def noting(name: str) -> Function:
        @scripted([1.0])
        def function(*args: object) -> None:
            calls.append((name, args))

        return function

    measured({"a": noting("a"), "b": noting("b")}, noting("c"), given={"setup": lambda: (next(made),)}, reps=40)
    assert [args for _, args in calls] == [(number,) for number in range(120)]
    rounds = ["".join(name for name, _ in calls[start : start + 6]) for start in range(0, 120, 6)]
    assert {"".join(sorted(order)) for order in rounds} == {"aabbcc"}
    assert len(set(rounds)) > 1


def test_the_limits_of_the_test_hold_for_every_call() -> None:
    _, measurements = measured(BOTH, both, limits=Limits(max_time_us=33.0))
    outcomes = [item.verdicts[0].outcome for item in measurements]
    assert outcomes == [Outcome.PASS, Outcome.PASS, Outcome.FAIL]
    assert all(item.verdicts[0].enforced for item in measurements)


@scripted([20.0, 40.0, 30.0, 25.0, 35.0])
def noisy() -> None: ...


@pytest.mark.parametrize(("budget_s", "rounds", "flags"), [(5.0, 80, ()), (1e-9, 6, ("imprecise",))])
def test_rounds_are_added_until_every_median_is_precise(budget_s: float, rounds: int, flags: tuple[str, ...]) -> None:
    found, _ = measured({"exact": encoder, "noisy": noisy}, budget_s=budget_s)
    assert (found.rounds, found["exact"].flags, found["noisy"].flags) == (rounds, (), flags)


def test_a_whole_that_is_called_like_a_phase() -> None:
    request = request_of({"both": encoder, "both (whole)": decoder}, both)
    assert list(request.calls) == ["both", "both (whole)", "both (whole) (whole)"]
    assert request.title == "both (whole) (whole)"


def test_phases_whose_names_are_printed_alike_both_count() -> None:
    found, _ = measured({"a\n": encoder, r"a\n": decoder})
    assert (found.sum_us, found.title) == (40.0, r"a\n, a\n")


def test_the_ratio_is_that_of_each_round() -> None:
    times: list[dict[str, tuple[float, ...]]] = [
        {"a": (1.0, 3.0), "b": (2.0, 2.0), "w": (3.0, 5.0)},
        {"a": (8.0, 8.0), "b": (4.0, 4.0), "w": (6.0, 6.0)},
    ]
    request = request_of({"a": encoder, "b": decoder}, named("w"))
    timings = {
        name: Timing(label=name, timer="t", cache="c", device="d", samples_us=(median_us,))
        for name, median_us in {"a": 3.0, "b": 1.0, "w": 5.0}.items()
    }
    found = request.summarise(Interleaved({}, rounds=times), timings)
    assert (found.sum_us, found.ratio) == (8.0, 1.5)  # sums of 4 and 12, ratios of 1 and 2
    assert [each.share for each in found.phases] == [0.75, 0.25]
    assert found.ratio_interval == median_interval([1.0, 2.0]) is None


def named(name: str) -> Function:
    def function() -> None: ...

    function.__name__ = name
    return function


# where nothing is timed


def test_switched_off_every_function_is_called_once() -> None:
    calls: list[str] = []
    phases = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    found, measurements = measured(phases, lambda: calls.append("w"), timer="wall", disable=True)
    assert calls == ["a", "b", "w"]
    assert not found.measured
    assert found.unmeasured == "switched off by --gpu-bench-disable"
    assert [item.timing.unmeasured for item in measurements] == [found.unmeasured] * 3


# invalid and unmeasured requests


@pytest.mark.parametrize(
    ("phases", "others", "sentence"),
    [
        ({}, {}, "needs at least one phase, found an empty mapping"),
        ([encoder], {}, "needs a mapping of names to functions, found list"),
        (encoder, {}, "needs a mapping of names to functions, found function"),
        ({"": encoder}, {}, "needs names that are texts and not empty, found ''"),
        ({3: encoder}, {}, "needs names that are texts and not empty, found 3"),
        ({"a": 3}, {}, "needs a function for 'a', found int"),
        (BOTH, {"whole": "both"}, r"phases\(whole=...\) must be a function, or be left out, found str"),
    ],
)
def test_invalid_requests(phases: Any, others: Any, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence) as caught:
        request_of(phases, **others)
    assert "\n" not in str(caught.value)


def test_the_error_of_a_phase_goes_through() -> None:
    @scripted([1.0])
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        measured({"fails": fails})
    assert "raised in rep 1 of 'fails'" in caught.value.__notes__[0]  # type: ignore[attr-defined]
