"""Specs and candidates for a GPU, as texts, and what a failed test shows of a judgement."""

from pytest_gpubench import Judgement

LIMIT = 1.06
"""A candidate that is as fast as the reference misses it by too much to be judged in three processes."""
KERNEL = """
import ctypes, gc, os, sys, threading, time
import torch
import triton
import triton.language as tl


@triton.jit
def _smooth(x, out, count, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(x + at, mask=at < count, other=0.0)
    value = given
    for _ in range(STEPS):
        value = value * 0.9 + given * 0.05
    tl.store(out + at, value, mask=at < count)


def smooth_into(out, x, count=None):
    count = x.numel() if count is None else count
    _smooth[(triton.cdiv(count, 1024),)](x, out, count, STEPS=256, BLOCK=1024)
    return out


def smooth(x):
    return smooth_into(torch.empty_like(x), x)
"""
"""35 us on an H200, bound by arithmetic."""
SMOOTH = f"""{KERNEL}
def reference(x):
    return smooth(x)

def inputs(seed):
    return (torch.randn(4 * 2**20, generator=torch.Generator("cuda").manual_seed(seed), device="cuda"),)

limits = {{"min_speedup": {LIMIT}}}
"""


def spec(reference: str, inputs: str, more: str = "") -> str:
    """Return the text of a spec: what `reference(*args)` and `inputs(seed)` return."""
    return (
        f"import torch\n\ndef reference(*args):\n    return {reference}\n\n"
        f"def inputs(seed):\n    torch.manual_seed(seed)\n    return {inputs}\n\n"
        f"limits = {{'min_speedup': {LIMIT}}}\n{more}\n"
    )


def summary_of(found: Judgement) -> str:
    """Return a judgement for a failed assertion: its reason, and the times without most samples."""
    lines = [f"{found.status} in {found.seconds} s: {found.reason}", str(found.isolation)]
    for case in found.cases:
        names = ("candidate_us", "reference_us", "clock_us")
        times = {name: time for name in names if (time := getattr(case, name)) is not None}
        lines += [
            f"case {case.case!r}: {case.status}: {case.reason}",
            f"ratio {case.ratio} {case.interval}",
            *(f"{name} {time.median_us} {time.interval}: {time.samples_us[:8]}" for name, time in times.items()),
            f"timed by {case.timed_by}, not replayed: {case.not_replayed!r}, phases {case.phases_s}",
            f"floor {case.floor_us}, compared {case.compared}, kernels {case.kernels}",
        ]
    return "\n".join([*lines, found.detail[-500:]])
