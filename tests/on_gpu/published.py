"""Measure published kernel changes again: `python -m tests.on_gpu.published FOLDER [name ...]`.

FOLDER holds what is compared, laid out as in the projects' repositories: `<folder of the change>/before` and `/after`,
each with the package of that commit (`liger_kernel`, `fast_llm`, `flash_attn`; `fused_softmax.py` for the tutorial).
Only the modules that are measured need to be there. `--check` compares outputs of tiny inputs on the CPU instead of
timing, with TRITON_INTERPRET=1 in the environment.
"""

import argparse
import gc
import importlib
import inspect
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton

from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.limits import Limits
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.timing.calls import Backward
from pytest_gpubench.timing.profiler import ProfilerTimer, self_test
from tests.on_gpu.harness import bench_of, study_test_with

ALLOWED = 0.02
"""How far a ratio may be from the one to be reproduced."""
BARE_PACKAGES = {
    "liger_kernel",
    "liger_kernel.ops",
    "fast_llm",
    "fast_llm.functional",
    "flash_attn",
    "flash_attn.ops",
    "flash_attn.ops.triton",
}
"""Packages whose `__init__` is left out: it imports all there is, and more than is installed."""


@dataclass(frozen=True)
class Side:
    """The sources of one commit."""

    root: Path

    def load(self, name: str) -> Any:
        """Import a module of this commit, and leave no trace of it in sys.modules for the other commit to find."""
        top = name.partition(".")[0]
        with only_modules(top, bare_packages(top, self.root) | stand_ins(top)):
            sys.path.insert(0, str(self.root))
            try:
                importlib.invalidate_caches()
                return importlib.import_module(name)
            finally:
                sys.path.remove(str(self.root))


@contextmanager
def only_modules(top: str, modules: dict[str, ModuleType]) -> Iterator[None]:
    """Let a top-level package consist of these modules, and of what is imported meanwhile."""
    held = {name: sys.modules.pop(name) for name in modules_of(top)}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules_of(top):
            del sys.modules[name]
        sys.modules.update(held)


def modules_of(top: str) -> list[str]:
    return [name for name in sys.modules if name == top or name.startswith(f"{top}.")]


def bare_packages(top: str, root: Path) -> dict[str, ModuleType]:
    """Return packages that know where their modules lie, and nothing else."""
    packages: dict[str, ModuleType] = {}
    for name in sorted(BARE_PACKAGES):
        if name.partition(".")[0] == top:
            packages[name] = ModuleType(name)
            packages[name].__path__ = [str(root.joinpath(*name.split(".")))]
    return packages


def stand_ins(top: str) -> dict[str, ModuleType]:
    """Return what stands for modules that would import a whole training framework."""
    if top != "fast_llm":
        return {}

    def is_first_gradient(param: Any) -> bool:
        first = bool(param.param_grad_is_zero)
        param.param_grad_is_zero = False
        return first

    given: dict[str, dict[str, object]] = {
        "fast_llm.utils": {"try_decorate": lambda find: find(), "InvalidObject": object},
        "fast_llm.tensor": {"param_get_and_unset_is_zero": is_first_gradient},
        "fast_llm.functional.utils": {"wrap_forward_backward": lambda forward, backward: (forward, backward)},
    }
    modules = {name: ModuleType(name) for name in given}
    for name, contents in given.items():
        vars(modules[name]).update(contents)
    return modules


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


@dataclass(frozen=True)
class Found:
    """What a case came to, in the table's convention."""

    ratio: float
    interval: Interval | None
    quads: int
    rival: float
    before_us: float
    after_us: float
    took_s: float


def rival_call(function: Callable[..., Any], pair: Pair) -> tuple[Callable[[], object], list[torch.Tensor]]:
    """Return what do_bench times, and whose gradients it drops; it has no untimed setup, so that is timed too."""
    if pair.backward == "forward":
        return (lambda: function(*(pair.setup() if pair.setup else pair.args))), []
    upstream = torch.ones_like(function(*pair.args))
    leaves = [arg for arg in pair.args if isinstance(arg, torch.Tensor)]
    return lambda: function(*pair.args).backward(upstream), leaves


def time_by_rival(function: Callable[..., Any], pair: Pair) -> float:
    """Return do_bench's median in milliseconds."""
    call, leaves = rival_call(function, pair)
    return float(triton.testing.do_bench(call, grad_to_none=leaves or None, return_mode="median"))


def measure(pair: Pair, over_torch: bool, max_time_s: float | None) -> Found:
    """Compare as a test would, and by do_bench."""
    began_s = time.perf_counter()
    comparison = bench_of(study_test_with(Limits(), seed=0)).compare(
        {"after": pair.candidate},
        pair.reference,
        pair.args,
        setup=pair.setup,
        backward=pair.backward,
        rtol=pair.rtol,
        atol=pair.atol,
        max_time=max_time_s,
    )
    took_s = time.perf_counter() - began_s
    speedup = comparison["after"].speedup
    assert speedup is not None
    rival = time_by_rival(pair.reference, pair) / time_by_rival(pair.candidate, pair)
    ratio, interval = speedup.ratio, speedup.interval
    if over_torch:
        ratio, rival = 1 / ratio, 1 / rival
        interval = interval and Interval(low=1 / interval.high, high=1 / interval.low)
    before_us, after_us = comparison.reference.median_us, comparison.timing.median_us
    return Found(ratio, interval, speedup.quads, rival, before_us, after_us, took_s)


def check(pair: Pair) -> str:
    """Compare outputs on the CPU, in Triton's interpreter; return how they differ."""
    test = study_test_with(Limits(), seed=0)
    test.settings = replace(test.settings, device="cpu")
    comparison = bench_of(test).compare(
        {"after": pair.candidate},
        pair.reference,
        pair.args,
        setup=pair.setup,
        backward=pair.backward,
        rtol=pair.rtol,
        atol=pair.atol,
        reps=20,
    )
    return ", ".join(comparison["after"].differences)


def line_of(change: Change, case: Case, found: Found) -> str:
    off = found.ratio / change.table - 1
    interval = f"[{found.interval.low:.4f}, {found.interval.high:.4f}]" if found.interval else "[too few quads]"
    return (
        f"| {change.name} | {case} | {found.ratio:.4f} {interval} | {found.quads} | {change.table:g} | {off:+.2%} "
        f"{'ok' if abs(off) <= ALLOWED else 'OFF'} | {found.rival:.3f} | {change.rival:g} | "
        f"{found.before_us:.2f} | {found.after_us:.2f} | {found.took_s:.2f} |"
    )


def sides_of(folder: Path, change: Change) -> tuple[Side, Side]:
    """Return both commits; raise FileNotFoundError where nothing is laid out for this change."""
    root = (folder / change.folder).resolve()
    if not (root / "after").is_dir():
        raise FileNotFoundError(f"{root / 'after'} is not there: it must hold the package of that commit")
    return Side(root / "before"), Side(root / "after")


def run(folder: Path, changes: Sequence[Change], all_shapes: bool, max_time_s: float | None) -> None:
    """Print a line for each case; a case that fails says so in its line."""
    device = find_device("cuda")
    self_test(ProfilerTimer(device, "cold"))
    print("| change | on | ratio | quads | table | off by | do_bench | the table's | before us | after us | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    offs: dict[str, list[float]] = {change.name: [] for change in changes}
    for change in changes:
        for case in change.cases if all_shapes else change.cases[:1]:
            try:
                found = measure_case(folder, change, case, device.torch_device, max_time_s)
                offs[change.name].append(abs(found.ratio / change.table - 1))
                print(line_of(change, case, found), flush=True)
            except Exception as error:
                print(failed(change, case, error), flush=True)
            gc.collect()
            torch.cuda.empty_cache()
    print()
    for change in changes:
        print(f"- {change.name}: {change.published}; shapes from {change.shapes_from}")
    within = sum(min(found, default=1.0) <= ALLOWED for found in offs.values())
    print(f"\n{within} of {len(changes)} changes within {ALLOWED:.0%} of the table, on the best of their shapes")
    known = [min(found) for found in offs.values() if found]
    if known:
        print(f"median distance {statistics.median(known):.2%}")


def measure_case(folder: Path, change: Change, case: Case, device: torch.device, max_time_s: float | None) -> Found:
    """Measure a case; its tensors are gone when this returns."""
    return measure(change.make(*sides_of(folder, change), case, device), change.over_torch, max_time_s)


def run_check(folder: Path, changes: Sequence[Change]) -> None:
    """Print how the outputs of tiny inputs differ."""
    for change in changes:
        for part in dict.fromkeys(case.part for case in change.cases):
            tiny = replace(change.tiny, part=part)
            try:
                pair = change.make(*sides_of(folder, change), tiny, torch.device("cpu"))
                print(f"| {change.name} | {tiny} | {check(pair)} |", flush=True)
            except Exception as error:
                print(failed(change, tiny, error), flush=True)


def failed(change: Change, case: Case, error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"| {change.name} | {case} | {type(error).__name__}: {text:.300} |"


def main() -> None:
    """Run the changes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(c.name for c in CHANGES)}")
    parser.add_argument("--all-shapes", action="store_true", help="all shapes that the claim may have been made on")
    parser.add_argument("--max-time", type=float, help="seconds of a comparison; unset, as in a test without a limit")
    parser.add_argument("--check", action="store_true", help="compare outputs of tiny inputs on the CPU")
    chosen = parser.parse_intermixed_args()
    unknown = set(chosen.names) - {change.name for change in CHANGES}
    if unknown:
        parser.error(f"there is no change {', '.join(sorted(unknown))}")
    changes = [change for change in CHANGES if not chosen.names or change.name in chosen.names]
    if chosen.check:
        run_check(chosen.folder, changes)
    else:
        run(chosen.folder, changes, chosen.all_shapes, chosen.max_time)


if __name__ == "__main__":
    main()
