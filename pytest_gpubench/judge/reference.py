"""The reference, which only the referee's process holds: comparisons with its outputs, and its cases, made ready."""

import secrets
import statistics
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pytest_gpubench.correctness import Tolerance, check_golden, compare_outputs, float64_by_default, widened
from pytest_gpubench.correctness.difference import Difference
from pytest_gpubench.correctness.leaves import flatten, map_leaves, tensors_of
from pytest_gpubench.errors import BadRequest, UnfairComparison
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.channel import Leaf
from pytest_gpubench.judge.judgement import Ended
from pytest_gpubench.judge.layout import describe, leaf_of, rebuild, span_of, spans_like
from pytest_gpubench.judge.replayed import ReplayedCall, saved_call
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.judge.spec import Case, Spec
from pytest_gpubench.timing.base import call_of, collection_off
from pytest_gpubench.timing.profiler import ProfilerTimer, take_reps_of_noop

if TYPE_CHECKING:
    import torch

FAIR_SEEDS = (1, 2)
"""The seeds of the inputs by which a spec is found fair: one that is near the edge is always refused, or never."""
LAPS = 11
"""Calls by two events, of which the median counts."""
NOOPS = 64
"""The kernels of a graph by which the time of a launch is measured."""


class Reference:
    """The reference, with inputs of its own."""

    def __init__(self, spec: Spec, device: Device) -> None:
        given = dict(spec.tolerance or {})
        self.golden, self.golden_factor = given.pop("golden", None), given.pop("golden_factor", None)
        check_golden(self.golden, self.golden_factor)
        self.tolerance = Tolerance(**given)
        self.tries_each = spec.tries_each
        self.function = spec.reference
        self.device = device
        self.sets: list[tuple[Any, ...]] = []
        self.runner = Runner(self.function, self.sets, device)
        self._replayed: ReplayedCall | None = None
        self.compared = 0
        """The outputs of candidates that were compared."""

    def begin_case(self, example: tuple[Any, ...], sets: int) -> None:
        """Make inputs for so many calls; if there are as many already, keep them."""
        if len(self.sets) != sets:
            self.close()
            self.sets[:] = [copied(example) for _ in range(sets)]
            self.runner.call_on_each()

    def launch(self, saved: bytes) -> None:
        """Let timed calls be replays of this saved call, as a candidate's are; without one, launch them as ever."""
        if saved and self._replayed is None:
            self._replayed = self.runner.function = ReplayedCall(saved, self.device)
            try:
                self.runner.call_on_each()
            except BaseException:
                self.close()
                raise
        self.runner.function = self._replayed if saved and self._replayed else self.function

    def whole_us(self) -> float:
        """Return the time of a replay as one graph, by two events in a full queue; 0 where it is not replayed.

        Nothing is traced: that would add to the gaps between kernels.
        """
        if self._replayed is None:
            return 0.0
        return self._queued_us(partial(self._replayed, *self.sets[0], whole=True)) - self._events_us

    @cached_property
    def _events_us(self) -> float:
        """The time that two events add to that of a graph, by one of a kernel that does nothing."""
        recorded_us = statistics.median(rep.elapsed_us for rep in take_reps_of_noop(self._timer, LAPS))
        return self._noops_us(1) - recorded_us

    @cached_property
    def launch_us(self) -> float:
        """The time that each kernel of a graph takes at least: one that does nothing and waits for the one before."""
        return (self._noops_us(NOOPS) - self._noops_us(1)) / (NOOPS - 1)

    def _noops_us(self, number: int) -> float:
        from pytest_gpubench.timing.graph import capture

        def launch() -> None:
            for _ in range(number):
                self._timer.sentinels.noop()

        return self._queued_us(capture(call_of("noop", launch), self.device).graph.replay)

    def _queued_us(self, launch: Callable[[], object]) -> float:
        call = call_of("graph", launch)
        with collection_off():
            return statistics.median(self._timer.events.lap(call, 0.0).elapsed_us for _ in range(LAPS))

    @property
    def _timer(self) -> ProfilerTimer:
        timer = self.runner.timer
        assert isinstance(timer, ProfilerTimer), "calls are replayed on a GPU"
        return timer

    def close(self) -> None:
        """Unload what is replayed, if anything is; timed calls are launched as ever."""
        self.runner.function = self.function
        if self._replayed is not None:
            with suppress(RuntimeError):  # of a broken GPU
                self._replayed.close()
            self._replayed = None

    def fill(self, values: tuple[Any, ...], index: int) -> None:
        """Write a set of inputs."""
        target = self.sets[index]
        for one, other in zip(spans_like(target, target), spans_like(target, values), strict=True):
            one.copy_(other)
        self.device.synchronize()

    def outputs(self, args: tuple[Any, ...]) -> list[Leaf]:
        """Describe the tensors that the reference returns for these inputs."""
        given = copied(args)
        found, inputs = describe(self.function(*given), "the reference's output")[1], describe(given, "the inputs")[1]
        return [leaf_of(each, inputs) for each in found]

    def _returned(self, args: tuple[Any, ...]) -> Any:
        return as_sent(self.function(*copied(args)), "the reference's output")

    def differences(self, found: object, args: tuple[Any, ...]) -> tuple[Difference, ...]:
        """Return how outputs differ from the reference's for these inputs."""
        expected, golden = self._returned(args), None
        if self.golden == "float64":
            wide, _ = widened(copied(args))
            with float64_by_default():
                golden = as_sent(self.function(*wide), "the reference's output in float64")
        elif callable(self.golden):
            golden = as_sent(self.golden(*copied(args)), "the output of golden")
        return compare_outputs(found, expected, self.tolerance, golden=golden, golden_factor=self.golden_factor)

    def require(self, found: object, args: tuple[Any, ...], when: str) -> tuple[Difference, ...]:
        """Compare outputs with the reference's; raise Ended where they differ by more than is allowed."""
        self.compared += 1
        differences = self.differences(found, args)
        if wrong := [each.sentence for each in differences if not each.passed]:
            raise Ended("wrong", f"wrong {when}: {'; '.join(wrong)}")
        return differences

    def check_fair(self, first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
        """Raise UnfairComparison where zeros, an input, or the result of other inputs would be right."""
        if not describe(second, "the inputs")[1]:
            raise UnfairComparison("the spec has no tensors as inputs: a candidate may compute once and remember")
        shape, *others = ([leaf.shape for leaf in self.outputs(each)] for each in (first, second, *self.sets))
        if any(each != shape for each in others):
            raise BadRequest(
                "the reference's outputs differ in shape from seed to seed, and a candidate's are read from memory for "
                "outputs of one shape: let the reference return what has the same shape for all seeds of a case"
            )
        other, expected = self._returned(second), self._returned(first)
        if all(leaf is None for _, leaf in flatten(other)):
            raise BadRequest("there is nothing to compare: the reference returns no output; let it return its results")
        if wrong := [each.sentence for each in self.differences(other, second) if not each.passed]:
            raise UnfairComparison(
                f"the reference itself, called again, is not within the tolerance: {'; '.join(wrong)}; make it "
                "deterministic, widen tolerance, or give equal_nan=True"
            )
        nothing = "right within the tolerance: a candidate need not compute it; tighten tolerance"
        for change, words in (
            (
                lambda leaf: leaf,
                "the reference returns the same for two seeds, within the tolerance: a candidate that remembers a "
                "result would be right; let inputs(seed) draw other values, or tighten tolerance",
            ),
            (_zeros, f"zeros are {nothing}"),
            (_middle, f"one number everywhere is {nothing}"),
        ):
            found = map_leaves(change, other)
            differences = self.differences(found, first)
            if differences and all(each.passed for each in differences):
                raise UnfairComparison(words)
            for name in self._right_by_chance(found, expected, first) if self.tries_each else ():
                raise UnfairComparison(f"{name} alone: {words}")
        self._check_inputs(second, other)

    def _check_inputs(self, args: tuple[Any, ...], outputs: object) -> None:
        """Raise UnfairComparison where an input is right in the place of one of the outputs, and that is no copy."""
        for name, given in tensors_of(flatten(args, "inputs")):
            for output in self._right_by_chance(map_leaves(partial(_as_if, given), outputs), outputs, args):
                raise UnfairComparison(
                    f"{output} is right within the tolerance if it is {name} unchanged: a candidate need not compute "
                    "it; tighten tolerance, or let inputs(seed) draw values that change it by more"
                )

    def _right_by_chance(self, found: object, expected: object, args: tuple[Any, ...]) -> list[str]:
        """Return the names of outputs that are right for these inputs, and not those that the reference returns."""
        leaves = dict(flatten(expected))
        other = {place for place, leaf in flatten(found) if place in leaves and not _are_equal(leaf, leaves[place])}
        differences = self.differences(found, args) if other else ()
        return [each.name for each in differences if each.passed and each.name in other]


class ReadyCase:
    """A case with an example of its inputs, and the tensors that the reference returns for it."""

    def __init__(self, spec: Spec, case: Case, device: Device) -> None:
        self.spec, self.case, self.device = spec, case, device
        self.reference = Reference(spec, device)
        (self.example,) = self.draw(1)
        self.outputs = self.reference.outputs(self.example)
        self.saved = b""
        """The reference's call as data; empty where it cannot be replayed, or was replayed wrongly."""

    def warm(self) -> "ReadyCase":
        """Make it ready for timing, and return it; raise UnfairComparison where no computing is needed to be right."""
        self.reference.begin_case(self.example, 1)
        self.reference.check_fair(*self._fair_inputs())  # freed before the reference is warmed
        self.reference.runner.warm()
        saved = "" if self.device.type == "cpu" else saved_call(self.reference.runner, self.device)
        self.saved = saved if isinstance(saved, bytes) else b""
        return self

    def _fair_inputs(self) -> list[tuple[Any, ...]]:
        """Return inputs from the same seeds each time; raise BadRequest where drawing them changes earlier ones."""
        import torch

        before, found = copied(self.example), list[tuple[Any, ...]]()
        for seed in FAIR_SEEDS:
            found += self._inputs(seed)
            pairs = zip(spans_like(before, before), spans_like(before, self.example), strict=True)
            if not all(torch.equal(one.view(torch.uint8), now.view(torch.uint8)) for one, now in pairs):
                raise BadRequest("inputs of the spec overwrite earlier ones: return new tensors for each seed")
        return found

    @property
    def name(self) -> str:
        """The parameters of the case in words."""
        return case_name(self.case)

    def draw(self, number: int) -> list[tuple[Any, ...]]:
        """Return inputs of so many calls, from new seeds."""
        return self._inputs(*(secrets.randbelow(2**31) for _ in range(number)))

    def _inputs(self, *seeds: int) -> list[tuple[Any, ...]]:
        drawn = (self.spec.inputs(self.case, seed, self.device.torch_device) for seed in seeds)
        return [as_sent(each, "the inputs") for each in drawn]


def case_name(case: Case) -> str:
    """Return the parameters of a case in words."""
    return ", ".join(f"{name}={value!r}" for name, value in case.items())


def as_sent(value: object, what: str) -> Any:
    """Return a pytree as a candidate gets and returns it: of plain tuples, lists, dicts and tensors."""
    return rebuild(*describe(value, what))


def copied(value: Any) -> Any:
    """Return a copy of a pytree, with the strides of its tensors."""
    import torch

    def copy(leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
        span_of(made).copy_(span_of(leaf.detach()))
        return made

    return map_leaves(copy, value)


def _are_equal(one: object, other: object) -> bool:
    """Tell whether two outputs are one object, or have the same elements."""
    exactly = Tolerance(rtol=0, atol=0, equal_nan=True)
    return one is other or all(each.passed for each in compare_outputs(one, other, exactly))


def _as_if(given: "torch.Tensor", leaf: object) -> object:
    """Return an input in the place of an output of its dtype and number of elements, as a view of it may be."""
    import torch

    if isinstance(leaf, torch.Tensor) and (leaf.dtype, leaf.numel()) == (given.dtype, given.numel()):
        return given.reshape(leaf.shape)
    return leaf


def _zeros(leaf: object) -> object:
    import torch

    return torch.zeros_like(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _middle(leaf: object) -> object:
    """Return a tensor with the number between the least and the largest element everywhere; integers stay zeros."""
    import torch

    from pytest_gpubench.correctness.constant_outputs import least_and_largest

    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or not leaf.numel():
        return _zeros(leaf)
    return torch.zeros_like(leaf).fill_(sum(least_and_largest(leaf)) / 2)
