"""Hypothesis strategies for the inputs of kernels: shapes, dtypes, layouts and tensors at which kernels break."""

from pytest_gpubench.errors import hide_frames
from pytest_gpubench.strategies.choices import LAYOUTS, VALUES, dtypes, layouts, values
from pytest_gpubench.strategies.recorded import recorded
from pytest_gpubench.strategies.shapes import (
    AttentionShape,
    BatchedMatmulShape,
    MatmulShape,
    attention_shapes,
    matmul_shapes,
    ragged_lengths,
    shapes,
)
from pytest_gpubench.strategies.tensors import LazyTensor, lazy_tensor, tensor, tensors

__all__ = [
    "LAYOUTS",
    "VALUES",
    "AttentionShape",
    "BatchedMatmulShape",
    "LazyTensor",
    "MatmulShape",
    "attention_shapes",
    "dtypes",
    "layouts",
    "lazy_tensor",
    "matmul_shapes",
    "ragged_lengths",
    "recorded",
    "shapes",
    "tensor",
    "tensors",
    "values",
]

hide_frames()  # they raise while tests are collected, too
