"""Published kernel changes: what is known of each, and how to call it before and after."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from pytest_gpubench.timing.calls import Backward
from tests.on_gpu.study.published_sources import Side


@dataclass(frozen=True)
class Case:
    """What a change is measured on: rows and columns of the input, and which of the change's functions."""

    rows: int
    cols: int
    dtype: torch.dtype = torch.bfloat16
    part: str = ""

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.").replace("bfloat", "bf").replace("float", "fp")
        return f"{self.rows}x{self.cols} {dtype} {self.part}".rstrip()


@dataclass(frozen=True)
class Pair:
    """What is handed to `compare`."""

    candidate: Callable[..., object]
    reference: Callable[..., object]
    args: tuple[object, ...] = ()
    setup: Callable[[], tuple[object, ...]] | None = None
    backward: Backward = "forward"
    rtol: float | None = None
    atol: float | None = None


Make = Callable[[Side, Side, Case, torch.device], Pair]


@dataclass(frozen=True)
class Change:
    """A change, what is known of it, and the shapes to try: the likeliest first, the others with --all-shapes."""

    name: str
    folder: str
    table: float
    """The ratio to be reproduced: before over after; candidate over torch where it is `over_torch`."""
    rival: float
    """What do_bench gave beside it."""
    published: str
    shapes_from: str
    make: Make
    cases: tuple[Case, ...]
    tiny: Case
    over_torch: bool = False


def normal(device: torch.device, *shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(*shape, device=device, dtype=dtype, generator=generator)


def cross_entropy(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    """The forward run computes the gradient too, in the place of the logits."""
    logits = normal(device, case.rows, case.cols, dtype=case.dtype)
    target = torch.randint(case.cols, (case.rows,), device=device)

    def call_of(side: Side) -> Callable[..., object]:
        ops = side.load("liger_kernel.ops.cross_entropy")
        if hasattr(ops, "LOG2_E"):  # the commit has a plain float, which Triton refuses to read in a kernel
            ops.LOG2_E = triton.language.constexpr(ops.LOG2_E)
        forward = ops.cross_entropy_forward

        def run(logits: torch.Tensor, target: torch.Tensor) -> object:
            loss, *_, gradient = forward(logits, target, None, -100, 0.0, 0.0, "mean", None, False)
            return loss.detach(), gradient.detach()

        return run

    def setup() -> tuple[object, ...]:
        return logits.clone().requires_grad_(), target  # without the flag no gradient is computed

    return Pair(call_of(after), call_of(before), setup=setup, rtol=0.02, atol=1e-6)


def swiglu(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    """The backward run overwrites what the forward run was given."""
    a, b, dc = (normal(device, case.rows, case.cols, dtype=case.dtype, seed=seed) for seed in range(3))

    def call_of(side: Side) -> Callable[..., object]:
        ops = side.load("liger_kernel.ops.swiglu")

        def full(a: torch.Tensor, b: torch.Tensor, dc: torch.Tensor) -> object:
            c = ops.swiglu_forward(a, b)[-1]
            return c, *ops.swiglu_backward(a, b, dc)

        backward: Callable[..., object] = ops.swiglu_backward
        return full if case.part == "full" else backward

    return Pair(call_of(after), call_of(before), setup=lambda: (a.clone(), b.clone(), dc))


def gated_forward(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    a, b = (normal(device, case.rows, case.cols, dtype=case.dtype, seed=seed) for seed in range(2))

    def call_of(side: Side) -> Callable[..., object]:
        ops = side.load(f"liger_kernel.ops.{case.part}")
        forward: Callable[..., tuple[torch.Tensor, ...]] = getattr(ops, f"{case.part}_forward")
        return lambda a, b: forward(a, b)[-1]

    return Pair(call_of(after), call_of(before), args=(a, b))


def tvd(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    p, q = (normal(device, case.rows, case.cols, dtype=case.dtype, seed=seed).softmax(-1) for seed in range(2))

    def call_of(side: Side) -> Callable[..., object]:
        forward = side.load("liger_kernel.ops.tvd").tv_distance_forward_triton
        return lambda p, q: forward(p, q, None, "batchmean", -100, False)

    return Pair(call_of(after), call_of(before), args=(p, q), rtol=1e-3, atol=1e-8)


def layer_norm_backward(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    """Sums over all rows, in an order that atomic additions leave open, differ by more than torch's tolerance."""
    x, dy = (normal(device, case.rows, case.cols, dtype=case.dtype, seed=seed) for seed in range(2))
    weight, bias = torch.ones(2, case.cols, device=device, dtype=case.dtype)
    mean = x.float().mean(-1)
    rstd = torch.rsqrt(x.float().var(-1, correction=0) + 1e-6)

    def call_of(side: Side) -> Callable[..., object]:
        backward: Callable[..., object] = side.load("liger_kernel.ops.layer_norm").layer_norm_backward
        return backward

    args = (dy, x, weight, bias, mean.to(case.dtype), rstd.to(case.dtype))
    return Pair(call_of(after), call_of(before), args=args, rtol=0.02, atol=0.05)


def rms_norm(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    """The backward run overwrites the upstream gradient, as it does by default."""
    x, dy = (normal(device, case.rows, case.cols, dtype=case.dtype, seed=seed) for seed in range(2))
    weight = torch.ones(case.cols, device=device, dtype=case.dtype)
    rstd = torch.rsqrt(x.float().square().mean(-1) + 1e-6)

    def call_of(side: Side) -> Callable[..., object]:
        ops = side.load("liger_kernel.ops.rms_norm")
        mode = ops._CASTING_MODE_LLAMA.value
        is_new = "row_mode" in inspect.signature(ops.rms_norm_forward).parameters
        more = {"row_mode": None} if is_new else {}

        def forward(x: torch.Tensor) -> Any:
            return ops.rms_norm_forward(x, weight, 1e-6, 0.0, mode, **more)

        def backward(x: torch.Tensor, dy: torch.Tensor, rstd: torch.Tensor = rstd) -> Any:
            settings = ops.calculate_settings(case.cols)
            return ops.rms_norm_backward(dy, x, weight, rstd, 0.0, mode, *settings, True, **more)

        def full(x: torch.Tensor, dy: torch.Tensor) -> Any:
            y, _, rstd, *_ = forward(x)
            return y, *backward(x, dy, rstd)

        if case.part == "forward":
            return lambda x, dy: forward(x)[0]
        return full if case.part == "full" else backward

    setup = (lambda: (x, dy)) if case.part == "forward" else (lambda: (x, dy.clone()))
    return Pair(call_of(after), call_of(before), setup=setup, rtol=0.05, atol=2.0)


def fast_llm_backward(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    """The gradients of the parameters are written where the parameters say, and the context is used up."""
    x, grad = (normal(device, case.rows, case.cols, dtype=case.dtype, seed=seed) for seed in range(2))
    weight = 1 + 0.1 * normal(device, case.cols, dtype=case.dtype, seed=2)
    bias = torch.zeros_like(weight) if case.part == "layer_norm" else None
    centred = x.float() - (x.float().mean(-1, keepdim=True) if bias is not None else 0)
    inv_var = torch.rsqrt(centred.square().mean(-1) + 1e-5)
    output = (centred * inv_var[:, None] * weight.float()).to(case.dtype)

    def call_of(side: Side) -> Callable[..., object]:
        backward = side.load("fast_llm.functional.triton.normalization").triton_normalization_backward

        def run(grad: torch.Tensor, context: Sequence[Any]) -> object:
            grad_input = backward(grad, [*context])
            return grad_input, *(param.grad_buffer for param in context[1:3] if param is not None)

        return run

    def parameter(values: torch.Tensor) -> torch.Tensor:
        fresh: Any = values.detach().requires_grad_()
        fresh.grad_buffer = torch.zeros_like(values)
        fresh.param_grad_is_zero = True
        made: torch.Tensor = fresh
        return made

    def setup() -> tuple[object, ...]:
        return grad, (output, parameter(weight), None if bias is None else parameter(bias), inv_var, 1e-5, False)

    return Pair(call_of(after), call_of(before), setup=setup, rtol=0.05, atol=1.0)


def rotary(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    """Rows are the batch and the sequence; 32 heads."""
    sequence = int(case.part.removeprefix("sequence of "))
    x = normal(device, case.rows, sequence, 32, case.cols, dtype=case.dtype)
    angles = normal(device, sequence, case.cols // 2, dtype=torch.float32)

    def call_of(side: Side) -> Callable[..., object]:
        apply: Callable[..., object] = side.load("flash_attn.ops.triton.rotary").apply_rotary
        return apply

    return Pair(call_of(after), call_of(before), args=(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype)))


def relu_squared(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    ops = after.load("liger_kernel.ops.relu_squared")
    x = normal(device, case.rows, case.cols, dtype=case.dtype).requires_grad_()

    def by_torch(x: torch.Tensor) -> torch.Tensor:
        return torch.square(torch.nn.functional.relu(x))

    return Pair(ops.LigerReLUSquaredFunction.apply, by_torch, args=(x,), backward="both")


def tutorial_softmax(before: Side, after: Side, case: Case, device: torch.device) -> Pair:
    x = normal(device, case.rows, case.cols, dtype=case.dtype)

    def by_torch(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    return Pair(after.load("fused_softmax").softmax, by_torch, args=(x,))


FP32, BF16 = torch.float32, torch.bfloat16
FAST_LLM_SHAPES = ((8192, 4096), (4096, 8192), (16384, 2048), (32768, 1024), (2048, 16384))
CHANGES = (
    Change(
        "ce-bf16",
        "liger-1266",
        1.255,
        1.176,
        "Liger #1266, cross entropy by exp2: 1.161 (H100)",
        "the pull request: BT=8192 V=128256, BT from 1024",
        cross_entropy,
        (Case(8192, 128256), Case(4096, 128256), Case(1024, 128256), Case(8192, 32000)),
        Case(4, 200, FP32),
    ),
    Change(
        "ce-fp32",
        "liger-1266",
        1.002,
        0.990,
        "the same in fp32: 1.003 (H100)",
        "the pull request: BT=8192 V=128256, BT from 1024",
        cross_entropy,
        (Case(8192, 128256, FP32), Case(4096, 128256, FP32), Case(1024, 128256, FP32)),
        Case(4, 200, FP32),
    ),
    Change(
        "swiglu",
        "liger-1271",
        0.9985,
        1.20,
        "Liger #1271, the same kernels on Hopper: 1.000 (H100)",
        "the pull request: T from 1024 to 8192, n_cols=14336, backward and full",
        swiglu,
        (
            Case(8192, 14336, part="full"),
            Case(1024, 14336, part="full"),
            Case(8192, 14336, part="backward"),
            Case(1024, 14336, part="backward"),
        ),
        Case(4, 96, FP32, part="full"),
    ),
    Change(
        "one-kernel-less",
        "liger-217",
        1.423,
        1.384,
        "Liger #217, empty_like for zeros_like: no number",
        "benchmark_swiglu.py of that commit: B=4, T from 1024 to 8192, intermediate size 11008; geglu likewise, B=8",
        gated_forward,
        (
            Case(4096, 11008, part="swiglu"),
            Case(8192, 11008, part="swiglu"),
            Case(16384, 11008, part="swiglu"),
            Case(32768, 11008, part="swiglu"),
            Case(4096, 14336, part="swiglu"),
            Case(8192, 14336, part="swiglu"),
            Case(4096, 4096, part="swiglu"),
            Case(8192, 11008, part="geglu"),
        ),
        Case(4, 96, FP32, part="swiglu"),
    ),
    Change(
        "tvd",
        "liger-1127",
        1.681,
        1.680,
        "Liger #1127, TVD scaled in its kernel: about 1.7 (H100)",
        "benchmark_tvd.py of that commit: B=8, T=2048, V from 4096, fp32, forward, batchmean",
        tvd,
        (Case(16384, 32768, FP32), Case(16384, 4096, FP32), Case(16384, 8192, FP32), Case(16384, 16384, FP32)),
        Case(4, 200, FP32),
    ),
    Change(
        "layer-norm-bwd",
        "liger-945",
        1.722,
        1.711,
        "Liger #945, layer_norm backward without atomics: 5 to 12 (A100, no shapes)",
        "benchmark_layer_norm.py of that commit: M=4096, N from 1024 to 16384, fp32; bf16 and more rows are guesses",
        layer_norm_backward,
        (
            *(Case(4096, cols, FP32) for cols in (4096, 1024, 2048, 8192, 16384)),
            *(Case(rows, 4096) for rows in (4096, 8192, 16384)),
            *(Case(rows, 4096, FP32) for rows in (8192, 16384)),
            Case(32768, 1024),
        ),
        Case(16, 64, FP32),
    ),
    Change(
        "rms-norm-block",
        "liger-731",
        5.04,
        4.80,
        "Liger #731, rms_norm of many short rows in blocks: 2 to 4 (A100)",
        "the pull request: head_dim 64, 128, 256 and 32k rows or more, forward and backward; its plots name the rest",
        rms_norm,
        (
            Case(131072, 128, part="backward"),
            Case(262144, 128, part="backward"),
            Case(524288, 128, part="backward"),
            Case(262144, 64, part="backward"),
            Case(131072, 256, part="backward"),
            Case(131072, 128, part="forward"),
            Case(524288, 128, part="forward"),
            Case(524288, 64, part="forward"),
            Case(131072, 128, part="full"),
            Case(524288, 128, part="full"),
        ),
        Case(33000, 16, FP32, part="backward"),
    ),
    Change(
        "fast-llm-norm-bwd",
        "fast-llm-546",
        1.254,
        1.044,
        "Fast-LLM #546, first kernel of the norm backward rewritten",
        "bench_normalization.py of that commit: 32M elements, 1024 to 16384 columns",
        fast_llm_backward,
        (
            Case(8192, 4096, FP32, part="rms_norm"),
            Case(16384, 4096, FP32, part="rms_norm"),
            *(Case(*shape, part=part) for shape in FAST_LLM_SHAPES for part in ("layer_norm", "rms_norm")),
        ),
        Case(32, 64, FP32, part="layer_norm"),
    ),
    Change(
        "rotary",
        "flash-attention-2823",
        1.000,
        4.74,
        "flash-attention #2823, host code only: kernel 2.509 against 2.516 us",
        "the pull request: (32, 1, 32, 128), and (8, 1024, 32, 128)",
        rotary,
        (Case(32, 128, part="sequence of 1"), Case(8, 128, part="sequence of 1024")),
        Case(2, 16, FP32, part="sequence of 1"),
    ),
    Change(
        "relu-squared",
        "liger-1171",
        0.82,
        2.33,
        "Liger relu^2 over torch, forward and backward: 0.21x 'slower'",
        "benchmark_relu_squared.py of #1171: M=4096, N from 128",
        relu_squared,
        (Case(4096, 128),),
        Case(8, 32, FP32),
        over_torch=True,
    ),
    Change(
        "tutorial-softmax",
        "triton-tutorial",
        0.925,
        2.25,
        "Triton tutorial softmax over torch",
        "the tutorial: (1823, 781) in its test, M=4096 and N from 256 in its benchmark",
        tutorial_softmax,
        (Case(1823, 781, FP32), *(Case(4096, cols, FP32) for cols in (256, 512, 1024, 2048, 4096))),
        Case(8, 100, FP32),
        over_torch=True,
    ),
)
