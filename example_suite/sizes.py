"""How large the drawn shapes are, and how many: decorators ask when they are imported, before there are fixtures."""

import os

import torch
from hypothesis.strategies import SearchStrategy

from pytest_gpubench.strategies import shapes

FULL_SIZE = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
"""Whether to take realistic sizes: Triton's interpreter would need hours for them."""

MAX_BYTES = "64MiB" if FULL_SIZE else "256KiB"
"""The most that one drawn tensor may take."""

EXAMPLES, FEW_EXAMPLES = (25, 10) if FULL_SIZE else (15, 8)
"""The shapes drawn for a test; few where most shapes make a kernel be compiled anew."""

BUDGET_S = 8
"""The time for the comparisons of one test: what is drawn later is only checked."""


def row_shapes(dtype: str, narrowest: int, widest: int, max_rows: int | None = None) -> SearchStrategy[tuple[int, ...]]:
    """Draw the shape of a matrix whose rows a kernel takes one by one; any width goes where nothing is timed.

    A program to each row is a poor way to go through very many narrow ones: the kernels here are not written for them.
    """
    least = (1, narrowest if FULL_SIZE else 1)
    return shapes(
        dims=2, min_side=least, max_side=(max_rows if FULL_SIZE else 4, widest), max_bytes=MAX_BYTES, dtype=dtype
    )
