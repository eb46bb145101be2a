"""The code that Triton compiled kernels to: the constants it was compiled for, its accesses to global memory."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytest_gpubench.results.model import Code
from pytest_gpubench.units import printable

ACCESS = re.compile(r"\b(ld|st)\.[\w.:]*?global[\w.:]*?(?:\.v(\d))?\.[busf](\d+)\b")
"""A load or a store in PTX: `ld.global.L1::evict_first.v4.b32`."""
ASYNCHRONOUS_LOAD = re.compile(r"\bcp\.async\.c[ag]\.shared\.global[^,;]*,[^,;]*, *0x([0-9a-f]+)")
ATOMIC = re.compile(r"\b(?:atom|red)\.[\w.:]*global\b")
INSTRUCTION = re.compile(r"^[ \t]*(?:@!?%\w+[ \t]+)?[a-z][^;]*;", re.M)
"""A statement of PTX that is no directive: those begin with a dot."""
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
PLAIN = (bool, int, float, str, type(None))


@contextmanager
def noting_compiled(compiled: list[Any]) -> Iterator[None]:
    """Note the compiled kernels that Triton launches meanwhile; none where Triton was not imported."""
    owner: Any = getattr(sys.modules.get("triton.compiler.compiler"), "CompiledKernel", None)
    asked = getattr(owner, "launch_metadata", None)
    if asked is None:
        yield
        return

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled.append(self)
        return asked(self, *args, **kwargs)

    owner.launch_metadata = noting  # which each launch asks for
    try:
        yield
    finally:
        owner.launch_metadata = asked


def codes_of(compiled: list[Any]) -> dict[int, Code]:
    """Return the code of compiled kernels by their CUfunction; without those of which it cannot be read."""
    found: dict[int, Code] = {}
    for kernel in compiled:
        if isinstance(kernel.function, int) and kernel.function not in found:
            try:
                found[kernel.function] = code_of(kernel)
            except (AttributeError, IndexError, KeyError, TypeError):  # of another version of Triton's
                continue
    return found


def code_of(kernel: Any) -> Code:
    """Return the code of a compiled kernel."""
    ptx = kernel.asm["ptx"]
    accesses = [(kind, int(vector or 1) * int(bits) // 8) for kind, vector, bits in ACCESS.findall(ptx)]
    loads = [size for kind, size in accesses if kind == "ld"]
    loads += [int(size, 16) for size in ASYNCHRONOUS_LOAD.findall(ptx)]
    stores = [size for kind, size in accesses if kind == "st"]
    options = {name: str(value) for name in OPTIONS if (value := getattr(kernel.metadata, name, None)) is not None}
    return Code(
        constants=constants_of(kernel.src) | options,
        loads=len(loads),
        load_bytes=max(loads, default=0),
        stores=len(stores),
        store_bytes=max(stores, default=0),
        atomics=len(ATOMIC.findall(ptx)),
        instructions=len(INSTRUCTION.findall(ptx)),
    )


def constants_of(source: Any) -> dict[str, str]:
    """Return the arguments that a kernel was compiled for, by name; among them those that Triton makes constants."""
    constants: Mapping[Any, Any] = source.constants
    return {_name_of(key, source.fn.arg_names): _text_of(value) for key, value in constants.items()}


def _name_of(key: Any, names: Any) -> str:
    """Return the name of an argument; a key is a name, a place, or the path of places into a tuple."""
    first, *inner = key if isinstance(key, tuple) else (key,)
    return "".join([names[first] if isinstance(first, int) else str(first), *(f"[{each}]" for each in inner)])


def _text_of(value: object) -> str:
    """Return a constant as text that is the same in every process: no address in it."""
    is_plain = isinstance(value, PLAIN) or type(value).__module__.startswith("triton.")
    return printable(str(value) if is_plain else str(getattr(value, "__name__", type(value).__name__)))
