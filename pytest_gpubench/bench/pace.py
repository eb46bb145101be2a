"""The pace of a candidate whose inputs hold other values: one that recognises its inputs is slower for new ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpubench.errors import InvalidResult
from pytest_gpubench.units import format_time

SLOWER = 1.25
"""A first call with other values that takes more than so many times the usual is tried again."""
SLACK_US = 1.0
TRIALS = 3
"""Trials after the first, all of which have to be slower: chance does not make each of them slow."""

Times = Mapping[str, float]
"""The time of a call of each arm, in microseconds."""


@dataclass(frozen=True)
class Pace:
    """Compare the first call of each arm after its inputs changed with its other calls."""

    reference: str
    usual_us: Times
    """The longest of nine in ten calls of each arm."""
    once_more: Callable[[], tuple[Times, Times]]
    """Changes the inputs again; returns times from before that, and those of the first calls after it."""

    def check(self, names: Sequence[str], found_us: Times) -> None:
        """Raise InvalidResult for a candidate that takes longer whenever the values of its inputs change.

        found_us: the time of each arm's first call after they changed; the reference's may be left out.
        """
        for name in names:
            is_slower = self._is_slower(name, self.usual_us, found_us)
            if is_slower and all(self._is_slower(name, *self.once_more()) for _ in range(TRIALS)):
                raise InvalidResult(
                    f"{name} took {format_time(found_us[name])} when the values of its inputs had changed, and usually "
                    f"takes {format_time(self.usual_us[name])}: does it remember results on the GPU? If its time "
                    "depends on the values, give vary=False"
                )

    def _is_slower(self, name: str, usual_us: Times, found_us: Times) -> bool:
        """Tell whether a candidate slowed down by more than the reference did, where that is known."""
        allowed = SLOWER * max(1.0, found_us.get(self.reference, 0.0) / usual_us[self.reference])
        return found_us[name] > allowed * usual_us[name] + SLACK_US
