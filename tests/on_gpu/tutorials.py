"""Benchmarks in the shape of Triton's tutorials 02 and 03, which differ from theirs in what do_bench is."""

import torch
import triton
import triton.testing

from example_suite.kernels.matmul import matmul
from example_suite.kernels.softmax import softmax
from pytest_gpubench import bench

do_bench = bench.do_bench


@triton.testing.perf_report(  # type: ignore[untyped-decorator] # triton has no types
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[128 * i for i in range(8, 41, 16)],
        line_arg="provider",
        line_vals=["triton", "torch"],
        line_names=["Triton", "Torch"],
        styles=[("blue", "-"), ("green", "-")],
        ylabel="GB/s",
        plot_name="softmax-performance",
        args={"M": 4096},
    )
)
def fused_softmax(M: int, N: int, provider: str) -> float:
    x = torch.randn(M, N, device="cuda", dtype=torch.float32)
    ms = do_bench(lambda: softmax(x)) if provider == "triton" else do_bench(lambda: torch.softmax(x, -1))

    def gbps(ms: float) -> float:
        return 2 * x.numel() * x.element_size() * 1e-9 / (ms * 1e-3)

    return gbps(ms)


@triton.testing.perf_report(  # type: ignore[untyped-decorator] # triton has no types
    triton.testing.Benchmark(
        x_names=["M", "N", "K"],
        x_vals=[1024, 2048],
        line_arg="provider",
        line_vals=["cublas", "triton"],
        line_names=["cuBLAS", "Triton"],
        styles=[("green", "-"), ("blue", "-")],
        ylabel="TFLOPS",
        plot_name="matmul-performance-fp16",
        args={},
    )
)
def matrix_multiplication(M: int, N: int, K: int, provider: str) -> tuple[float, float, float]:
    a = torch.randn((M, K), device="cuda", dtype=torch.float16)
    b = torch.randn((K, N), device="cuda", dtype=torch.float16)
    multiply = torch.matmul if provider == "cublas" else matmul
    ms, min_ms, max_ms = do_bench(lambda: multiply(a, b), quantiles=[0.5, 0.2, 0.8])

    def perf(ms: float) -> float:
        return 2 * M * N * K * 1e-12 / (ms * 1e-3)

    return perf(ms), perf(max_ms), perf(min_ms)
