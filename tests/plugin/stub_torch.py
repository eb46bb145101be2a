"""The little of torch that a scripted run needs: the real one takes seconds to import, in every process of a host."""

import sys
from types import SimpleNamespace
from typing import Any, cast

__version__ = "0+stub"


class Tensor:
    is_conj = is_neg = None


class Generator: ...


class dtype: ...


class Size: ...


class OutOfMemoryError(RuntimeError): ...


class device:
    def __init__(self, type: str) -> None:
        self.type = type


def _nothing(*arguments: object) -> None: ...


def _flatten(value: object, is_leaf: object) -> tuple[list[tuple[tuple[str, ...], object]], None]:
    """Return the contents of a container by their places, as torch's pytree does for one level."""
    if isinstance(value, dict):
        return [((f"[{key!r}]",), each) for key, each in value.items()], None
    if isinstance(value, (list, tuple)):
        return [((f"[{place}]",), each) for place, each in enumerate(value)], None
    return [((), value)], None


def _leaves(value: object) -> list[object]:
    return [each for _, each in _flatten(value, None)[0]]


_C = SimpleNamespace(Future=type("Future", (), {}))
optim = SimpleNamespace(Optimizer=type("Optimizer", (), {}))
nn = SimpleNamespace(Module=type("Module", (), {}), Parameter=type("Parameter", (), {}))
utils = SimpleNamespace(
    _pytree=SimpleNamespace(tree_flatten_with_path=_flatten, tree_any=_nothing, tree_leaves=_leaves)
)
sys.modules |= {"torch.utils": cast(Any, utils), "torch.utils._pytree": cast(Any, utils._pytree)}
sys.modules["torch._subclasses"] = cast(Any, SimpleNamespace(FakeTensor=type("FakeTensor", (Tensor,), {})))

float32 = dtype()
is_tensor = _nothing
compiler = SimpleNamespace(is_dynamo_compiling=_nothing, cudagraph_mark_step_begin=_nothing)
version = SimpleNamespace(cuda=None)
cuda = SimpleNamespace(
    OutOfMemoryError=OutOfMemoryError, is_initialized=_nothing, device_count=int, CUDAGraph=object, Stream=object
)
