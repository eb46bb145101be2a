"""A GPU whose memory is full: how an error says so, and how what an example took is given back."""

import gc
import re
import sys
from typing import Any

from pytest_gpubench.search.raised import clear

__tracebackhide__ = True

MEMORY_FULL = re.compile(r"(CUDA error|Triton Error \[CUDA\]): out of memory|CUBLAS_STATUS_ALLOC_FAILED")
"""What full memory is called by those who do not raise torch.OutOfMemoryError."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it was raised from, is that of a GPU whose memory is full."""
    full: Any = getattr(sys.modules.get("torch"), "OutOfMemoryError", ())
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, full) or (isinstance(error, RuntimeError) and MEMORY_FULL.search(str(error))):
            return True
        error = error.__cause__
    return False


def give_back(error: Exception) -> None:
    """Give the memory back that an example took before there was none left."""
    clear(error)
    error.__traceback__ = None
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
