"""The limits that a test may set on its measurements."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from pytest_gpubench.bounds import MOST_COUNTED, positive_number, whole_number
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.stats.tolerance import RegressionTolerance, parse_tolerance
from pytest_gpubench.units import BYTES_PER_UNIT, repr_of

__tracebackhide__ = True

FORBIDDABLE = ("memcpy", "memset", "sync", "alloc")
DECIMAL_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS = {unit.upper(): (unit, size) for unit, size in (BYTES_PER_UNIT | DECIMAL_UNITS).items()}


ON_MEDIAN = ("max_time_us", "min_gbps", "min_tflops", "min_peak_fraction")
"""The limits that the median of the reps decides."""
OF_ONE_FUNCTION = ("max_rel_std", *ON_MEDIAN)
ON_SPEED = ("min_speedup", *ON_MEDIAN)
BROKEN_BY_NOISE = ("min_speedup", *OF_ONE_FUNCTION)
"""The limits that noise can break, each judgement with a probability of alpha; the others are exact."""


def check_flags(method: str, **flags: object) -> None:
    """Raise BadRequest for an argument that is neither True nor False."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise BadRequest(f"{method}({name}={repr_of(value)}) is not valid: it must be True or False")


def number_by_name(named: str, example: str) -> Callable[[object], float | Mapping[str, float]]:
    """Return a check that accepts a positive number, or a mapping of names of such things to positive numbers."""

    def check(value: object) -> float | Mapping[str, float]:
        if not isinstance(value, Mapping):
            return positive_number(value)
        if not value or not all(isinstance(name, str) and name for name in value):
            raise ValueError(f"a mapping must name {named}, as in {example}")
        return {name: positive_number(limit) for name, limit in value.items()}

    return check


def regression_tolerance(value: object) -> RegressionTolerance:
    """Return by how much a test may be slower than in a saved run: a share of its speedup, or a text that says it."""
    if isinstance(value, str):
        return parse_tolerance(value)
    return RegressionTolerance("speedup", margin=fraction_below_one(value))


def forbidden_things(value: object) -> tuple[str, ...]:
    """Return the forbidden operations, each once; raise ValueError for a value that is not legal."""
    legal = ", ".join(FORBIDDABLE)
    found = texts_in(value, f"of {legal}, as in ('memcpy', 'sync')")
    unknown = [each for each in found if each not in FORBIDDABLE]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not known; legal are {legal}")
    return found


def name_patterns(value: object) -> tuple[str, ...]:
    """Return patterns of kernel names, each once, or raise ValueError saying what is wrong with them."""
    return texts_in(value, "with wildcards, as in ('*softmax*',)")


def texts_in(value: object, which: str) -> tuple[str, ...]:
    """Return one text or several as a tuple, those of a set in the order of the alphabet, or raise ValueError."""
    several = isinstance(value, (Sequence, Set)) and not isinstance(value, (bytes, bytearray))
    found = (value,) if isinstance(value, str) else tuple(value) if several else ()  # type: ignore[arg-type]
    if not found or not all(isinstance(each, str) and each for each in found):
        raise ValueError(f"it must be a text or several, {which}")
    return tuple(sorted(found) if isinstance(value, Set) else dict.fromkeys(found))


def as_written(value: object) -> str:
    """Return a limit as a test may write it, the same in every process: sets have no order."""
    return repr(tuple(sorted(value)) if isinstance(value, Set) else value)


def memory_size(value: object) -> int:
    """Return a size in bytes from a number of them or a text with a unit, or raise ValueError saying what is wrong."""
    if isinstance(value, Integral):
        return whole_number(value, least=0)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", value) if isinstance(value, str) else None
    if isinstance(value, str) and value.strip().isdigit():
        raise ValueError(f"it needs a unit, as in {value.strip()}B or {value.strip()}GiB")
    if found is None or found.group(2).upper() not in UNITS:
        legal = ", ".join(unit for unit, _ in UNITS.values())
        raise ValueError(f"it must be a whole number of bytes, or a text such as '1GiB'; units are {legal}")
    size = float(found.group(1)) * UNITS[found.group(2).upper()][1]
    if size > MOST_COUNTED:
        raise ValueError("it must be at most 2**63 bytes")
    return int(size)


def plain(value: object) -> object:
    """Return a limit with Python's own numbers, which files hold and messages show, in place of numpy's, say."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def yes_or_no(value: object) -> bool:
    """Return a bool, or raise ValueError."""
    if not isinstance(value, bool):
        raise ValueError("it must be True or False")
    return value


def fraction_limit(value: object) -> float:
    """Return a number above 0 and at most 1, or raise ValueError saying what is wrong with it."""
    number = positive_number(value)
    if number > 1:
        raise ValueError(f"that is {100 * number:g} %, and a part of the peak is at most 1: {meant(number, 80)}")
    return number


def fraction_below_one(value: object) -> float:
    """Return a number above 0 and below 1, or raise ValueError saying what is wrong with it."""
    number = positive_number(value)
    if number >= 1:
        raise ValueError(f"that is {100 * number:g} %, and it must be a fraction below 1: {meant(number, 5)}")
    return number


def meant(given: float, example: float) -> str:
    """Return the fraction that somebody who gave a percentage meant; that of the example where it was none either."""
    percent = given if given < 100 else example
    return f"{percent / 100:g} is {percent:g} %"


def limit(check: Callable[[object], Any], help: str) -> Any:
    """Declare a limit: its default is None, `check` refuses impossible values with ValueError."""
    return field(default=None, metadata={"check": check, "help": help})


@dataclass(frozen=True)
class Limits:
    """The limits on each of a test's measurements; None is no limit."""

    max_rel_std: float | None = limit(
        fraction_below_one, "standard deviation of the reps over their mean, at most: 0.02 is 2 %"
    )
    max_time_us: float | Mapping[str, float] | None = limit(
        number_by_name("GPUs", "{'H200': 40, 'A100': 75}"),
        "median time of one call in microseconds, at most: a number, or one per GPU name {'H200': 40}",
    )

    min_speedup: float | Mapping[str, float] | None = limit(
        number_by_name("variants", "{'triton': 1.5, 'compiled': 1.2}"),
        "the reference's time over the candidate's in gpu_bench.compare, at least: a number, or one per variant",
    )
    min_gbps: float | None = limit(
        positive_number, "10^9 bytes a second, at least: of bytes=, or of the bytes of inputs and outputs"
    )
    min_tflops: float | None = limit(
        positive_number, "10^12 operations a second, at least: of flops=, or as torch counts those of the reference"
    )
    min_peak_fraction: float | None = limit(
        fraction_limit, "of what this GPU was measured to reach in moving memory or multiplying, at least: 0.8 is 80 %"
    )
    max_regression: float | str | None = limit(
        regression_tolerance,
        "how much slower than in the saved run of --gpu-bench-compare, at most: 0.05 is 5 % of the speedup, or of the "
        "median time where there is no reference; or as --gpu-bench-compare-fail, 'median:5%'",
    )
    max_kernels: int | None = limit(
        whole_number, "kernels that one call launches, at most; copies and memsets are none: forbid them"
    )
    forbid: str | Iterable[str] | None = limit(
        forbidden_things,
        "what a call must not do, as in ('memcpy', 'sync'): memcpy and memset are copies and fills of memory, those "
        "of torch's kernels too; sync is a host that waits for the GPU; alloc is GPU memory taken, outputs included",
    )
    max_memory: int | str | None = limit(
        memory_size,
        "GPU memory that a call takes at once above what is in use before it, outputs included, at most: bytes, or a "
        "text as in '1GiB'; none of it may be kept after each call",
    )
    kernels: str | Iterable[str] | None = limit(
        name_patterns, "patterns that names of kernels must match, full or short, as in ('*softmax*',)"
    )
    deterministic: bool | None = limit(yes_or_no, "whether outputs must be the same bits in every call")

    def __post_init__(self) -> None:
        for row in fields(self):
            value = getattr(self, row.name)
            if value is None:
                continue
            try:
                row.metadata["check"](value)
                object.__setattr__(self, row.name, plain(value))
            except ValueError as error:
                raise BadRequest(f"perf({row.name}={repr_of(value)}): {error}") from None

    def __bool__(self) -> bool:
        return any(getattr(self, row.name) is not None for row in fields(self))

    def __str__(self) -> str:
        asked = {row.name: getattr(self, row.name) for row in fields(self)}
        return ", ".join(f"{name}={as_written(value)}" for name, value in asked.items() if value is not None)


def limit_for_device(most: float | Mapping[str, float], device: str) -> float | None:
    """Return the limit whose GPU name is a whole word of the device's, the longest if several are; None if none is."""
    if not isinstance(most, Mapping):
        return most
    named = [name for name in most if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", device, re.IGNORECASE)]
    return most[max(named, key=len)] if named else None
