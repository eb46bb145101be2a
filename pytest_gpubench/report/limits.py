"""Limits as the tables and the page write them."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from pytest_gpubench.limits import limit_for_device, memory_size, regression_tolerance
from pytest_gpubench.results.model import Measurement, Timing, Verdict
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.units import count, format_bytes, format_share, round_to_digits


def limit_text(verdict: Verdict, item: Measurement) -> str:
    """Return a limit as a table writes it: `<= 40 us (H200)`, with the measured value where no other column has it."""
    if verdict.kind not in TEXTS:
        return verdict.limit
    try:
        text = TEXTS[verdict.kind](_literal(verdict.asked), item)
        return f"{verdict.found} {text}" if verdict.found else text
    except Exception:  # a limit that another version has written, or a stranger
        return verdict.limit


def _literal(asked: str) -> Any:
    """Return the value of a limit; its own text where that is no literal of Python."""
    try:
        return ast.literal_eval(asked)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return asked


def _speedup(value: Any, item: Measurement) -> str:
    if not isinstance(value, Mapping):
        return f">= {value:.10g}x"
    label = item.timing.label
    return f">= {value[label]:.10g}x" if label in value else f"only {', '.join(value)}"


def _time(value: Any, item: Measurement) -> str:
    if not isinstance(value, Mapping):
        return f"<= {value:.10g} us"
    wanted = limit_for_device(value, item.timing.device)
    names = [name for name in value if limit_for_device({name: value[name]}, item.timing.device) == wanted]
    return f"only {', '.join(value)}" if wanted is None else f"<= {wanted:.10g} us ({max(names, key=len)})"


def _spread(value: Any, item: Measurement) -> str:
    found = f"{format_share(item.timing.rel_std)} " if item.timing.reps > 1 else ""
    return f"std {found}<= {100 * value:.4g} %"


def _rate(unit: str, rate_of: Callable[[Timing], float | None]) -> Callable[[Any, Measurement], str]:
    def text(value: Any, item: Measurement) -> str:
        found = rate_of(item.timing) if item.timing.measured else None
        return f"{'' if found is None else f'{round_to_digits(found, 3)} '}>= {value:.10g} {unit}"

    return text


def _regression(value: Any, item: Measurement) -> str:
    tolerance = parse_tolerance(value) if isinstance(value, str) else regression_tolerance(value)
    metric = tolerance.metric if item.change is None else item.change.metric
    if tolerance.margin is None:
        return f"{metric} <= +{tolerance.absolute_us:.10g} us"
    if metric == "speedup":
        return f"speedup >= -{100 - 100 / (1 + tolerance.margin):.2g} %"
    return f"{metric} <= +{100 * tolerance.margin:.10g} %"


def _kernel_count(value: Any, item: Measurement) -> str:
    launched = sum(kernel.launches for kernel in item.timing.kernels if kernel.kind == "kernel")
    return f"{f'{launched} ' if item.timing.kernels else ''}<= {count(value, 'kernel')}"


TEXTS: Mapping[str, Callable[[Any, Measurement], str]] = {
    "min_speedup": _speedup,
    "max_time_us": _time,
    "max_rel_std": _spread,
    "min_gbps": _rate("GB/s", lambda timing: timing.gbps),
    "min_tflops": _rate("TFLOP/s", lambda timing: timing.tflops),
    "min_peak_fraction": lambda value, item: f">= {100 * value:.4g} % of peak",
    "max_regression": _regression,
    "compare_fail": _regression,
    "max_kernels": _kernel_count,
    "forbid": lambda value, item: f"no {value}",
    "max_memory": lambda value, item: f"<= {format_bytes(memory_size(value))}",
    "kernels": lambda value, item: f"kernels {value if isinstance(value, str) else ', '.join(value)}",
    "deterministic": lambda value, item: "deterministic",
}
"""The text of each kind of limit."""


def measured_text(verdict: Verdict, timing: Timing) -> str:
    """Return the measured value from the verdict's sentence: `1.667x [1.650, 1.684]`."""
    if verdict.found:
        return verdict.found
    found, _, wanted = verdict.sentence.partition(", wanted")
    found = found.removeprefix(timing.label).strip(" :")
    return found.rpartition(": ")[2] if wanted else found


def number_for(asked: str, timing: Timing) -> float | None:
    """Return the number of a limit, of one per candidate or per GPU the one for this timing; None where it has none."""
    try:
        value = _literal(asked)
        if isinstance(value, Mapping):
            value = value.get(timing.label, limit_for_device(value, timing.device))
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except Exception:  # a limit that another version has written, or a stranger
        return None
