"""Numbers and their units, as text."""

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

MICROSECONDS_PER_UNIT = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
DECIMAL_PREFIXES = ("", "k", "M", "G", "T", "P")
BYTES_PER_UNIT = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
LONGEST_REPR = 300
MOST_DIGITS = 8
MOST_TOLD = 9.0
"""The largest share that is a number to a reader: ten times as long."""
COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
CI_COMMAND = re.compile(r"^:(?=:)|#(?=#\[|#vso\[)")
"""The commands of GitHub Actions and Azure Pipelines: `::` at the start of a line, `##[` anywhere."""


def round_to_digits(value: float, digits: int, mark: str = "") -> str:
    """Write a number with so many significant digits, never in scientific notation; mark: between thousands."""
    if value == 0 or not math.isfinite(value):
        return str(value) if value else "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:{mark}.{decimals}f}"


def choose_time_unit(values_us: Iterable[float]) -> str:
    """Return the largest of ns, us, ms and s in which the middle value, as it is printed, is at least 1."""
    finite = [abs(value) for value in values_us if math.isfinite(value) and value]
    if not finite:
        return "us"
    middle = sorted(finite)[len(finite) // 2]
    for unit in ("s", "ms", "us"):
        if float(f"{middle / MICROSECONDS_PER_UNIT[unit]:.3e}") >= 1:
            return unit
    return "ns"


def format_time(value_us: float, unit: str | None = None, digits: int = 4) -> str:
    """Write a time given in microseconds with its unit, chosen to fit where None."""
    unit = unit or choose_time_unit([value_us])
    return f"{round_to_digits(value_us / MICROSECONDS_PER_UNIT[unit], digits)} {unit}"


def format_share(fraction: float, digits: int = 2) -> str:
    """Write a fraction as per cent."""
    return f"{round_to_digits(100 * fraction, digits)} %"


def share_or_more(share: float) -> str:
    """Write the smallest change that can be told, `2.5 % or more`; one that leaves next to nothing to tell in words."""
    return f"{format_share(share)} or more" if share < MOST_TOLD else "nothing below a factor of 10"


def format_bytes(size: int, beside: int | None = None) -> str:
    """Write a size, to four digits, in the largest binary unit in which it is at least 1.

    beside: another size; where both would read the same, though they differ, this one is written in bytes.
    """
    if beside not in (None, size) and format_bytes(size) == format_bytes(beside):
        return f"{size:,} B"
    fitting = [unit for unit, scale in BYTES_PER_UNIT.items() if float(f"{size / scale:.3e}") >= 1]
    unit = fitting[-1] if fitting else "B"
    rounded = float(f"{size / BYTES_PER_UNIT[unit]:.3e}")
    if rounded >= 1024 and unit != "TiB":  # only rounding made it so: 1023.9 KiB is 1 MiB
        return format_bytes(1024 * BYTES_PER_UNIT[unit])
    return f"{rounded:.10g} {unit}"


def format_decimal(number: float, unit: str, digits: int = 3) -> str:
    """Write a number in the largest decimal multiple of its unit in which it is at least 1."""
    place = 0 if number < 1 else int(math.log10(float(f"{number:.{digits - 1}e}")) / 3 + 1e-9)  # as it is printed
    place = min(place, len(DECIMAL_PREFIXES) - 1)
    return f"{round_to_digits(number / 1000**place, digits)} {DECIMAL_PREFIXES[place]}{unit}"


def grouped(value: float, digits: int = 4) -> str:
    """Write a number with so many digits, its thousands apart: 2,310."""
    return round_to_digits(value, digits, ",")


def printable(text: str) -> str:
    """Return a text with what cannot be printed, control characters and lone surrogates, written as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def safe_line(line: str, coloured: bool = False) -> str:
    """Return a line for a terminal or a CI log, in which foreign text is no escape sequence and no command of CI's.

    coloured: whether colours stay.
    """
    parts = COLOUR.split(line) if coloured else [line]  # every second one is a colour
    shown = "".join(part if at % 2 else printable(part) for at, part in enumerate(parts))
    indent = len(shown) - len(shown.lstrip())
    return shown[:indent] + CI_COMMAND.sub(lambda found: f"\\x{ord(found[0]):02x}", shown[indent:])


def safe_lines(text: str, coloured: bool = False) -> str:
    """Return lines as `safe_line` does each."""
    return "\n".join(safe_line(line, coloured) for line in text.split("\n"))


def shortened(text: str, most: int) -> str:
    """Return a text with its end left out where it is longer than that."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shortened_inside(text: str, most: int, mark: str = "…") -> str:
    """Return a text with its middle left out where it is longer than that: parameters tell tests apart at the end."""
    end = most // 3
    return text if len(text) <= most else f"{text[: most - end - len(mark)]}{mark}{text[-end:]}"


def repr_of(value: object) -> str:
    """Return the `repr` of a value that a message names, cut where it is long; foreign code may raise in it."""
    try:
        return shortened(printable(repr(value)), LONGEST_REPR)
    except Exception:
        return f"<{type(value).__name__}>"


def name_of(function: Callable[..., object]) -> str:
    """Return the name a function is known by."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", None) or type(function).__name__


def numbered(names: Iterable[str], mark: str) -> list[str]:
    """Return names that are all different: those used before get a mark and a number, from 2 on."""
    uses: Counter[str] = Counter()
    different: dict[str, None] = {}
    for name in names:
        unused = name
        while unused in different:
            uses[name] += 1
            unused = f"{name}{mark}{uses[name] + 1}"
        different[unused] = None
    return list(different)


def first_few(texts: Sequence[str], most: int) -> str:
    """Return the first of some texts, printable, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(map(printable, texts[:most])) + more


def bracketed(ends: Iterable[str]) -> str:
    """Return the ends of an interval after a space, ` [1.650, 1.684]`; nothing where there are none."""
    inside = ", ".join(ends)
    return f" [{inside}]" if inside else ""


def with_ends(
    value: float,
    ends: Iterable[float] | None,
    limit: float,
    write: Callable[[float, int], str] = round_to_digits,
    digits: int = 4,
    unit: str = "",
) -> str:
    """Return a number with its unit and the ends of its interval: `10.50 us [6.000, 15.00]`.

    digits: so many, or more where it takes more to see on which side of the limit the ends are, or without them it.
    """
    ends = tuple(ends or ())
    beside = [limit if math.isclose(end, limit) else end for end in ends or [value]]  # no digits tell rounding

    def are_enough(digits: int) -> bool:
        rounded = ((end, float(f"{end:.{digits - 1}e}")) for end in beside)
        return all((told > limit) - (told < limit) == (end > limit) - (end < limit) for end, told in rounded)

    digits = next(filter(are_enough, range(digits, MOST_DIGITS)), MOST_DIGITS)
    return write(value, digits) + unit + bracketed(write(end, digits) for end in ends)


def ratio_text(ratio: float, ends: Iterable[float] | None = None, digits: int = 4, limit: float = math.nan) -> str:
    """Return a ratio with the ends of its interval: `1.667x [1.650, 1.684]`; `-` for one to nothing."""
    return with_ends(ratio, ends, limit, digits=digits, unit="x") if math.isfinite(ratio) else "-"


def count(number: int, noun: str) -> str:
    """Write a number with its noun in the singular or plural."""
    plural = f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
