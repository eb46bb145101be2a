"""A search whose contests are given, and what they were asked."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from pytest_gpubench.bench.comparison import Contest
from pytest_gpubench.errors import MeasurementError, WrongResult
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Speedup, Timing
from pytest_gpubench.search import Example, Search
from pytest_gpubench.search.comparisons import QUICK_QUADS
from pytest_gpubench.settings import Settings


@dataclass(frozen=True)
class FakeContest:
    """A contest whose ratios are given, and that notes what is asked of it."""

    ratios: dict[str, float]
    log: list[Any]
    settings: Settings
    speedups: dict[str, float]
    limits: Limits = field(default_factory=Limits)
    reference: str = "ref"
    vary: bool = True
    bytes: int | None = None
    args: tuple[object, ...] = ()
    error: Exception | None = None
    wrong: list[Exception | None] = field(default_factory=list)
    """What each check raises in turn, none after the last."""
    during: Callable[[], object] = lambda: None
    """What happens while it is timed."""

    @property
    def calls(self) -> dict[str, None]:
        return dict.fromkeys(["ref", *self.ratios])

    @property
    def agreement(self) -> Any:
        return SimpleNamespace(arguments=SimpleNamespace(args=self.args, kwargs={}))

    def checked(self, reason: str = "") -> Comparison:
        self.log.append(("checked", reason))
        if self.wrong and (error := self.wrong.pop(0)) is not None:
            raise error
        return self._found({})

    def run(self, say: object) -> Comparison:
        self.log.append(("run", self.settings.reps, self.settings.alpha))
        self.during()
        if self.error is not None:
            raise self.error
        return self._found(self.ratios)

    def _found(self, ratios: dict[str, float]) -> Comparison:
        def timing(name: str) -> Timing:
            return Timing(label=name, timer="scripted", cache="hot", device="CPU", samples_us=(1.0,))

        def speedup(name: str) -> Speedup | None:
            found = {"interval": None, "quads": 6, "alpha": 0.1, "reference": "ref", "reference_us": 1.0, "seed": 0}
            return Speedup(ratio=ratios[name], **cast(Any, found)) if name in ratios else None

        arms = {name: Measurement(timing=timing(name), speedup=speedup(name)) for name in self.ratios}
        return Comparison(reference=timing("ref"), candidates=arms)


class Harness:
    """A search, and what its contests were asked."""

    def __init__(self, budget_s: float = 30.0, **limits: float) -> None:
        self.search = Search(budget_s, Example("", {}))
        self.limits = limits
        self.log: list[Any] = []

    def compare(self, n: int, args: tuple[object, ...] = (), reps: int | None = None, **ratios: float) -> Comparison:
        """Begin an example and compare once in it."""
        self.search.begin(Example(f"n={n}", {"n": n}))
        return self.further(args, reps, **ratios)

    def further(self, args: tuple[object, ...] = (), reps: int | None = None, **ratios: float) -> Comparison:
        """Compare once more in the same example."""
        settings = replace(Settings(), alpha=0.01, reps=reps)
        contest = FakeContest(ratios, self.log, settings, self.limits, args=args)
        return self.search.compare(cast(Contest, contest), lambda text: None)

    def took(self) -> list[str]:
        """Return what was done since it was last asked."""
        kinds = [
            "checked" if each[0] == "checked" else "quick" if each[1] == 2 * QUICK_QUADS else "full"
            for each in self.log
        ]
        self.log.clear()
        return kinds


def contest_of(harness: Harness, **others: Any) -> Contest:
    return cast(Contest, FakeContest({"fast": 1.0}, harness.log, Settings(), {}, **others))


def compared(harness: Harness, n: int, **others: Any) -> str:
    """Return what comes of a comparison in an example: the text of its error, or why it was not timed, or timed."""
    harness.search.begin(Example(f"n={n}", {"n": n}))
    try:
        harness.search.compare(contest_of(harness, **others), lambda text: None)
    except (WrongResult, MeasurementError) as error:
        return str(error)
    return "timed" if any(each[0] == "run" for each in harness.log) else harness.log[-1][1]


WRONG = WrongResult("wrong")
WHEN_TIMED = WrongResult("wrong when timed")
