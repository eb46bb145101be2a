"""Two rounds whose outputs are checked, after those that count: with the values as given, then with others.

The first finds a candidate that is wrong for the values it knows, the second one that remembers their results. The
candidates' calls are timed like any other, in one session, so that none can tell; the inputs are the same objects in
the same memory. Outputs are compared after the session, as it takes longer with each record: those for the values as
given with copies of what the reference returned at first, or for a backward pass in an untimed call before, the others
with an untimed call of it.
A producer is left out of the second round: it writes the values as given.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from pytest_gpubench.bench.other_values import OtherValues
from pytest_gpubench.bench.outputs import Compared, OutputRecorder
from pytest_gpubench.bench.pace import Pace
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness.variation import Way
from pytest_gpubench.errors import GpuBenchError, IncompleteRecords, InvalidResult, KernelsDiffer, annotate, annotating
from pytest_gpubench.settings.cache import Cache, without_producer
from pytest_gpubench.timing.base import Timer
from pytest_gpubench.timing.comparison import Match, UncountedRounds, take_once_more
from pytest_gpubench.timing.rounds import Interleaved

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """The results of candidates for other values."""

    compared: Mapping[str, Compared] = field(default_factory=dict)
    """Empty where no values tell anything."""
    way: Way = "as given"
    again_us: Mapping[str, float] | None = None
    """The times of their calls, where these were no part of the session of both rounds."""


@dataclass(frozen=True)
class CheckedRounds:
    """Check what timed calls return."""

    recorder: OutputRecorder
    match: Match
    timer: Timer
    taken: Interleaved
    expected: Ran
    """The reference's results from when the candidates were checked."""
    cache: Cache = "cold"

    def check(self, vary: bool) -> None:
        """Raise WrongResult for a candidate that is wrong, InvalidResult for one that remembers results.

        vary: whether there is a round with other values.
        """
        recorder, agreement = self.recorder, self.recorder.agreement
        rounds = UncountedRounds(self.match, self.timer, self.taken, self._candidates)
        recorder.end()
        expected = self._results_of_reference() if recorder.passes else self.expected
        others = OtherValues(agreement, self.expected) if vary and self.timer.name != "scripted" else None
        with ExitStack() as values:
            values.callback(agreement.end_variation)
            with self._checking_as_given(expected):
                with rounds.session():
                    recorder.keep_all(rounds.take)
                    as_given = rounds.number
                    if others is not None:
                        recorder.set_aside(self._candidates, expected)
                        values.enter_context(without_producer(self.cache))
                        varied = self._take_other_values(rounds, others, expected)
                if others is None:  # work of the GPU after the last round would belong to no call
                    recorder.set_aside(self._candidates, expected)
                found = Found() if others is None else self._find_other_values(others, varied)
            times_us = self._times_us(rounds, as_given, found)
            recorder.check_other_values(found.compared, found.way)
            if found.compared:
                pace = Pace(agreement, self.match, self.timer, self.taken, found.way)
                pace.check(self._candidates, times_us)

    @contextmanager
    def _checking_as_given(self, expected: Ran) -> Iterator[None]:
        """Check the calls with the values as given after a block; a wrong one goes before what the block raises."""
        try:
            yield
        except Exception:
            with suppress(RuntimeError):  # of a broken GPU
                self._check_as_given(expected)
            raise
        self._check_as_given(expected)

    def _check_as_given(self, expected: Ran) -> None:
        self.recorder.agreement.end_variation()
        self.recorder.check_aside([name for name in self._candidates if name in self.recorder.aside], expected)

    @property
    def _candidates(self) -> Sequence[str]:
        return [name for name in self.match.calls if name != self.match.reference]

    def _call_reference(self) -> object:
        """Return what the reference computes in a call that is not timed."""
        name = self.match.reference
        with annotating(lambda: f"gpu_bench: raised in a call of {name!r} that is not timed"):
            self.match.calls[name].prepare()()
        return self.recorder.agreement.with_changed(self.recorder.last[name], self.expected)

    def _results_of_reference(self) -> Ran:
        """Return copies of what the reference computes in a call that is not timed."""
        self._call_reference()
        self.recorder.set_aside([self.match.reference], self.expected)
        return self.recorder.aside.pop(self.match.reference)

    def _take_other_values(self, rounds: UncountedRounds, others: OtherValues, expected: Ran) -> bool:
        """Take a round with other values; return whether the reference takes these.

        A round follows in any case: work of the GPU after the last one would belong to no call.
        """
        recorder = self.recorder
        if recorder.passes:
            varied = bool(expected.gradients or expected.changed)
            others.find()
            recorder.change_upstream()
        else:
            varied = others.begin()
        recorder.forget_all()
        try:
            self._take(rounds.take)
        except GpuBenchError:
            raise
        except Exception:
            if not varied or recorder.passes or others.tell(self._call_reference()):
                raise
            return False  # a candidate may refuse values for which the reference returns nothing else
        return varied

    def _take(self, take: Callable[[], T]) -> T:
        try:
            return self.recorder.take(take)
        except GpuBenchError:
            raise
        except Exception as error:
            if (way := self.recorder.agreement.variation.way) != "as given":
                annotate(error, f"gpu_bench: its inputs were {way}; vary=False leaves that out")
            raise

    def _find_other_values(self, others: OtherValues, varied: bool) -> Found:
        """Return what the candidates computed for values that tell: those of the round, or others in one of its own."""
        recorder, again_us = self.recorder, None
        results = self._call_reference() if varied else None
        told = varied and (bool(recorder.passes) or others.tell(results))
        if not recorder.passes and not told:
            recorder.forget_all()  # one more output of each arm is too many where they are large
            if not others.find():
                return Found()
            again_us = _varied_us([partial(self._take, self._once_more)])
            self._call_reference()
        elif not varied:
            return Found()
        return Found(recorder.compare_other_values(self._candidates), recorder.agreement.variation.way, again_us)

    def _once_more(self) -> Mapping[str, float]:
        return take_once_more(self.match, self.timer, self.taken, self._candidates)

    def _times_us(self, rounds: UncountedRounds, as_given: int, found: Found) -> Mapping[str, float]:
        """Return the times of the first round with other values, if any; raise where a call launches other kernels."""
        is_told = bool(found.compared) and found.again_us is None
        try:
            for number in range(as_given):
                rounds.times_us(number)
            varied = range(as_given, rounds.number) if is_told else ()
            return found.again_us or _varied_us([partial(rounds.times_us, number) for number in varied])
        except IncompleteRecords:
            return found.again_us or self._take_again_us(found)

    def _take_again_us(self, found: Found) -> Mapping[str, float]:
        """Take both rounds again, each in a session of its own."""
        self.recorder.take(self._once_more)
        if not found.compared:
            return {}
        self.recorder.agreement.vary(found.way)
        return _varied_us([partial(self.recorder.take, self._once_more)])


def _varied_us(rounds: Sequence[Callable[[], Mapping[str, float]]]) -> Mapping[str, float]:
    """Return the times of the first of the rounds with other values; none where there is none."""
    try:
        return next(iter([times_us() for times_us in rounds]), {})
    except KernelsDiffer as error:
        raise InvalidResult(
            f"when the values of the inputs changed, {error}; does it remember results? If what it launches may "
            "depend on its values, give vary=False"
        ) from None
