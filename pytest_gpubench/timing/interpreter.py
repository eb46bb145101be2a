"""Triton's interpreter: its time means nothing, it writes wherever a kernel points, and bfloat16 is computed wrongly.

On the CPU a write beyond a tensor breaks the heap, and ends the process with the results of all its tests. While
launches are watched, a kernel reaches no memory but that of the tensors that it is given.
"""

import gc
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch

from pytest_gpubench.errors import WrongResult, annotate
from pytest_gpubench.units import format_bytes

STORES: dict[str, tuple[int, int, int | None]] = {
    "create_masked_store": (0, 1, 2),
    "create_atomic_rmw": (1, 2, 3),
    "create_atomic_cas": (0, 2, None),
}
"""The methods of the interpreter that write, with the places of pointers, values and mask among their arguments."""
BFLOAT16 = (
    "gpu_bench: Triton's interpreter, which runs without a GPU, cannot compute in bfloat16: let the kernel convert "
    "what it loads to float32, or test it with float32 or float16 here"
)
LEAST_ADDRESS = 2**32
"""Smaller numbers among the arguments of a kernel are no addresses."""
WATCHED: "list[Launches]" = []
"""The launches that are watched now, at most one."""


@dataclass
class Launches:
    """The kernels that the interpreter runs."""

    number: int = 0
    in_bfloat16: bool = False
    """True if one was given a tensor of bfloat16."""
    kernel: str = ""
    """The name of the last one."""
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    """The addresses where the memory of its tensors begins and ends, with their names."""
    may_point: bool = False
    """True if it is given what may be addresses of other tensors, which were not looked for yet."""

    def begin(self, kernel: str, given: Mapping[str, object]) -> None:
        """Note the memory that a kernel is given."""
        self.number += 1
        self.kernel = kernel
        leaves = [leaf for name, value in given.items() for leaf in _leaves(name, value)]
        tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.in_bfloat16 |= any(tensor.dtype is torch.bfloat16 for _, tensor in tensors)
        self.spans = [_span(name, tensor) for name, tensor in tensors]
        self.may_point = any(tensor.dtype.itemsize == 8 for _, tensor in tensors) or any(
            isinstance(leaf, int) and leaf >= LEAST_ADDRESS for _, leaf in leaves
        )

    def outside(self, addresses: Any, size_bytes: int, mask: Any) -> Any:
        """Tell of each of an array of addresses, where the mask is set, whether no tensor lies there."""
        found = (addresses == addresses) & mask
        for start, stop, _ in self.spans:
            found = found & ((addresses < start) | (addresses > stop - size_bytes))
        if self.may_point and found.any():
            self.may_point = False
            for each in gc.get_objects():
                if issubclass(type(each), torch.Tensor) and each.device.type == "cpu":
                    with suppress(RuntimeError):  # one without memory
                        self.spans.append(_span("", each))
            return self.outside(addresses, size_bytes, mask)
        return found

    def refuse_outside(self, addresses: Any, size_bytes: int, mask: Any) -> None:
        """Raise WrongResult for a write to where no tensor lies."""
        beyond = addresses[self.outside(addresses, size_bytes, mask)]
        if beyond.size:
            last = int(beyond.max())
            distances = {name: max(start - last, last + size_bytes - stop) for start, stop, name in self.spans if name}
            name = min(distances, key=lambda each: distances[each], default="its arguments")
            raise WrongResult(
                f"the kernel {self.kernel!r} writes past {name}, {format_bytes(distances.get(name, 0))} beyond its "
                "memory: end the mask of its store where the tensor ends, or launch fewer programs"
            )


def _leaves(name: str, value: Any) -> Iterator[tuple[str, object]]:
    """Yield the tensors and numbers of an argument of a kernel."""
    if isinstance(value, tuple):
        for place, part in enumerate(value):
            yield from _leaves(f"{name}[{place}]", part)
    else:  # a descriptor of a tensor has a base
        yield name, value if isinstance(value, torch.Tensor) else getattr(value, "base", value)


def _span(name: str, tensor: torch.Tensor) -> tuple[int, int, str]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes(), name


@contextmanager
def watching_launches() -> Iterator[Launches]:
    """Count the launches of interpreted kernels while the context lasts, and keep them to the tensors they are given.

    What a kernel reads elsewhere is NaN, or for integers their largest; where it writes elsewhere, WrongResult is
    raised. An error for a wrong output says if a kernel was given bfloat16. Within another such context, that one goes
    on.
    """
    launches = Launches()
    interpreter: Any = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None or WATCHED:
        yield WATCHED[0] if WATCHED else launches
        return
    executor, builder, numpy = interpreter.GridExecutor, interpreter.InterpreterBuilder, interpreter.np
    start, call, load = executor._init_args_hst, executor.__call__, builder.create_masked_load

    def started(self: Any, args: Any, kwargs: Any) -> Any:
        made = start(self, args, kwargs)
        launches.begin(self.fn.__name__, {**dict(zip(self.arg_names, made[0], strict=False)), **made[1]})
        return made

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        except Exception as error:  # of a class of the interpreter's own
            raise error.__cause__ if isinstance(error.__cause__, WrongResult) else error from None

    def loaded(self: Any, pointers: Any, mask: Any, *others: Any, **named: Any) -> Any:
        size_bytes = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        wanted = numpy.asarray(mask.data)  # the mask may be an array itself, whose data is a buffer
        outside = launches.outside(pointers.data, size_bytes, wanted)
        found = load(self, pointers, interpreter.TensorHandle(wanted & ~outside, interpreter.tl.int1), *others, **named)
        if outside.any():
            kind = found.data.dtype
            found.data[outside] = math.nan if kind.kind == "f" else kind.kind == "b" or numpy.iinfo(kind).max
        return found

    def checked(name: str, at: int, value: int, mask: int | None) -> Callable[..., object]:
        store = getattr(builder, name)

        def stored(self: Any, *args: Any) -> object:
            wanted = True if mask is None else numpy.asarray(args[mask].data)
            launches.refuse_outside(args[at].data, args[value].data.itemsize, wanted)
            return store(self, *args)

        return stored

    stores: dict[str, Any] = {name: checked(name, *places) for name, places in STORES.items()}
    with (
        patch.multiple(executor, _init_args_hst=started, __call__=called),
        patch.multiple(builder, create_masked_load=loaded, **stores),
    ):
        WATCHED.append(launches)
        try:
            yield launches
        except WrongResult as error:
            if launches.in_bfloat16:
                annotate(error, BFLOAT16)
            raise
        finally:
            WATCHED.clear()
