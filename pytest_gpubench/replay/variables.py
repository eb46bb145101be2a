"""Variables of modules: memory that kernels find by name, to which no parameter leads.

An image holds what they are when it is loaded. What a host or a kernel has written since is kept nowhere.
"""

import ctypes
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from pytest_gpubench.replay.builder import GraphBuilder
from pytest_gpubench.replay.driver import DriverError, handle, out
from pytest_gpubench.replay.elf import variables_of
from pytest_gpubench.replay.reader import NotReplayable


def refuse_written(modules: Iterable[tuple[str, int]], images: Mapping[str, bytes], cuda: GraphBuilder) -> None:
    """Raise NotReplayable where a module has a variable that differs from that of its image loaded anew.

    modules: those of this process, each after the SHA-256 of its image. One that holds an address as its image says
    differs from load to load. Memory that the driver does not know by a name cannot be compared, and is refused.
    """
    for name, module in modules:
        if variables := variables_of(images[name]):
            with ExitStack() as held:
                fresh = cuda.load(images[name], held)
                for each in variables:
                    if value_of(each, module, cuda) != value_of(each, fresh, cuda):
                        text = each.decode(errors="backslashreplace")
                        raise NotReplayable(
                            f"{text}, a variable of a kernel's module, was written, or holds an address"
                        )


def value_of(variable: bytes, module: int, cuda: GraphBuilder) -> bytes:
    """Return the bytes of a variable; raise NotReplayable where the driver knows none of this name."""
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    try:
        cuda.call("cuModuleGetGlobal_v2", out(address), out(size), handle(module), ctypes.c_char_p(variable))
    except DriverError as error:
        raise NotReplayable("a kernel's module has variables that the driver does not know by their names") from error
    value = ctypes.create_string_buffer(size.value)
    cuda.call("cuMemcpyDtoH_v2", value, address, size)
    return value.raw
