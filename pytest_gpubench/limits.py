"""Values of limits, checked."""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from numbers import Integral, Real
from typing import Any, TypeVar

from pytest_gpubench.bounds import MOST_COUNTED, positive_number, whole_number
from pytest_gpubench.units import BYTES_PER_UNIT

T = TypeVar("T")

FORBIDDABLE = ("memcpy", "memset", "sync", "alloc")
DECIMAL_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
WILDCARDS = frozenset("*?[")
"""The characters of a name that make it a pattern."""
SIZE_UNITS = {unit.upper(): (unit, size) for unit, size in (BYTES_PER_UNIT | DECIMAL_UNITS).items()}


def number_by_name(named: str, example: str) -> Callable[[object], float | Mapping[str, float]]:
    """Return a check that accepts a positive number, or a mapping of names of such things to positive numbers."""

    def check(value: object) -> float | Mapping[str, float]:
        if not isinstance(value, (Mapping, Real)):
            raise ValueError(f"it must be a number, or one for each of several {named}, as in {example}")
        if not isinstance(value, Mapping):
            return positive_number(value)
        if not value or not all(isinstance(name, str) and name for name in value):
            raise ValueError(f"a mapping must name {named}, as in {example}")
        return {name: positive_number(limit) for name, limit in value.items()}

    return check


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
    if found is None or found.group(2).upper() not in SIZE_UNITS:
        legal = ", ".join(unit for unit, _ in SIZE_UNITS.values())
        raise ValueError(f"it must be a whole number of bytes, or a text such as '1GiB'; units are {legal}")
    size = float(found.group(1)) * SIZE_UNITS[found.group(2).upper()][1]
    if size > MOST_COUNTED:
        raise ValueError("it must be at most 2**63 bytes")
    return int(size)


def plain_limit(value: object) -> object:
    """Return a limit with Python's own numbers, which files hold and messages show, in place of numpy's, say."""
    if isinstance(value, Mapping):
        return {name: plain_limit(each) for name, each in value.items()}
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


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


def by_gpu_or_kernel(value: object, read: Callable[[object], T], example: object) -> T | Mapping[str, Any]:
    """Return a limit in the form in which it is judged, or a mapping of such limits; raise ValueError.

    The names of a mapping are patterns of kernels' names, each with a wildcard, or names of GPUs, which have none; a
    GPU may have a mapping of patterns.
    """
    if not isinstance(value, Mapping):
        return read(value)
    names = f"kernels, as in {{'*softmax*': {example!r}}}, or GPUs, as in {{'H200': {example!r}}}"
    if not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"a mapping must name {names}")
    if len(set(map(is_pattern, value))) > 1:
        raise ValueError(f"a mapping must name {names}, not both: a name with a wildcard is that of kernels")
    if is_pattern(next(iter(value))):
        return {name: read(limit) for name, limit in value.items()}
    if any(isinstance(limit, Mapping) and not all(map(is_pattern, limit)) for limit in value.values()):
        raise ValueError(f"what a GPU has must be a limit, or one for each kernel, as in {{'*softmax*': {example!r}}}")
    return {name: by_gpu_or_kernel(limit, read, example) for name, limit in value.items()}


def is_pattern(name: object) -> bool:
    """Tell whether a name has a wildcard."""
    return isinstance(name, str) and bool(WILDCARDS & set(name))


def limits_by_pattern(limit: T | Mapping[str, Any], device: str) -> Mapping[str, T] | None:
    """Return the limits on a GPU by the pattern of their kernels; None if the GPU is none of those that are named.

    limit: as `by_gpu_or_kernel` returns it.
    """
    if isinstance(limit, Mapping) and not is_pattern(next(iter(limit))):
        found = limit_for_device(limit, device)
        return None if found is None else limits_by_pattern(found, device)
    return limit if isinstance(limit, Mapping) else {"*": limit}


def limit_for_device(most: T | Mapping[str, T], device: str) -> T | None:
    """Return the limit whose GPU name is a whole word of the device's, the longest if several are; None if none is."""
    if not isinstance(most, Mapping):
        return most
    named = [name for name in most if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", device, re.IGNORECASE)]
    return most[max(named, key=len)] if named else None
