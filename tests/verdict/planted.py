"""Measurements before and after a planted cause, and the beginning of the reason that names it."""

from typing import Any, Literal

from pytest_gpubench import Kernel, Measurement, Speedup
from pytest_gpubench.results.model import Code, Overhead, Stretch
from pytest_gpubench.results.observed import AllocatedMemory, Observed, Wait
from tests.results.measured import kernel, resources, speedup_over, timing_of

COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::bfloat16tofloat32_copy_kernel_cuda>(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<(int){}, at::native::CUDAFunctor_add<float>>(int)"
FAST, SLOW = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "ampere_sgemm_128x64_tn"
NORM = "layer_norm_kernel"


def measured(*kernels: Kernel, role: Literal["", "reference", "candidate"] = "", **others: Any) -> Measurement:
    """Return a measurement of a call with these kernels, which took their times together."""
    us = sum(each.median_us for each in kernels) or others.pop("us", 100.0)
    found = {key: others.pop(key) for key in ("overhead", "verdicts", "speedup", "change", "observed") if key in others}
    return Measurement(timing=timing_of([us] * 20, "norm", kernels=kernels, **others), role=role, **found)


def one(name: str = NORM, us: float = 57.0, launches: int = 1, **others: Any) -> Kernel:
    return kernel(name, launches, us, resources=(resources(**others),))


def small(**others: Any) -> Kernel:
    """Return a kernel whose grid fills eight waves of an H200."""
    known = {"grid": (2112, 1, 1), "block": (128, 1, 1), "registers": 64, "blocks_per_sm": 2, "resident_blocks": 264}
    return one(**{**known, **others})


def launched(host_us: float | None) -> Overhead:
    return Overhead(label="norm", host_us=host_us, busy_us=57, span_us=60, eager_us=61, graph_us=None)


def took(peak_bytes: int) -> Observed:
    return Observed(memory=AllocatedMemory(1, peak_bytes, peak_bytes, 0))


def code(**constants: str) -> Code:
    return Code(constants=constants)


def at_memory_clock(mhz: int) -> tuple[Stretch, ...]:
    return (Stretch(reps=20, memory_clock_mhz=mhz),)


def against(reference_us: float) -> Speedup:
    return speedup_over(reference_us, reference_us / 57)


ONE_BLOCK = {"blocks_per_sm": 1, "resident_blocks": 132}
TAKES: dict[str, tuple[dict[str, Any], str]] = {
    "spilled registers": ({"local_bytes": 600}, "local memory of a thread 0 B -> 600 B"),
    "registers that halve the blocks": ({"registers": 72, **ONE_BLOCK}, "registers 64 -> 72, so blocks per SM 2 -> 1"),
    "shared memory": ({"dynamic_shared_bytes": 2**17, **ONE_BLOCK}, "shared memory 0 B -> 128 KiB, so blocks per SM 2"),
    "fewer blocks than multiprocessors": ({"grid": (32, 1, 1)}, "blocks 2112 -> 32, on 132 multiprocessors"),
    "a tuned configuration": (
        {"block": (256, 1, 1), "grid": (1056, 1, 1), **ONE_BLOCK},
        "blocks per SM 2 -> 1, threads per block 128 -> 256, blocks 2112 -> 1056",
    ),
}
"""What a kernel takes now, and the words that follow its name."""
CODES = {
    "another tile": (code(BLOCK="64", warps="4"), code(BLOCK="32", warps="8"), "BLOCK 64 -> 32, warps 4 -> 8"),
    "a stride that is no constant": (code(across="1"), code(down="1"), "across 1 -> variable, down variable -> 1"),
    "narrow loads and stores": (
        Code(loads=2, load_bytes=16, stores=2, store_bytes=16),
        Code(loads=8, load_bytes=4, stores=8, store_bytes=4),
        "loads in its code 2 of 16 B -> 8 of 4 B, stores 2 of 16 B -> 8 of 4 B",
    ),
    "a row read twice": (Code(loads=2, load_bytes=4), Code(loads=4, load_bytes=4), "loads in its code 2 of 4 B -> 4"),
    "more arithmetic": (Code(instructions=60), Code(instructions=248), "instructions in its code 60 -> 248"),
    "atomics": (Code(stores=1, store_bytes=4), Code(atomics=1), "atomics in its code 0 -> 1"),
}
"""The code of a kernel before and now, and the words that follow its name."""
ENGINE = "Memcpy DtoD (Device -> Device)"
ADDED = {
    "a copy": (one(COPY, 35.0), "elementwise_kernel<direct_copy_kernel_cuda> (38 % of the time)"),
    "a copy by the engine": (kernel(ENGINE, 1, 35.0, kind="memcpy"), f"{ENGINE} (38 % of the time)"),
    "a cast": (one(CAST, 38.0), "unrolled_elementwise_kernel<bfloat16tofloat32_copy_kernel_cuda> (40 % of the time)"),
    "an allocation that is filled": (one(FILL, 19.0), "vectorized_elementwise_kernel<FillFunctor> (25 % of the time)"),
}
CALLS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "more bytes": ({"moved_bytes": 2**28}, {"moved_bytes": 2**29}, "moves at least 256 MiB -> 512 MiB"),
    "more operations": ({"flops": 10**9}, {"flops": 2 * 10**9}, "computes 1e+09 -> 2e+09 operations"),
    "a wait": ({"overhead": launched(12)}, {"overhead": launched(None)}, "the host waits for the GPU within the call"),
    "an allocation": ({"observed": took(2**20)}, {"observed": took(2**26)}, "allocates 1 MiB -> 64 MiB of GPU"),
}
"""What is known of a call before and now."""
BY_THE_HOST = {
    "a wait by the host's clock": (
        Observed((Wait("x.item()", "a.py:3"),), {"cudaStreamSynchronize": 2}),
        "the host waits for the GPU 0 -> 2 times in a call: x.item() (a.py:3)",
    ),
    "compiling in each call": (Observed(compilations=1), "compiles 0 -> 1 kernels or graphs in each call"),
    "memory of the driver": (
        Observed(driver_allocations={"cudaMalloc": 1, "cudaFree": 1}),
        "takes GPU memory from the driver, or gives it back, 0 -> 2 times in a call (cudaMalloc, cudaFree)",
    ),
}
PLANTED: dict[str, tuple[Measurement, Measurement, str]] = {
    **{
        name: (measured(small()), measured(small(us=90, **taken)), f"{NORM}: {words}")
        for name, (taken, words) in TAKES.items()
    },
    **{
        name: (measured(small(code=old)), measured(small(us=90, code=new)), f"{NORM}: {words}")
        for name, (old, new, words) in CODES.items()
    },
    **{
        name: (measured(small()), measured(small(), each), f"one more kernel: {words}")
        for name, (each, words) in ADDED.items()
    },
    **{
        name: (measured(small(), **old), measured(small(us=110), **new), words)
        for name, (old, new, words) in CALLS.items()
    },
    "a tail wave": (
        measured(small(grid=(264, 1, 1))),
        measured(small(us=100, grid=(265, 1, 1))),
        f"{NORM}: blocks 264 -> 265, leaves 99.62 % of the GPU idle in the last of its 2 waves (1 of 264 blocks), was",
    ),
    **{
        name: (measured(observed=Observed(), timer="wall"), measured(us=120, observed=seen, timer="wall"), words)
        for name, (seen, words) in BY_THE_HOST.items()
    },
    "eager operators for a fused one": (
        measured(one("triton_poi_fused_add_mul_0", 50.0)),
        measured(one("triton_poi_fused_add_0", 50.0), one(ADD.format(4), 48.0, 2), one(COPY, 20.0)),
        "3 more kernels: 2 x vectorized_elementwise_kernel<CUDAFunctor_add> (41 % of the time), "
        "elementwise_kernel<direct_copy_kernel_cuda> (17 % of the time)",
    ),
    "more launches": (measured(one(us=10.0)), measured(one(us=640.0, launches=64)), f"{NORM}: launches 1 -> 64"),
    "another kernel of a library": (
        measured(kernel(FAST, 1, 50.0), one("bias", 5.0)),
        measured(kernel(SLOW, 1, 200.0), one("bias", 5.0)),
        f"{SLOW} in place of {FAST} (50.00 us -> 200.0 us)",
    ),
    "lost vector loads": (
        measured(one(ADD.format(4), 50.0)),
        measured(one(ADD.format(1), 90.0)),
        "vectorized_elementwise_kernel<(int)1, CUDAFunctor_add> in place of "
        "vectorized_elementwise_kernel<(int)4, CUDAFunctor_add>",
    ),
    "launching": (
        measured(overhead=launched(12.0), timer="wall"),
        measured(overhead=launched(85.0), timer="wall"),
        "launching it takes the host 12.00 us -> 85.00 us",
    ),
    "launches between events": (
        measured(observed=Observed(kernels={"fused": 1}), timer="events"),
        measured(us=120, observed=Observed(kernels={ADD.format(4): 2, COPY: 1}), timer="events"),
        "launches 1 -> 3 kernels and copies, more of vectorized_elementwise_kernel<CUDAFunctor_add>, "
        "elementwise_kernel<direct_copy_kernel_cuda>",
    ),
    "a lower clock": (
        measured(small(), sm_clock_mhz=(1980.0,)),
        measured(small(us=80), sm_clock_mhz=(1410.0,) * 20),
        "SM clock 1980 -> 1410 MHz: not the code",
    ),
    "a lower memory clock": (
        measured(small(), sm_clock_mhz=(1980.0,) * 20, stretches=at_memory_clock(3201)),
        measured(small(us=71.3), sm_clock_mhz=(1980.0,) * 20, stretches=at_memory_clock(2560)),
        "memory clock 3201 -> 2560 MHz: not the code",
    ),
    "throttling": (
        measured(small(), sm_clock_mhz=(1980.0,)),
        measured(small(us=80), sm_clock_mhz=(1410.0,) * 20, throttle_reasons=("SwPowerCap",)),
        "SM clock 1980 -> 1410 MHz, throttled (SwPowerCap): not the code",
    ),
    "throttling at an unknown clock": (
        measured(),
        measured(us=120, throttle_reasons=("HwThermalSlowdown",)),
        "throttled (HwThermalSlowdown)",
    ),
}
