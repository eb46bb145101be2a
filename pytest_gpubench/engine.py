"""The engine without pytest, for scripts and tuners: `bench.measure`, `bench.compare` and `bench.do_bench`."""

import functools
import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from pytest_gpubench.bench.arguments import kept_arguments
from pytest_gpubench.bench.plan import is_enforced, one_at_a_time
from pytest_gpubench.bench.request import MeasureRequest
from pytest_gpubench.bounds import argument, at_least
from pytest_gpubench.errors import BadRequest, MeasurementError, NotMeasured
from pytest_gpubench.fixture import GpuBench, keywords_of
from pytest_gpubench.gpu.device import required_device
from pytest_gpubench.gpu.lock import ignore
from pytest_gpubench.gpu.turn import turn_at
from pytest_gpubench.results.model import Comparison, Timing
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.settings import MARKER_SETTINGS, ROWS, Resolver, environment_settings
from pytest_gpubench.spelling import hint
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.units import repr_of
from pytest_gpubench.verdict.limits import BY_NAME, NAMES, Limits

_OF_THE_DEVICE = {"device", "require_gpu", "lock_timeout", "lock_folder"}
IN_SCRIPTS = _OF_THE_DEVICE | {name for name in MARKER_SETTINGS if not name.startswith(("given", "counters"))}
"""The settings that a call outside of a test may choose."""
ONLY_IN_TESTS = (ROWS.keys() | {name for name in NAMES if {"baseline", "counters"} & BY_NAME[name].needed}) - IN_SCRIPTS
RETURN_MODES: Mapping[str, Callable[[Sequence[float]], Any]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "all": list,
}
"""The statistics of do_bench, by their `return_mode`."""


def measure(function: Callable[..., object], /, *args: object, **chosen: Any) -> Timing:
    """Measure `function(*args)` outside of pytest, as `gpu_bench.measure` does in a test.

    chosen: the keywords of `gpu_bench.measure` (kwargs, setup, backward, ...), limits of the `perf` mark
    (max_time_us, ...) and settings (reps, timer, device, ...), which are otherwise read from GPU_BENCH_* variables.

    Raises what `gpu_bench.measure` raises, and warns by Python's warnings of what a test would warn of.
    """
    if "min_speedup" in chosen:
        raise BadRequest("bench.measure(min_speedup=...) compares nothing: call bench.compare(candidate, reference)")
    return _call("measure", (function, args), chosen)  # type: ignore[no-any-return]


def compare(
    candidate: Callable[..., object] | Mapping[str, Callable[..., object]],
    reference: Callable[..., object],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    **chosen: Any,
) -> Comparison:
    """Check and time a candidate against a reference outside of pytest, as `gpu_bench.compare` does in a test.

    chosen: as in `measure`, with the keywords of `gpu_bench.compare`.
    """
    return _call("compare", (candidate, reference, args, kwargs), chosen)  # type: ignore[no-any-return]


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Return the time of `fn()` in milliseconds, with the arguments and results of triton.testing.do_bench.

    warmup: ignored; calls are warmed up until kernels and time are steady.
    rep: the milliseconds after which no more reps are taken; fewer are taken where the median is precise before.
    grad_to_none: tensors whose gradients are dropped before each rep.
    quantiles: a list of those to return instead; of a single one a number is returned.
    return_mode: the statistic to return; "all" returns a list.

    Raises MeasurementError where no number can be given; whatever `fn` raises goes through.
    """
    if return_mode not in RETURN_MODES:
        raise BadRequest(f"do_bench(return_mode={return_mode!r}) is not known: it must be {', '.join(RETURN_MODES)}")
    given: Iterable[Any] = quantiles if isinstance(quantiles, Iterable) else (math.nan,)
    if quantiles is not None and not all(isinstance(share, Real) and 0 <= float(share) <= 1 for share in given):
        told = f"do_bench(quantiles={repr_of(quantiles)}) is not valid"
        raise BadRequest(f"{told}: it must be a list of numbers from 0 to 1, as in [0.5]")
    budget_s = max(argument("do_bench(rep={})", rep, at_least(0)), 1.0) / 1e3
    settings = replace(environment_settings(), budget_s=budget_s)
    device = required_device(settings.device, settings.require_gpu)
    setup = None if grad_to_none is None else functools.partial(drop_gradients, grad_to_none)
    call = make_call(fn, kept_arguments([fn], (), None, setup))
    request = MeasureRequest(settings, device, Limits(), (), {call.label: call})
    with turn_at(device, settings, "bench.do_bench"), one_at_a_time("do_bench", may_nest=True):
        timing = request.measure(ignore).result
    if timing.unmeasured is not None:
        raise NotMeasured(f"do_bench has no number for {timing.label!r}: {timing.unmeasured}")
    return statistic(timing.samples_us, quantiles, return_mode)


def statistic(samples_us: Sequence[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    """Return what do_bench returns of samples, in milliseconds."""
    samples_ms = [us / 1e3 for us in samples_us]
    if quantiles is None:
        return RETURN_MODES[return_mode](samples_ms)
    ascending, found = sorted(samples_ms), []
    for share in quantiles:  # interpolated between samples, as triton.testing does
        place = share * (len(ascending) - 1)
        below, above = ascending[math.floor(place)], ascending[math.ceil(place)]
        found.append(below + (above - below) * (place % 1))
    return found[0] if len(found) == 1 else found


def drop_gradients(tensors: Sequence[Any]) -> None:
    """Drop the gradients of tensors."""
    for each in tensors:
        each.grad = None


def _call(method: str, given: tuple[object, ...], chosen: dict[str, Any]) -> Any:
    """Make a call of `gpu_bench` in a test of its own, and raise or warn as that test would."""
    test = _test_of(method, chosen)
    assert test.device is not None
    with turn_at(test.device, test.settings, f"bench.{method}"):
        result = getattr(GpuBench(lambda: test, Resolver(test.settings, frozenset())), method)(*given, **chosen)
    if sentence := test.why_failed():
        raise MeasurementError(sentence)
    if test.limits and not is_enforced(test.settings, test.device):
        test.warn(f"limits are not enforced on a CPU that nobody asked for: for {test.limits}, give device='cpu'")
    for sentence in test.warnings:
        warnings.warn(sentence, stacklevel=3)
    return result


def _test_of(method: str, chosen: dict[str, Any]) -> CurrentTest:
    """Return a test with the chosen limits and settings, which are taken out of what was chosen."""
    if refused := sorted(ONLY_IN_TESTS & chosen.keys()):
        raise BadRequest(f"bench.{method}({refused[0]}=...) is not known: {refused[0]} is for runs of pytest")
    legal = [*keywords_of(method), *NAMES, *sorted(IN_SCRIPTS), "kwargs"]
    if unknown := sorted(chosen.keys() - set(legal)):
        raise TypeError(f"bench.{method}() takes no {unknown[0]}={hint('keyword', unknown[0], legal, '=')}")
    limits = {name: chosen.pop(name) for name in NAMES if name in chosen}
    values = {name: value for name in IN_SCRIPTS & chosen.keys() if (value := chosen.pop(name)) is not None}
    run = Resolver(environment_settings(), frozenset())
    settings = run.override(run.run, values, f"bench.{method}({{}}=...)")
    device = required_device(settings.device, settings.require_gpu)
    return CurrentTest(f"bench.{method}", settings, Limits(**limits), device, phase="call")
