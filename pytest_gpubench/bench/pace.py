"""The pace of a candidate whose inputs hold other values: one that recognises its inputs is slower for new ones."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.correctness.variation import Way
from pytest_gpubench.errors import InvalidResult
from pytest_gpubench.timing.base import Timer
from pytest_gpubench.timing.comparison import Match, take_once_more
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.units import format_time

SLOWER = 1.25
"""A first call with other values that takes more than so many times the usual is tried again."""
SLACK_US = 1.0
TRIALS = 3
"""Trials after the first, all of which have to be slower: chance does not make each of them slow."""


@dataclass(frozen=True)
class Pace:
    """Compare the first call of each arm after its inputs changed with its other calls."""

    agreement: Agreement
    match: Match
    timer: Timer
    taken: Interleaved
    way: Way
    varied: Callable[[], AbstractContextManager[object]]
    """A context in which calls are given other values."""

    def check(self, names: Sequence[str], found_us: Mapping[str, float]) -> None:
        """Raise InvalidResult for a candidate that takes longer whenever the values of its inputs change.

        found_us: the time of each arm's first call after they changed; the reference's may be left out.
        """
        if not self.timer.sees_kernels:
            return
        sorted_us = {name: sorted(sample.samples_us) for name, sample in self.taken.samples.items()}
        usual_us = {name: each[9 * (len(each) - 1) // 10] for name, each in sorted_us.items()}  # of nine in ten calls
        for name in names:
            if self._is_slower(name, found_us, usual_us) and self._is_slower_each_time(name):
                raise InvalidResult(
                    f"{name} took {format_time(found_us[name])} when the values of its inputs had changed, and usually "
                    f"takes {format_time(usual_us[name])}: does it remember results on the GPU? If its time depends on "
                    "the values, give vary=False"
                )

    def _is_slower(self, name: str, found_us: Mapping[str, float], usual_us: Mapping[str, float]) -> bool:
        """Tell whether a candidate slowed down by more than the reference did, where that is known."""
        reference = self.match.reference
        allowed = SLOWER * max(1.0, found_us.get(reference, 0.0) / usual_us[reference])
        return found_us[name] > allowed * usual_us[name] + SLACK_US

    def _is_slower_each_time(self, name: str) -> bool:
        """Compare first calls with other values with first calls with values that were there before."""
        with self.varied():
            return all(self._is_slower_again(name) for _ in range(TRIALS))

    def _is_slower_again(self, name: str) -> bool:
        self.agreement.end_variation()
        self._take()
        usual_us = self._take()
        self.agreement.vary(self.way)
        return self._is_slower(name, self._take(), usual_us)

    def _take(self) -> dict[str, float]:
        return take_once_more(self.match, self.timer, self.taken, [*self.match.calls])
