"""The arguments of an example: as text, by their sizes, and as the call to paste into the test."""

import re
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pytest_gpubench.timing.compilations import Compilations

ExampleKey = tuple[object, ...]


@dataclass(frozen=True)
class Example:
    """One example: the arguments that hypothesis called the test with."""

    text: str
    """As keywords: `shape=(1, 100), seed=3`."""
    sizes: Mapping[str, int]
    """Every whole number in it by name: `shape[1]`, `x.shape[0]`, `rows`."""
    opaque: tuple[object, ...] = ()
    """Values whose text may be the same as that of other values."""
    pasted: str = ""
    """As keywords of @example, where that is not its text: without making tensors where the test is defined."""
    compilations: Compilations | None = field(default=None, compare=False, repr=False)
    """The compilations of the whole search, which are still counted; None if they are not."""

    @classmethod
    def of(cls, drawn: Mapping[str, object], compilations: Compilations | None = None) -> "Example":
        """Return an example by what was drawn for it."""
        sizes: dict[str, int] = {}
        for name, value in drawn.items():
            sizes |= whole_numbers_in(name, value)
        text, pasted = (
            ", ".join(f"{name}={argument_text(value, pasted)}" for name, value in drawn.items())
            for pasted in (False, True)
        )
        opaque = tuple(value for value in drawn.values() if not is_told(value))
        return cls(text, sizes, opaque, pasted if pasted != text else "", compilations)

    @property
    def key(self) -> ExampleKey:
        """The key that it is remembered by: its text, and all that hypothesis has drawn for it so far.

        Where nothing was drawn, as for @example, its opaque arguments tell it apart; see `held`.
        """
        return (self.text, *(hypothesis_choices() or map(id, self.opaque)))

    @property
    def held(self) -> tuple[object, ...]:
        """Objects to keep as long as its key: their addresses must not become those of others."""
        return () if hypothesis_choices() else self.opaque


def hypothesis_choices() -> ExampleKey:
    """Return hypothesis's choices so far for the example that runs, whatever its text leaves out; else nothing."""
    control: Any = sys.modules.get("hypothesis.control")
    context = getattr(getattr(control, "_current_build_context", None), "value", None)
    drawn = getattr(getattr(context, "data", None), "choices", ())
    # 0.0 == -0.0 == 0 == False, and no nan is another
    return tuple((type(each), struct.pack("d", each) if isinstance(each, float) else each) for each in drawn)


def whole_numbers_in(name: str, value: Any) -> dict[str, int]:
    """Return the whole numbers in an argument by name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {name: value}
    with suppress(Exception):  # it has none, or something else of this name
        return whole_numbers_in(f"{name}.shape", tuple(value.shape))
    if not isinstance(value, (tuple, list)):
        return {}
    names = getattr(value, "_fields", None)
    parts = [(f"{name}.{names[index]}" if names else f"{name}[{index}]", part) for index, part in enumerate(value)]
    return {key: size for part_name, part in parts for key, size in whole_numbers_in(part_name, part).items()}


def argument_text(value: object, pasted: bool = False) -> str:
    """Return an argument as text, one that makes the same again as far as it can: tensors of our strategies as calls.

    pasted: for a decorator, where they are made later.
    """
    try:
        return _text_of(value, pasted)
    except Exception:  # foreign code may raise, and a tensor may have neither shape nor strides
        return f"<{type(value).__name__}>"


def _text_of(value: object, pasted: bool) -> str:
    pretty = getattr(getattr(value, "_repr_pretty_", None), "pasted" if pasted else "text", None)
    if isinstance(pretty, str):
        return pretty
    if hasattr(value, "stride") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__}({tuple(value.shape)}, {value.dtype}, strides={tuple(value.stride())})"
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        inner = ", ".join(argument_text(part, pasted) for part in value)
        inner += "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    text = repr(value)
    return f"<{type(value).__name__}>" if re.search(r" at 0x[0-9a-f]+>", text) else text


def is_told(value: object) -> bool:
    """Tell whether two arguments of the same text are surely the same."""
    if isinstance(value, (tuple, list)):
        return all(map(is_told, value))
    if type(value).__module__.partition(".")[0] == "hypothesis":  # st.data() and the like: what they draw tells
        return True
    is_ours = isinstance(getattr(getattr(value, "_repr_pretty_", None), "text", None), str)
    return is_ours or type(value) in (type(None), bool, int, float, complex, str, bytes)
