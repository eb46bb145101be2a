"""Two rounds whose outputs are checked, after those that count: with the values as given, then with others.

The first finds a candidate that is wrong for the values it knows, the second one that remembers their results. The
candidates' calls are timed like any other, in one session, so that none can tell; the inputs are the same objects in
the same memory. The reference is called after them, untimed. A producer is left out of the second round: it writes the
values as given.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from pytest_gpubench.bench.other_values import other_values
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.pace import Pace
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.errors import GpuBenchError, IncompleteRecords, InvalidResult, KernelsDiffer, annotate, annotating
from pytest_gpubench.settings.cache import Cache, without_producer
from pytest_gpubench.timing.base import Timer
from pytest_gpubench.timing.comparison import Match, UncountedRounds, take_once_more
from pytest_gpubench.timing.rounds import Interleaved


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
        rounds = UncountedRounds(self.match, self.timer, self.taken, self._candidates)
        self.recorder.end()
        with ExitStack() as values:
            with rounds.session():
                self.recorder.keep_all(rounds.take)
                as_given = rounds.number
                vary = vary and self.timer.name != "scripted"
                differ = vary and self._take_other_values(rounds, values)
            if not vary:
                self._check_as_given()
            times_us = self._times_us(rounds, as_given, differ)
            if differ:
                self._call_reference()
                self.recorder.check_other_values(self.match.reference, self._candidates, self.expected)
                pace = Pace(self.recorder.agreement, self.match, self.timer, self.taken)
                pace.check(self._candidates, times_us)

    @property
    def _candidates(self) -> Sequence[str]:
        return [name for name in self.match.calls if name != self.match.reference]

    def _check_as_given(self) -> None:
        if self.recorder.anew:
            self._call_reference()
        self.recorder.check(self.match.reference, self._candidates)

    def _call_reference(self) -> None:
        with annotating(lambda: f"gpu_bench: raised in a call of {self.match.reference!r} that is not timed"):
            self.match.calls[self.match.reference].prepare()()

    def _take_other_values(self, rounds: UncountedRounds, values: ExitStack) -> bool:
        """Check the round that was taken, and take one with other values; return whether these tell anything.

        A round follows in any case: work of the GPU after the last one would belong to no call.
        """
        recorder = self.recorder
        self._check_as_given()
        recorder.refuses_sharing = True
        values.enter_context(without_producer(self.cache))
        differ = recorder.has_results(self.match.reference) and (
            values.enter_context(other_values(recorder.agreement, self.expected)) or bool(recorder.passes)
        )
        if differ:
            recorder.change_upstream()
        if len(self._candidates) == 1:  # else one may return another's output, which is noticed only while that is kept
            recorder.forget_all()
        try:
            recorder.take(rounds.take)
        except GpuBenchError:
            raise
        except Exception as error:
            if (way := recorder.agreement.variation.way) != "as given":
                annotate(error, f"gpu_bench: its inputs were {way}; vary=False leaves that out")
            raise
        return differ

    def _times_us(self, rounds: UncountedRounds, as_given: int, differ: bool) -> Mapping[str, float]:
        """Return the times of the first round with other values, if any; raise where a call launches other kernels."""
        numbers = range(as_given if differ else rounds.number)
        try:
            for number in numbers:
                rounds.times_us(number)
            return _varied_us([partial(rounds.times_us, each) for each in range(len(numbers), rounds.number)])
        except IncompleteRecords:
            return self._take_again_us(differ)

    def _take_again_us(self, differ: bool) -> Mapping[str, float]:
        """Take both rounds again, each in a session of its own."""
        agreement, way = self.recorder.agreement, self.recorder.agreement.variation.way

        def take() -> Mapping[str, float]:
            return self.recorder.take(lambda: take_once_more(self.match, self.timer, self.taken, self._candidates))

        agreement.end_variation()
        take()
        if way != "as given":
            agreement.vary(way)
        return _varied_us([take] if differ else [])


def _varied_us(rounds: Sequence[Callable[[], Mapping[str, float]]]) -> Mapping[str, float]:
    """Return the times of the first of the rounds with other values; none where there is none."""
    try:
        return next(iter([times_us() for times_us in rounds]), {})
    except KernelsDiffer as error:
        raise InvalidResult(
            f"when the values of the inputs changed, {error}; does it remember results? If what it launches may "
            "depend on its values, give vary=False"
        ) from None
