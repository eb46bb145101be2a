"""The little of torch that a scripted run needs: the real one takes seconds to import, in every process of a host."""

from types import SimpleNamespace

__version__ = "0+stub"


class Tensor: ...


class Generator: ...


class dtype: ...


class OutOfMemoryError(RuntimeError): ...


class device:
    def __init__(self, type: str) -> None:
        self.type = type


def _nothing(*arguments: object) -> None: ...


float32 = dtype()
compiler = SimpleNamespace(is_dynamo_compiling=_nothing, cudagraph_mark_step_begin=_nothing)
version = SimpleNamespace(cuda=None)
cuda = SimpleNamespace(OutOfMemoryError=OutOfMemoryError, is_initialized=_nothing)
