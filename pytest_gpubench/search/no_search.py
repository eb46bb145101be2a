"""A test that is not under @given: each call is measured as it is asked for, and nothing is shared between calls."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from pytest_gpubench.bench.request import Request, Say, T
from pytest_gpubench.results.model import Measurement, Verdict
from pytest_gpubench.results.phases import Phases

__tracebackhide__ = True


class NoSearch:
    """Stand for the search of a test that has none."""

    has_baseline: ClassVar[bool] = True
    """Whether the next run makes the same calls, so that they can be compared with a saved run."""
    example_text: ClassVar[str] = ""

    def __str__(self) -> str:
        return ""

    def obtain(self, request: Request[T], say: Say, measured: list[Measurement]) -> T:
        """Return what a call comes to."""
        return request.measure(say, measured)

    def replaced(self, title: str, measured: Sequence[Measurement]) -> Sequence[Measurement]:
        """Return what these measurements of a failed call replace."""
        return ()

    def shown_phases(self, before: Iterable[Phases], found: Phases) -> list[Phases]:
        """Return the phases to show."""
        return [*before, found]

    def told(self, verdicts: Sequence[Verdict], warnings: list[str]) -> Sequence[Verdict]:
        """Return verdicts as they are told, and take back warnings that are out of date."""
        return verdicts

    def note_failure(self, error: Exception, measurement: Measurement) -> None:
        """Note that an example failed, and on its error how to keep it."""
