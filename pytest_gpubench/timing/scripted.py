"""Given samples instead of measured ones: for tests of this plugin, and of what users build on it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from numbers import Real
from typing import Any, ParamSpec, TypeVar

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import LONGEST_US
from pytest_gpubench.settings.cache import Cache, Producer
from pytest_gpubench.timing.base import Call, Record, Rep, Session, Timer
from pytest_gpubench.units import repr_of

P = ParamSpec("P")
R = TypeVar("R")

REP_COST_S = 5e-5
"""The pretended cost of a rep: the number of reps is the same on every machine, under any load."""

_ATTRIBUTE = "__gpu_bench_script__"


@dataclass
class Script:
    """The times that the scripted timer plays for a function."""

    samples: Iterator[float]
    """Microseconds, over and over: a measurement goes on where the one before stopped."""
    kernels: tuple[str, ...]


def scripted(
    samples_us: Sequence[float], kernels: Sequence[str] = ("kernel",)
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a function the samples that `timer="scripted"` plays for it, in turn, over and over.

    samples_us: microseconds, one per call. kernels: names of the kernels that share each sample equally.
    Raises BadRequest for no samples, or one that is not above 0 and finite, for kernels that are no texts, and for a
    function that takes no attribute, such as torch's own.
    """
    samples = _checked_samples(samples_us)
    names = (kernels,) if isinstance(kernels, str) else kernels
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) and name for name in names):
        raise BadRequest(f"scripted(kernels={repr_of(kernels)}): it takes names of kernels, at least one")

    def attach(function: Callable[P, R]) -> Callable[P, R]:
        try:
            setattr(function, _ATTRIBUTE, Script(cycle(samples), tuple(names)))
        except (AttributeError, TypeError):  # the second of built-in types
            name = repr_of(function)
            raise BadRequest(f"scripted(...)({name}) cannot be: it takes no attribute; wrap it in a function") from None
        return function

    return attach


def _checked_samples(given: Iterable[object]) -> tuple[float, ...]:
    """Return samples as floats, whatever kind of number they are; raise BadRequest."""
    try:
        samples = [float(each) if not isinstance(each, bool) and isinstance(each, Real) else 0.0 for each in given]
    except (TypeError, OverflowError):
        samples = []
    if not samples or not all(0 < sample < LONGEST_US for sample in samples):
        found = repr_of(given)
        raise BadRequest(
            f"scripted(samples_us={found}): it takes at least one sample, each a number above 0 and finite"
        )
    return tuple(samples)


def _script_of(function: Any) -> Script | None:
    """Return the script of a function, of an object's `__call__`, or else of the function that a partial calls."""
    for each in (function, type(function).__call__):
        if isinstance(script := getattr(each, _ATTRIBUTE, None), Script):
            return script
    return _script_of(function.func) if isinstance(function, partial) else None


class ScriptedTimer(Timer):
    """Play the samples of scripted functions."""

    name = "scripted"
    sees_kernels = True
    settles = False

    def __init__(self, device: Device, cache: Cache) -> None:
        self.taken = 0
        self.producer = cache if isinstance(cache, Producer) else None

    def clock_s(self) -> float:
        """Return the pretended cost of all reps so far."""
        return self.taken * REP_COST_S

    def session(self) -> "ScriptedSession":
        """Return a new session."""
        return ScriptedSession(self)


class ScriptedSession(Session):
    """Call the function once per rep and note its next sample."""

    def __init__(self, timer: ScriptedTimer) -> None:
        self.timer = timer
        self.taken: list[Rep] = []

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep."""
        prepared = call.prepare()
        if self.timer.producer is not None:
            self.timer.producer.run(lambda: None)
        prepared()
        script = _script_of(call.function)
        if script is None:
            raise BadRequest(
                f"timer='scripted' needs samples: decorate {call.label!r} with @scripted(samples_us=[...])"
            )
        sample_us = next(script.samples)
        share_ns = round(1e3 * sample_us / len(script.kernels))
        records = tuple(
            Record(name, "kernel", index * share_ns, (index + 1) * share_ns)
            for index, name in enumerate(script.kernels)
        )
        self.taken.append(Rep(sample_us, records))
        self.timer.taken += 1

    def reps(self) -> Sequence[Rep]:
        """Return the reps taken."""
        return self.taken
