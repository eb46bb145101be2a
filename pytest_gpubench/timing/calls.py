"""From a function and its arguments to a `Call`: what is done untimed before each rep, and what is timed."""

import dataclasses
import functools
import inspect
import io
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.pool import AsyncResult
from typing import Any, Literal, Protocol
from weakref import ref

import torch

from pytest_gpubench.errors import BadRequest, refusing_cycles
from pytest_gpubench.timing.base import Call, Leaves, Prepared
from pytest_gpubench.units import name_of, printable, repr_of

Key = tuple[int, torch.dtype, torch.device, torch.Size]
"""The place of an output among those that a gradient flows back from, with its dtype, device and shape."""


@dataclass(eq=False)
class Upstream:
    """Normal noise from a fixed seed, the same in every rep, and 1 for a scalar.

    Functions that are given the same arguments share it: in memory of its own, a backward run of layer_norm took 0.15 %
    longer than the same one, on H200s.
    """

    given: dict[Key, torch.Tensor] = field(default_factory=dict)
    drawn: dict[Key, torch.Tensor] = field(default_factory=dict)
    """The values that the given ones are to hold."""
    latest: "ref[BackwardPass] | None" = None
    """The function whose call used them last."""

    def of(self, outputs: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
        """Return the upstream gradient of each output, in memory made once as long as its shape is the same."""
        keys = [(index, output.dtype, output.device, output.shape) for index, output in enumerate(outputs)]
        for key, output in zip(keys, outputs, strict=True):
            if key not in self.given:
                for other in [each for each in self.given if each[:-1] == key[:-1]]:
                    del self.given[other], self.drawn[other]
                self.given[key] = upstream_gradient(output, seed + key[0])
                self.drawn[key] = self.given[key].clone()
        return [self.given[key] for key in keys]

    def put_back(self, seed: int | None = None) -> None:
        """Write into them what they are to hold; seed: draws others first, None the same as before."""
        for key, known in self.given.items():
            if seed is not None:
                self.drawn[key].copy_(upstream_gradient(known, seed + key[0]))
            known.copy_(self.drawn[key])


def upstream_gradient(output: torch.Tensor, seed: int) -> torch.Tensor:
    """Return normal noise in the shape of an output; 1 for a scalar, which is what a loss is given."""
    if output.ndim == 0:
        return torch.ones_like(output)
    if output.is_nested:
        raise BadRequest(
            "backward= makes no upstream gradients for nested tensors: let the function return a loss, or values()"
        )
    return normal_noise(output.shape, output.dtype, output.device, seed)


def normal_noise(shape: Sequence[int], dtype: torch.dtype, device: torch.device, seed: int) -> torch.Tensor:
    """Return normal noise, the same for a seed, without a draw from the generators of others."""
    generator = torch.Generator(device).manual_seed(seed)
    drawn = dtype if dtype.itemsize > 1 else torch.float32  # torch draws no numbers of 8 bits
    return torch.empty(shape, dtype=drawn, device=device).normal_(generator=generator).to(dtype)


Backward = Literal["forward", "backward", "both"]
DONE_LATER = (AsyncIterator, Awaitable, Future, Iterator, AsyncResult)
"""Classes of results whose work is done when they are used, beside torch's own Future."""
GRADIENT_SEED = 20240229
LOOKED_AT = 3
"""After so many calls, it is known whether they change an upstream gradient."""


class Memory(Protocol):
    """The memory of arguments that are given once."""

    launched: bool
    """True if the last `restore` may have launched work on the device."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the arguments that calls are known to change."""

    def restore(self) -> None:
        """Put back what calls changed."""

    def leaves(self) -> Leaves:
        """Return what calls are given, and what functions hold, by name."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of each rep: given once, or made anew by `setup`."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    setup: Callable[[], object] | None = None
    memory: Memory | None = None
    """The memory of arguments that are given once; None leaves it as calls leave it."""

    overwrites: bool = False
    """True if it is meant that calls change them."""
    upstream: Upstream = field(default_factory=Upstream, compare=False)
    """The gradients given to backward passes of functions with these arguments."""

    def flags(self) -> Sequence[str]:
        """Return a warning where calls change them, unless that is meant."""
        return ["overwrites"] if self.memory is not None and self.memory.names and not self.overwrites else []

    def fresh(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments of the next rep, as they were given."""
        if self.memory is not None:
            self.memory.restore()
        made = self.setup() if self.setup is not None else None
        if made is None:
            return self.args, self.kwargs
        if self.args or self.kwargs:
            raise BadRequest("setup= returned arguments, but args= or kwargs= are given too: give one of them")
        return split_arguments(made)


def split_arguments(made: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return positional and keyword arguments from what `setup` returned."""
    match made:
        case tuple((tuple(), dict())):
            args, kwargs = made
        case dict():
            args, kwargs = (), made
        case _:
            args, kwargs = made, {}
    odd = [repr_of(name) for name in kwargs if not isinstance(name, str)]
    if odd or not isinstance(args, tuple):
        why = f"{type(made).__name__}: for a single argument, `return (x,)`"
        raise BadRequest(
            "setup= must return a tuple of arguments, a dict of keywords, (tuple, dict) or None, found "
            + (f"the keyword {odd[0]}: give each a name" if odd else why)
        )
    return args, kwargs


def make_arguments(
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    setup: Callable[[], object] | None = None,
) -> Arguments:
    """Return the arguments of every rep; raise BadRequest for invalid ones."""
    if setup is not None and not callable(setup):
        raise BadRequest(f"setup= must be a function without arguments, found {type(setup).__name__}")
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        found = type(args).__name__
        raise BadRequest(f"args= must be a tuple of positional arguments, found {found}: write args=(x,) for one")
    named = {} if kwargs is None else kwargs
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise BadRequest(f"kwargs= must be a mapping of names to keyword arguments, found {repr_of(kwargs)}")
    refuse_without_data({"args": tuple(args), "kwargs": dict(named)})
    return Arguments(tuple(args), dict(named), setup)


def make_call(
    function: Callable[..., object],
    arguments: Arguments | None = None,
    backward: Backward = "forward",
    label: str | None = None,
) -> Call:
    """Return the call of a function; raise BadRequest for invalid arguments."""
    if not callable(function):
        raise BadRequest(f"gpu_bench needs a function to call, found {type(function).__name__}: write gpu_bench(f, x)")
    if backward not in ("forward", "backward", "both"):
        raise BadRequest(f"backward={backward!r} is not known: it must be 'forward', 'backward' or 'both'")
    arguments = arguments or make_arguments()
    name = label_of(function, label)
    inputs = None if arguments.memory is None else arguments.memory.leaves
    if backward != "forward":
        run = BackwardPass(function, arguments, with_forward=backward == "both")
        return Call(name, run.prepare, function, True, run.flags, inputs and run.inputs)

    def prepare() -> Prepared:
        args, kwargs = arguments.fresh()
        mark_step()
        launched = arguments.memory is not None and arguments.memory.launched
        return Prepared(functools.partial(function, *args, **kwargs), args, kwargs, on_device=launched)

    return Call(name, prepare, function, arguments.setup is not None, arguments.flags, inputs)


def label_of(function: Callable[..., object], label: object) -> str:
    """Return the name of a call in tables and messages: a label that is not empty, else the function's name."""
    return printable("" if label is None else str(label)) or printable(name_of(function))


def refuse_untimeable(output: object, label: str) -> None:
    """Raise BadRequest for a function whose work may be done after it has returned, or that only works out shapes."""
    refuse_without_data({f"the output of {label!r}": output})
    if type(output) is not torch.Tensor and (late := next(done_later(output), None)) is not None:
        if inspect.iscoroutine(late):
            late.close()
        raise BadRequest(
            f"{label!r} returns a {type(late).__name__}, whose work may not be done by then: measure a function that "
            "consumes it, or waits for it"
        )


def refuse_without_data(values: Mapping[str, object]) -> None:
    """Raise BadRequest for a tensor on the device meta, or a fake one, among values by name."""
    from torch._subclasses import FakeTensor
    from torch.utils import _pytree as pytree

    def is_without_data(leaf: object) -> bool:
        return isinstance(leaf, torch.Tensor) and (leaf.is_meta or isinstance(leaf, FakeTensor))

    for name, value in values.items():
        if type(value) is torch.Tensor and not value.is_meta:  # the walk takes 0.1 ms
            continue
        with refusing_cycles(name):
            is_refused = any(map(is_without_data, leaves_in(value)))
        if is_refused:
            leaves, _ = pytree.tree_flatten_with_path(value)
            place = next((pytree.keystr(path) for path, leaf in leaves if is_without_data(leaf)), "")
            raise BadRequest(
                f"{name}{place} is a tensor without data (on the device meta, or fake), so there is no work to time: "
                "make inputs and parameters on gpu_bench.device"
            )


def done_later(value: object) -> Iterator[object]:
    """Yield the leaves of a value whose work is done when they are used."""
    for leaf in leaves_in(value):
        if isinstance(leaf, (*DONE_LATER, torch._C.Future)) and not isinstance(leaf, io.IOBase):
            yield leaf


def leaves_in(value: object) -> Iterator[object]:
    """Yield the leaves of a pytree, and of dataclasses in it."""
    from torch.utils import _pytree as pytree

    seen, waiting = set[int](), [value]
    while waiting:
        for leaf in pytree.tree_leaves(waiting.pop()):  # the walk takes 0.1 ms
            yield leaf
            if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and id(leaf) not in seen:
                seen.add(id(leaf))  # one may hold itself
                waiting += [getattr(leaf, each.name, None) for each in dataclasses.fields(leaf)]


def mark_step() -> None:
    """Tell torch.compile's CUDA graphs that the outputs of the last call are no longer needed."""
    if "torch._inductor.cudagraph_trees" in sys.modules:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


@dataclass
class BackwardPass:
    """Time the gradient, alone or after the forward run; gradients of leaves are dropped before each rep.

    What a backward run writes over its upstream gradient is put back.
    """

    function: Callable[..., object]
    arguments: Arguments
    with_forward: bool
    leaves: list[torch.Tensor] | None = None
    overwrites_upstream: bool = False
    """True if a call was seen to change an upstream gradient."""
    calls: int = 0
    given: tuple[tuple[object, ...], dict[str, object]] = ((), {})
    """The arguments of the last rep that was prepared."""

    def prepare(self) -> Prepared:
        """Put the upstream gradients back, and run forward, untimed; return the backward run, or both.

        Note whether the first calls of the function that used those gradients last changed them.
        """
        upstream = self.arguments.upstream
        user = upstream.latest() if upstream.latest is not None else None
        if user is not None and user.calls < LOOKED_AT and not user.overwrites_upstream:
            user.overwrites_upstream = not all(map(torch.equal, upstream.given.values(), upstream.drawn.values()))
        upstream.put_back()
        upstream.latest = ref(self)
        self.calls += 1
        self.given = args, kwargs = self.arguments.fresh()
        if not self.with_forward or self.leaves is None:
            outputs = self.forward(args, kwargs)
            gradients = self.gradients(outputs)
            self.leaves = leaves_of(outputs) if self.leaves is None else self.leaves
            if self.with_forward:  # that run may have overwritten them
                self.given = args, kwargs = self.arguments.fresh()
        for leaf in self.leaves:
            leaf.grad = None  # or the rep would pay for an addition to what the last one accumulated
        if self.with_forward:
            mark_step()
            return Prepared(functools.partial(self.both, args, kwargs), args, kwargs)
        return Prepared(functools.partial(run_backward, outputs, gradients), made=(outputs, gradients))

    def inputs(self) -> Leaves:
        """Return what calls are given, what functions hold, and the upstream gradients so far, by name."""
        upstream = self.arguments.upstream.given.values()
        given = [] if self.arguments.memory is None else self.arguments.memory.leaves()
        return [*given, *((f"upstream gradient {number}", each) for number, each in enumerate(upstream))]

    def forward(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[torch.Tensor]:
        """Return the outputs that a gradient can flow back from."""
        mark_step()
        with torch.enable_grad():
            returned = self.function(*args, **kwargs)
        outputs = [leaf for leaf in leaves_in(returned) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not outputs:
            raise BadRequest(
                f"backward= was asked of {name_of(self.function)!r}, but none of its outputs requires a gradient: "
                "set requires_grad on its inputs, detach no output, and measure outside of torch.inference_mode()"
            )
        return outputs

    def both(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Run forward and backward."""
        outputs = self.forward(args, kwargs)
        run_backward(outputs, self.gradients(outputs))

    def flags(self) -> Sequence[str]:
        """Return warnings where calls change arguments or an upstream gradient."""
        return [*self.arguments.flags(), *(["overwrites upstream"] if self.overwrites_upstream else [])]

    def gradients(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the upstream gradient of each output."""
        return self.arguments.upstream.of(outputs, GRADIENT_SEED)


def backward_of(call: Call) -> BackwardPass | None:
    """Return the backward pass that a call is; None for a forward call."""
    owner = getattr(call.prepare, "__self__", None)
    return owner if isinstance(owner, BackwardPass) else None


def run_backward(outputs: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
    """Run the gradient of the outputs."""
    torch.autograd.backward(list(outputs), list(gradients))


def leaves_of(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that the outputs' graph accumulates gradients into, in the graph's order."""
    leaves = [output for output in outputs if output.is_leaf]
    nodes: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen: set[Any] = set(nodes)
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        following = dict.fromkeys(after for after, _ in node.next_functions if after is not None and after not in seen)
        seen.update(following)
        nodes.extend(reversed(following))
    return leaves
