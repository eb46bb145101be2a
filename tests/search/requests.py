"""A search whose comparisons are given, and what they were asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pytest_gpubench import Comparison, Measurement, MeasurementError, Speedup, Timing, WrongResult
from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.arguments import VariedArguments
from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.request import CallResult
from pytest_gpubench.correctness import Tolerance
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.search import Example, Search
from pytest_gpubench.search.budget import TimeBudget
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.calls import make_arguments, make_call
from pytest_gpubench.verdict.limits import Limits

DEVICE = cpu_device()


@dataclass(frozen=True)
class FakeRequest(CompareRequest):
    """A comparison whose ratios are given, and that notes what is asked of it."""

    ratios: dict[str, float] = field(default_factory=dict)
    log: list[Any] = field(default_factory=list)
    error: Exception | None = None
    wrong: list[Exception | None] = field(default_factory=list)
    """What each check raises in turn, none after the last."""
    during: Callable[[], object] = lambda: None
    """What happens while it is timed."""

    def call_only(self, reason: str) -> CallResult[Comparison]:
        self.log.append(("checked", reason))
        if self.wrong and (error := self.wrong.pop(0)) is not None:
            raise error
        return self._found({})

    def measure(self, say: object) -> CallResult[Comparison]:
        self.log.append(("take", self.settings.reps, self.settings.alpha))
        self.during()
        if self.error is not None:
            raise self.error
        return self._found(self.ratios)

    def _found(self, ratios: dict[str, float]) -> CallResult[Comparison]:
        def timing(name: str) -> Timing:
            return Timing(label=name, timer="scripted", cache="hot", device="CPU", samples_us=(1.0,))

        def speedup(name: str) -> Speedup | None:
            found = {"interval": None, "quads": 6, "alpha": 0.1, "reference": "ref", "reference_us": 1.0, "seed": 0}
            return Speedup(ratio=ratios[name], **cast(Any, found)) if name in ratios else None

        measured = [Measurement(timing=timing("ref"), role="reference")]
        measured += [Measurement(timing=timing(name), speedup=speedup(name)) for name in self.judged]
        return CallResult(self._comparison(measured), measured)


def request_of(
    ratios: dict[str, float],
    log: list[Any],
    settings: Settings | None = None,
    limits: dict[str, float] | None = None,
    given: object = (),
    **others: Any,
) -> FakeRequest:
    """Return a comparison with these ratios; limits: the speedup asked of each candidate."""
    agreement = Agreement(
        max, VariedArguments.of(make_arguments()), Tolerance(), None, None, False, "forward", DEVICE.torch_device
    )
    calls = {name: make_call(max, label=name) for name in ("ref", *ratios)}
    asked = Limits(min_speedup=limits or None)
    return FakeRequest(settings or Settings(), DEVICE, asked, given, calls, agreement, ratios=ratios, log=log, **others)


class Harness:
    """A search, and what its comparisons were asked."""

    def __init__(self, budget_s: float = 30.0, **limits: float) -> None:
        self.search = Search(TimeBudget(budget_s), Example("", {}))
        self.limits = limits
        self.log: list[Any] = []
        self.measured: Sequence[Measurement] = ()
        """By the last comparison."""

    def compare(self, n: int, args: tuple[object, ...] = (), reps: int | None = None, **ratios: float) -> Comparison:
        """Begin an example and compare once in it."""
        self.search.begin(Example(f"n={n}", {"n": n}))
        return self.further(args, reps, **ratios)

    def further(self, args: tuple[object, ...] = (), reps: int | None = None, **ratios: float) -> Comparison:
        """Compare once more in the same example."""
        limits = {name: limit for name, limit in self.limits.items() if name in ratios}
        return self.obtain(request_of(ratios, self.log, Settings(alpha=0.01, reps=reps), limits, args))

    def obtain(self, request: CompareRequest) -> Comparison:
        found = self.search.obtain(request, lambda text: None)
        self.measured = found.measurements
        return found.result

    def took(self) -> Sequence[str]:
        """Return what was done since it was last asked."""
        kinds = ["checked" if each[0] == "checked" else "quick" if each[1] == 2 * 6 else "full" for each in self.log]
        self.log.clear()
        return kinds


def compared(harness: Harness, n: int, **others: Any) -> str:
    """Return what comes of a comparison in an example: the text of its error, or why it was not timed, or timed."""
    harness.search.begin(Example(f"n={n}", {"n": n}))
    try:
        harness.obtain(request_of({"fast": 1.0}, harness.log, **others))
    except (WrongResult, MeasurementError) as error:
        return str(error)
    return "timed" if any(each[0] == "take" for each in harness.log) else str(harness.log[-1][1])


WRONG = WrongResult("wrong")
WHEN_TIMED = WrongResult("wrong when timed")
