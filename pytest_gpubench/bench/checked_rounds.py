"""Two rounds whose outputs are checked, after those that count: with the values as given, then with others.

The first finds a candidate that is wrong for the values it knows, the second one that remembers their results. The
candidates' calls are timed like any other, in one session, so that none can tell; the inputs are the same objects in
the same memory. Outputs are compared after the session, as it takes longer with each record: those for the values as
given with copies of what the reference returned at first, or for a backward pass in an untimed call before, the others
with an untimed call of it.
A producer is left out of the second round: it writes the values as given.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pytest_gpubench.bench.other_values import OtherValues
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.pace import Pace
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness.variation import Way
from pytest_gpubench.errors import (
    GpuBenchError,
    IncompleteRecords,
    InvalidResult,
    KernelsDiffer,
    WrongResult,
    annotate,
    annotating,
)
from pytest_gpubench.settings.cache import Cache, Producer
from pytest_gpubench.timing.base import Timer
from pytest_gpubench.timing.comparison import Match, UncountedRounds, take_once_more
from pytest_gpubench.timing.rounds import Interleaved

T = TypeVar("T")


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
        way: Way | None = None
        with ExitStack() as values:
            values.callback(agreement.end_variation)
            with self._checking_as_given(expected):
                with rounds.session():
                    recorder.keep_all(rounds.take)
                    as_given = rounds.number
                    if vary := vary and self.timer.name != "scripted":
                        recorder.set_aside(self._candidates, expected)
                        recorder.forget_all()
                        way = self._vary(expected)
                        if isinstance(self.cache, Producer):
                            self.cache.is_left_out = True
                            values.callback(setattr, self.cache, "is_left_out", False)
                        self._take(rounds.take)  # in any case: work of the GPU after the last would belong to no call
                if not vary:
                    recorder.set_aside(self._candidates, expected)
                elif way is not None:
                    self._call_reference()
                    recorder.check_other_values(self._candidates, way, expected.left)
            times_us = self._times_us(rounds, as_given, way)
            if way is not None:
                pace = Pace(agreement, self.match, self.timer, self.taken, way)
                pace.check(self._candidates, times_us)

    @contextmanager
    def _checking_as_given(self, expected: Ran) -> Iterator[None]:
        """Check the calls with the values as given after a block; a wrong one goes before what the block raises."""
        try:
            yield
        except Exception:
            try:
                self._check_as_given(expected)
            except WrongResult as wrong:
                raise wrong from None
            except RuntimeError:  # of a broken GPU
                pass
            raise
        self._check_as_given(expected)

    def _check_as_given(self, expected: Ran) -> None:
        self.recorder.agreement.end_variation()
        self.recorder.check_aside([name for name in self._candidates if name in self.recorder.aside], expected)

    @property
    def _candidates(self) -> Sequence[str]:
        return [name for name in self.match.calls if name != self.match.reference]

    def _call_reference(self) -> None:
        """Call the reference, untimed."""
        name = self.match.reference
        with annotating(lambda: f"gpu_bench: raised in a call of {name!r} that is not timed"):
            self.match.calls[name].prepare()()

    def _results_of_reference(self) -> Ran:
        """Return copies of what the reference computes in a call that is not timed."""
        self._call_reference()
        self.recorder.set_aside([self.match.reference], self.expected)
        return self.recorder.aside.pop(self.match.reference)

    def _vary(self, expected: Ran) -> Way | None:
        """Give calls other values that tell; return the way to them, None where a round with others tells nothing."""
        way = OtherValues(self.recorder.agreement, self.expected).find()
        if not self.recorder.passes:
            return way
        self.recorder.change_upstream()
        return (way or "as given") if expected.gradients or expected.changed else None  # upstream gradients change too

    def _take(self, take: Callable[[], T]) -> T:
        try:
            return self.recorder.take(take)
        except GpuBenchError:
            raise
        except Exception as error:
            if (way := self.recorder.agreement.variation.way) != "as given":
                annotate(error, f"gpu_bench: its inputs were {way}; vary=False leaves that out")
            raise

    def _once_more(self) -> Mapping[str, float]:
        return take_once_more(self.match, self.timer, self.taken, self._candidates)

    def _times_us(self, rounds: UncountedRounds, as_given: int, way: Way | None) -> Mapping[str, float]:
        """Return the times of the first round with other values, if any; raise where a call launches other kernels."""
        try:
            varied = rounds.number if way is None else as_given
            for number in range(varied):
                rounds.times_us(number)
            return _varied_us([partial(rounds.times_us, number) for number in range(varied, rounds.number)])
        except IncompleteRecords:
            return self._take_again_us(way)

    def _take_again_us(self, way: Way | None) -> Mapping[str, float]:
        """Take both rounds again, each in a session of its own."""
        self.recorder.agreement.end_variation()
        self.recorder.take(self._once_more)
        if way is None:
            return {}
        self.recorder.agreement.vary(way)
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
