"""Ten problems in the shape of KernelBench's level 1, and candidates for them."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_gpubench import Judgement
from pytest_gpubench.judge.judging import Judge

TEXT = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """{title}"""

    def __init__(self{parameters}):
        super(Model, self).__init__()
        {build}

    def forward(self, {arguments}):
        return {result}


{sizes}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{initial}]
'''


@dataclass(frozen=True)
class Problem:
    """A problem, in the parts that differ."""

    title: str
    sizes: str
    inputs: str
    result: str
    arguments: str = "x"
    parameters: str = ""
    build: str = "pass"
    initial: str = ""

    @property
    def text(self) -> str:
        """The file of the problem."""
        return TEXT.format(**vars(self))

    def write(self, folder: Path, smaller: int = 1) -> tuple[Path, Path]:
        """Write the problem, and a candidate that is the reference itself; return both paths.

        smaller: what sizes of three digits and more are divided by.
        """
        sizes = re.sub(r"\d{3,}", lambda size: str(int(size[0]) // smaller), self.sizes)
        spec, candidate = folder / "problem.py", folder / "candidate.py"
        text = replace(self, sizes=sizes).text
        spec.write_text(text)
        candidate.write_text(text.replace("Model", "ModelNew"))
        return spec, candidate


def judge_by(judge: Judge, spec: Path, candidate: Path) -> Judgement:
    """Return the judgement of a candidate by another spec than the judge was made with, in its warm processes."""
    judge.use_spec(spec)
    return judge(candidate)


PROBLEMS = {
    "square_matmul": Problem(
        "Multiply two square matrices.",
        "N = 2048",
        "torch.rand(N, N), torch.rand(N, N)",
        "torch.matmul(A, B)",
        arguments="A, B",
    ),
    "tall_matmul_transposed": Problem(
        "Multiply a transposed matrix with a narrow one.",
        "M, N, K = 4096, 64, 2048",
        "torch.rand(K, M), torch.rand(K, N)",
        "torch.matmul(A.T, B)",
        arguments="A: torch.Tensor, B: torch.Tensor",
    ),
    "relu": Problem("Apply ReLU.", "batch_size = 1024\ndim = 16384", "torch.rand(batch_size, dim)", "torch.relu(x)"),
    "softmax": Problem(
        "Apply softmax to rows.",
        "batch_size = 1024\ndim = 8192",
        "torch.rand(batch_size, dim)",
        "torch.softmax(x, dim=1)",
    ),
    "layer_norm": Problem(
        "Normalise over the last dimensions, with weights.",
        "batch_size = 16\nfeatures = 64\ndim1, dim2 = 128, 128",
        "torch.rand(batch_size, features, dim1, dim2)",
        "self.ln(x)",
        parameters=", normalized_shape: tuple",
        build="self.ln = nn.LayerNorm(normalized_shape=normalized_shape)",
        initial="(features, dim1, dim2)",
    ),
    "batch_norm": Problem(
        "Normalise over the batch, in training mode.",
        "batch_size = 16\nfeatures = 64\ndim1, dim2 = 128, 128",
        "torch.rand(batch_size, features, dim1, dim2)",
        "self.bn(x)",
        parameters=", num_features: int",
        build="self.bn = nn.BatchNorm2d(num_features=num_features)",
        initial="features",
    ),
    "convolution": Problem(
        "Convolve images with a square kernel.",
        "batch_size = 8\nin_channels, out_channels, kernel_size = 32, 64, 3\nsize = 128",
        "torch.rand(batch_size, in_channels, size, size)",
        "self.conv2d(x)",
        parameters=", in_channels, out_channels, kernel_size",
        build="self.conv2d = nn.Conv2d(in_channels, out_channels, (kernel_size, kernel_size), bias=False)",
        initial="in_channels, out_channels, kernel_size",
    ),
    "max_reduction": Problem(
        "Return the largest value along a dimension.",
        "batch_size = 64\ndim1, dim2 = 512, 512",
        "torch.rand(batch_size, dim1, dim2)",
        "torch.max(x, dim=self.dim)[0]",
        parameters=", dim: int",
        build="self.dim = dim",
        initial="1",
    ),
    "cumulative_sum": Problem(
        "Return cumulative sums along a dimension.",
        "batch_size = 512\ninput_shape = (8192,)\ndim = 1",
        "torch.randn(batch_size, *input_shape)",
        "torch.cumsum(x, dim=self.dim)",
        parameters=", dim",
        build="self.dim = dim",
        initial="dim",
    ),
    "cross_entropy": Problem(
        "Return the cross entropy of predictions.",
        "batch_size = 4096\nnum_classes = 1000",
        "torch.rand(batch_size, num_classes), torch.randint(0, num_classes, (batch_size,))",
        "torch.nn.functional.cross_entropy(predictions, targets)",
        arguments="predictions, targets",
    ),
}
