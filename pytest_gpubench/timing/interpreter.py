"""Notice when a function runs in Triton's interpreter: its time means nothing, and it computes wrongly in bfloat16."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from pytest_gpubench.errors import WrongResult, annotate

BFLOAT16 = (
    "gpu_bench: Triton's interpreter, which runs without a GPU, cannot compute in bfloat16: let the kernel convert "
    "what it loads to float32, or test it with float32 or float16 here"
)


@dataclass
class Launches:
    """The number of kernels that the interpreter ran, and if one was given bfloat16."""

    number: int = 0
    in_bfloat16: bool = False


@contextmanager
def counting_launches() -> Iterator[Launches]:
    """Count the launches of interpreted Triton kernels while the context lasts.

    An error for a wrong output says if one was given bfloat16.
    """
    launches = Launches()
    interpreter = sys.modules.get("triton.runtime.interpreter")
    executor: Any = getattr(interpreter, "GridExecutor", None)
    if executor is None:
        yield launches
        return
    original = executor.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        launches.number += 1
        given = (*args, *kwargs.values())
        launches.in_bfloat16 |= any(getattr(each, "dtype", None) is torch.bfloat16 for each in given)
        return original(self, *args, **kwargs)

    executor.__call__ = counted
    try:
        yield launches
    except WrongResult as error:
        if launches.in_bfloat16:
            annotate(error, BFLOAT16)
        raise
    finally:
        executor.__call__ = original
