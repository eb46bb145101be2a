"""What the examples of a test under @given share: one budget of time, one alpha, one place for what is shown."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from pytest_gpubench.current import CurrentTest, enforce
from pytest_gpubench.errors import InvalidResult, LimitBroken
from pytest_gpubench.results.model import Measurement, Verdict
from pytest_gpubench.settings import Settings

__tracebackhide__ = True


def why_untimed(test: CurrentTest, settings: Settings) -> str:
    """Return why the search that runs has no more time; empty where it has, or where nothing is timed anyhow."""
    return "" if test.search is None or settings.disable else test.search.why_untimed


def spending(test: CurrentTest, settings: Settings, spent: str) -> Settings:
    """Return the settings of the next judgement; all of a search spend one alpha.

    spent: why nothing is judged; empty where it is.
    """
    if test.search is None or not test.limits or spent:
        return settings
    return test.search.spending(settings)


def paying(test: CurrentTest) -> AbstractContextManager[None]:
    """Take the time that this lasts from the budget of the search that runs."""
    return test.search.paying() if test.search is not None else nullcontext()


def show_last(test: CurrentTest, found: Sequence[Measurement]) -> None:
    """Keep what was found as the last of the test's: hypothesis ends with the example that it reports."""
    if test.search is not None:  # where they may be there already
        test.measurements[:] = [item for item in test.measurements if all(item is not one for one in found)]
    test.measurements += found


def hold_to(test: CurrentTest, settings: Settings, verdicts: Sequence[Verdict]) -> None:
    """Enforce verdicts; in a search, reps that are too few for its examples are told once, for all."""
    if test.search is None:
        enforce(test, settings, verdicts)
        return
    told = test.search.fixed.told(verdicts)
    test.warnings[:] = [each for each in test.warnings if each not in test.search.fixed.outdated]
    try:
        enforce(test, settings, told)
    except (LimitBroken, InvalidResult) as error:
        test.search.has_failed = True
        test.search.tell_to_keep(error)
        raise


def without_time(measurement: Measurement, reason: str) -> Measurement:
    """Return a measurement of what was only called, with the reason."""
    return msgspec.structs.replace(measurement, timing=msgspec.structs.replace(measurement.timing, unmeasured=reason))
