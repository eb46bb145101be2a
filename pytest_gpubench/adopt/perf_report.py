"""The cases of `triton.testing.perf_report`: one for each x value, whose providers are measured or compared."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import is_tensor
from torch.utils._pytree import tree_leaves

from pytest_gpubench.adopt.timers import Timed, TimedHandler, adopting
from pytest_gpubench.correctness import Tolerance, compare_outputs
from pytest_gpubench.errors import BadRequest, NotMeasured
from pytest_gpubench.fixture import GpuBench
from pytest_gpubench.units import repr_of, safe_line, shortened
from pytest_gpubench.verdict.limits import Limits

PERF_REPORT = "triton.testing:Mark"
CASE_SEED = 0
"""The seed before each provider is called: they draw the same inputs, so that their outputs can be compared."""
LIKE_A_REFERENCE = re.compile(r"(?<![a-z])(torch|pytorch|reference|ref|naive|eager)(?![a-z])", re.IGNORECASE)
CAPTURED_US = 1e3
"""The time that a provider is told while its call is only captured."""
LONGEST_REASON = 160
ALLOW_MORE = "rtol= and atol= in a line of gpu_bench_limits allow more"
Warn = Callable[[str], None]


@dataclass(frozen=True)
class ReportCase:
    """One x value of a benchmark."""

    name: str
    function: Callable[..., object]
    keywords: Mapping[str, Any]
    params: Mapping[str, object]
    line_arg: str
    providers: Mapping[str, Any]
    """The values of `line_arg`, by name."""

    def call(self, name: str) -> object:
        """Call the function for a provider."""
        return self.function(**self.keywords, **{self.line_arg: self.providers[name]})

    def capture(self, name: str, warn: Warn) -> Timed | str:
        """Return what the function gives to a timer for a provider, the last if it times several; why, if nothing.

        It is called once, so that an error which the script catches, out of memory mostly, is raised there.
        """
        captured: list[Timed] = []
        reason = "it calls no timer that is known"

        def keep(timed: Timed) -> Sequence[float]:
            nonlocal reason
            try:
                _result(timed)
            except Exception as error:
                reason = shortened(safe_line(f"{type(error).__name__}: {error}"), LONGEST_REASON)
                raise
            captured.append(timed)
            return [CAPTURED_US]

        random.seed(CASE_SEED)
        torch.manual_seed(CASE_SEED)
        with adopting(keep), same_stream():
            self.call(name)
        if not captured:
            warn(f"provider {name!r} is not measured: {reason}")
            return reason
        if len(captured) > 1:
            warn(f"provider {name!r} times {len(captured)} calls: the last one is measured")
        return replace(captured[-1], label=name)

    def measure(self, bench: GpuBench, limits: Limits, asked: Mapping[str, Any], warn: Warn) -> None:
        """Compare its providers with the reference, and measure alone those that cannot be compared.

        asked: keywords of `compare`, and `reference`: a provider, or None for no comparison. Without a reference that
        is asked for, or a limit that needs one, providers whose outputs differ from its are measured alone.

        Raises NotMeasured where nothing is timed, and what `compare` raises.
        """
        found = {name: self.capture(name, warn) for name in self.providers}
        timed = {name: each for name, each in found.items() if isinstance(each, Timed)}
        if not timed:
            raise NotMeasured(
                f"{self.name} could not be taken over: {next(iter(found.values()), 'it has no provider')}"
            )
        keywords = dict(asked)
        chosen = keywords.pop("reference", None)
        is_compared = len(timed) > 1 and asked.get("reference", "") is not None
        reference = reference_of(list(timed), chosen) if is_compared else None
        compared = []
        if reference is not None:
            # a limit, or a reference that is asked for, wants these compared whether they agree or not
            wanted = {name for name in timed if name != reference}
            if isinstance(limits.min_speedup, Mapping):
                wanted &= set(limits.min_speedup)
            elif "reference" not in asked and not limits.need("reference"):
                wanted = set()
            tolerance = Tolerance(keywords.get("rtol"), keywords.get("atol"), keywords.get("equal_nan", False))
            for name in timed:
                if name in wanted or (name != reference and _agrees(timed[name], timed[reference], tolerance, warn)):
                    compared.append(name)
        for name in [name for name in timed if name not in compared and (name != reference or not compared)]:
            measure_timed(bench, timed[name])
        if reference is not None and compared:
            functions = {name: timed[name].function for name in compared}
            setups = [each.setup for each in timed.values() if each.setup is not None]
            setup = (lambda: [each() for each in setups] and None) if setups else None
            keywords |= {"names": (reference,), "vary": False}  # closures hold all inputs
            bench.compare(functions, timed[reference].function, setup=setup, **keywords)


@contextmanager
def same_stream() -> Iterator[None]:
    """Set the current stream back at the end, and wait for what was launched: tutorial 02 changes the stream."""
    if not torch.cuda.is_available():
        yield
        return
    with torch.cuda.stream(torch.cuda.current_stream()):
        yield
        torch.cuda.synchronize()


def cases_of(name: str, mark: Any) -> Iterator[ReportCase]:
    """Yield the cases of a `perf_report` object."""
    several = isinstance(mark.benchmarks, (list, tuple))
    for bench in mark.benchmarks if several else [mark.benchmarks]:
        lines = zip(bench.line_vals, bench.line_names, strict=False)
        providers = {value if isinstance(value, str) else str(name): value for value, name in lines}
        for x in bench.x_vals:
            values = x if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            swept = dict(zip(bench.x_names, values, strict=True))
            params = swept if isinstance(x, (list, tuple)) else {"=".join(bench.x_names): x}
            shown = "-".join(map(str, params.values()))
            yield ReportCase(
                f"{name}[{f'{bench.plot_name}-' if several else ''}{shown}]",
                mark.fn,
                {**swept, **bench.args},
                {**params, **bench.args, **({"plot": bench.plot_name} if several else {})},
                bench.line_arg,
                providers,
            )


def reference_of(names: Sequence[str], chosen: str | None) -> str:
    """Return the chosen provider; for None the first whose name says that it is a reference, or the first."""
    if chosen is None:
        return next((name for name in names if LIKE_A_REFERENCE.search(name)), names[0])
    if chosen not in names:
        raise BadRequest(f"reference={repr_of(chosen)} is no provider: they are {', '.join(names)}")
    return chosen


def _agrees(candidate: Timed, reference: Timed, tolerance: Tolerance, warn: Warn) -> bool:
    """Tell whether two providers return the same; warn where they do not."""
    pair = f"{candidate.label!r} is measured without a ratio to {reference.label!r}:"
    results = {each.label: _result(each) for each in (candidate, reference)}
    empty = [repr(name) for name, result in results.items() if not any(map(is_tensor, tree_leaves(result)))]
    if empty:
        warn(f"{pair} no tensor to compare is returned by {' and '.join(empty)}")
        return False
    differences = compare_outputs(results[candidate.label], results[reference.label], tolerance, briefly=True)
    wrong = next((each for each in differences if not each.passed), None)
    if wrong is not None:
        problem = wrong.problem or f"{wrong.mismatched} of {wrong.elements} elements; {ALLOW_MORE}"
        warn(f"{pair} their outputs differ, {wrong.name}: {problem}")
    return wrong is None


def _result(timed: Timed) -> object:
    if timed.setup is not None:
        timed.setup()
    return timed.function()


def measuring(bench: GpuBench) -> TimedHandler:
    """Return a handler that measures, each call by a name of its own: one that came before gets a number."""
    seen: Counter[str] = Counter()

    def measure(timed: Timed) -> Sequence[float]:
        seen[timed.label] += 1
        again = seen[timed.label]
        return measure_timed(bench, timed if again == 1 else replace(timed, label=f"{timed.label} #{again}"))

    return measure


def measure_timed(bench: GpuBench, timed: Timed) -> Sequence[float]:
    """Measure what was given to a timer; return the samples, NaN where it is not timed."""
    timing = bench.measure(timed.function, timed.args, timed.kwargs, setup=timed.setup, label=timed.label or None)
    return timing.samples_us if timing.measured else [float("nan")]
