"""Two rounds whose outputs are checked, after those that count: with other values, then with those as given.

The first finds a candidate that remembers results, the second one that is wrong for the values it knows; one that does
not compute in every call is stale in one of them. The candidates' calls are timed like any other, in one session, so
that none can tell; the inputs are the same objects in the same memory. Outputs for other values are compared, while
those are there, with an untimed call of the reference after the candidates'; those for the values as given after the
session with copies of what the reference returned at first, or for a backward pass in an untimed call before.
A producer is left out of the first round: it writes the values as given.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.pace import Pace, Times
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness.pool import with_enough
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


@dataclass(frozen=True)
class CheckedRounds:
    """Check what timed calls return."""

    recorder: OutputRecorder
    match: Match
    timer: Timer
    taken: Interleaved
    expected: Ran
    """The reference's results from when the candidates were checked."""
    way: Way | None
    """The way to the other values, as `OtherValues.find` returns it; None leaves their round out."""
    cache: Cache = "cold"

    def check(self) -> None:
        """Raise WrongResult for a candidate that is wrong, InvalidResult for one that remembers results."""
        recorder = self.recorder
        rounds = UncountedRounds(self.match, self.timer, self.taken, self._candidates)
        is_made_again = recorder.end()
        expected = self._results_of_reference().copied() if recorder.passes else self.expected
        with rounds.session():
            if self.way is not None:
                with self._varied(self.way):
                    self._check_other_values(rounds, expected, self.way)
                recorder.forget_all()
            varied = rounds.number
            if is_made_again or varied:
                with_enough(recorder.pool, rounds.take)  # last: work of the GPU after it would belong to no call
        recorder.check_as_given(self._candidates, expected)
        times_us = self._times_us(rounds, varied)
        if self.way is not None and self.timer.sees_kernels:
            sorted_us = {name: sorted(sample.samples_us) for name, sample in self.taken.samples.items()}
            usual_us = {name: each[9 * (len(each) - 1) // 10] for name, each in sorted_us.items()}
            pace = Pace(self.match.reference, usual_us, partial(self._paces_us, self.way))
            pace.check(self._candidates, times_us)

    @property
    def _candidates(self) -> Sequence[str]:
        return [name for name in self.match.calls if name != self.match.reference]

    @contextmanager
    def _varied(self, way: Way) -> Iterator[None]:
        """Give calls other values within."""
        producer = self.cache if isinstance(self.cache, Producer) else None
        agreement = self.recorder.agreement
        try:
            agreement.vary(way)
            if producer is not None:
                producer.is_left_out = True
            yield
        except BaseException:
            with suppress(RuntimeError):  # of a broken GPU
                agreement.end_variation()
            raise
        else:
            agreement.end_variation()
        finally:
            if producer is not None:
                producer.is_left_out = False

    def _paces_us(self, way: Way) -> tuple[Times, Times]:
        """Return the times of calls with the values as given, after one, and of the first calls with others."""
        take = partial(take_once_more, self.match, self.timer, self.taken, [*self.match.calls])
        with self._varied(way):  # no producer runs in either
            self.recorder.agreement.end_variation()
            take()
            usual_us = take()
            self.recorder.agreement.vary(way)
            return usual_us, take()

    def _results_of_reference(self) -> Ran:
        """Return what the reference computes in a call that is not timed."""
        name = self.match.reference
        with annotating(lambda: f"gpu_bench: raised in a call of {name!r} that is not timed"):
            self.match.calls[name].prepare()()
        return self.recorder.last_of(name, self.expected)

    def _check_other_values(self, rounds: UncountedRounds, expected: Ran, way: Way) -> None:
        """Take a round while values vary, and check it; what is wrong for the values as given too is told so."""
        recorder = self.recorder
        try:
            with_enough(recorder.pool, rounds.take)
            found = {name: recorder.last_of(name, expected).copied() for name in self._candidates}
            recorder.check_other_values(found, self._results_of_reference(), expected, way)
        except GpuBenchError:
            raise
        except Exception as error:
            if way != "as given" and not isinstance(error, WrongResult):
                annotate(error, f"gpu_bench: its inputs were {way}; vary=False leaves that out")
            try:
                recorder.agreement.end_variation()
                recorder.forget_all()
                with_enough(recorder.pool, rounds.take)
                recorder.check_as_given(self._candidates, expected)
            except (GpuBenchError, WrongResult) as told:
                raise told from (None if isinstance(error, WrongResult) else error)
            except RuntimeError:  # of a broken GPU
                raise error from None
            raise

    def _times_us(self, rounds: UncountedRounds, varied: int) -> Mapping[str, float]:
        """Return the times of the first round with other values, if any; raise where a call launches other kernels.

        varied: the number of rounds with other values, which are the first.
        """
        try:
            for number in range(varied, rounds.number):
                rounds.times_us(number)
            return _varied_us([partial(rounds.times_us, number) for number in range(varied)])
        except IncompleteRecords:  # take both again, each in a session of its own
            once_more = partial(take_once_more, self.match, self.timer, self.taken, self._candidates)
            with_enough(self.recorder.pool, once_more)
            if self.way is None:
                return {}
            with self._varied(self.way):
                return _varied_us([partial(with_enough, self.recorder.pool, once_more)])


def _varied_us(rounds: Sequence[Callable[[], Mapping[str, float]]]) -> Mapping[str, float]:
    """Return the times of the first of the rounds with other values; none where there is none."""
    try:
        return next(iter([times_us() for times_us in rounds]), {})
    except KernelsDiffer as error:
        raise InvalidResult(
            f"when the values of the inputs changed, {error}; does it remember results? If what it launches may "
            "depend on its values, give vary=False"
        ) from None
