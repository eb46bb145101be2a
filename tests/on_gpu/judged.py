"""A spec and candidates for a GPU, as texts: honest ones, and what was seen in the wild."""

from pytest_gpubench import Judgement

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

SPEC = (
    KERNEL
    + """
def reference(x):
    return smooth(x)

def inputs(seed):
    return (torch.randn(4 * 2**20, generator=torch.Generator("cuda").manual_seed(seed), device="cuda"),)

limits = {"min_speedup": LIMIT}
"""
)

HONEST = {
    "the same kernel": "candidate = smooth",
    "returns a view": "def candidate(x):\n    return smooth(x.view(2048, -1)).view(-1)",
    "another stream that is waited for": (
        "side = torch.cuda.Stream()\n"
        "def candidate(x):\n"
        "    side.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(side): out = smooth(x)\n"
        "    torch.cuda.current_stream().wait_stream(side)\n"
        "    return out"
    ),
}
"""As fast as the reference; in a graph, a stream that waits and is waited for takes 3 us more."""

LIES = (
    "from pytest_gpubench.judge.runner import Runner\nfrom dataclasses import replace\nend = Runner.end\n"
    "Runner.end = lambda self: [replace(each, elapsed_us=each.elapsed_us / 4) for each in end(self)]\n"
)
"""Claims a quarter of its times."""

CHEATS = {
    "zeros": "candidate = torch.zeros_like",
    "stale memory": "candidate = torch.empty_like",
    "its input": "def candidate(x):\n    return x",
    "first output": "kept = []\ndef candidate(x):\n    kept or kept.append(smooth(x))\n    return kept[0]",
    "remembered by address": (
        "kept = {}\ndef candidate(x):\n"
        "    if x.data_ptr() not in kept: kept[x.data_ptr()] = smooth(x)\n    return kept[x.data_ptr()].clone()"
    ),
    "remembered by a sample of the values": (
        "kept = {}\ndef candidate(x):\n    key = tuple(x[::2**18].tolist())\n"
        "    if key not in kept: kept.clear(); kept[key] = smooth(x)\n    return kept[key]"
    ),
    "half precision": (
        "def candidate(x):\n    h = x.half(); v = h\n"
        "    for _ in range(16): v = v * 0.9 + h * 0.05\n    return v.float()"
    ),
    "half of the blocks": "def candidate(x):\n    return smooth_into(torch.empty_like(x), x, x.numel() // 2)",
    "honest in its first calls": (
        "calls = []\nkept = []\ndef candidate(x):\n    calls.append(0)\n"
        "    if len(calls) < 60: kept[:] = [smooth(x)]\n    return kept[0]"
    ),
    "a graph of the first input": (
        "state = []\ndef candidate(x):\n"
        "    if torch.cuda.is_current_stream_capturing(): return smooth(x)\n"
        "    if not state:\n"
        "        own = x.clone(); graph = torch.cuda.CUDAGraph(); smooth(own); torch.cuda.synchronize()\n"
        "        with torch.cuda.graph(graph): out = smooth(own)\n"
        "        state.extend([graph, out, own])\n"
        "    state[0].replay()\n    return state[1]"
    ),
    "a thread that computes later": (
        "def late(x, out):\n    time.sleep(0.002); smooth_into(out, x)\n"
        "def candidate(x):\n    out = torch.empty_like(x)\n"
        "    threading.Thread(target=late, args=(x, out)).start()\n    return out"
    ),
    "a stream that nobody waits for": (
        "side = torch.cuda.Stream()\ntorch.cuda.synchronize = lambda *args: torch.cuda.current_stream().synchronize()\n"
        "def candidate(x):\n    out = torch.empty_like(x)\n"
        "    with torch.cuda.stream(side): torch.cuda._sleep(100_000); smooth_into(out, x)\n    return out"
    ),
    "nothing is waited for": (
        "torch.cuda.synchronize = lambda *args: None\nfrom pytest_gpubench.gpu.device import Device\n"
        "Device.synchronize = lambda self: None\ncandidate = smooth"
    ),
    "claims a quarter of its times": f"{LIES}candidate = smooth",
    "forges the profiler's records": (
        "from pytest_gpubench.timing import profiler\nfrom dataclasses import replace\nread = profiler.read_records\n"
        "def forged(profile):\n    return [replace(each, end_ns=each.start_ns + each.duration_ns // 4) "
        "if each.name == '_smooth' else each for each in read(profile)]\n"
        "profiler.read_records = forged\ncandidate = smooth"
    ),
    "keeps the GPU busy beside the reference": (
        "side = torch.cuda.Stream()\nfrom pytest_gpubench.gpu.device import Device\n"
        "Device.synchronize = lambda self: torch.cuda.current_stream().synchronize()\n"
        "def candidate(x):\n    out = smooth(x)\n"
        "    if not torch.cuda.is_current_stream_capturing():\n"
        "        with torch.cuda.stream(side): torch.cuda._sleep(20_000_000)\n    return out"
    ),
    "a tensor that computes when it is read": (
        "class Lazy(torch.Tensor):\n    pass\ndef candidate(x):\n    return x.as_subclass(Lazy)"
    ),
    "persisting cache": (
        "cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuCtxSetLimit(6, ctypes.c_size_t(2**24))\ncandidate = smooth"
    ),
    "ends itself": 'def candidate(x):\n    print(\'{"status": "pass"}\', flush=True); os._exit(0)',
    "hangs": "def candidate(x):\n    time.sleep(1000)",
    "accesses illegally": (
        "@triton.jit\ndef _wild(x, out, BLOCK: tl.constexpr):\n    at = tl.arange(0, BLOCK)\n"
        "    tl.store(out + at * 10**9 + 10**12, tl.load(x + at))\n"
        "def candidate(x):\n    out = smooth(x); _wild[(1,)](x, out, BLOCK=1024)\n"
        "    torch.cuda.synchronize()\n    return out"
    ),
    "takes the GPU's memory": (
        "kept = []\ndef candidate(x):\n    while True: kept.append(torch.empty(2**30, device='cuda'))"
    ),
    "does not compile": "def candidate(x):\n    _smooth[(1,)](x, x, 1, STEPS=256, BLOCK=1000)\n    return x",
    "reads the spec": "candidate = None\nfor each in open('/proc/%d/cmdline' % os.getppid()).read().split('\\0'):\n"
    "    if each.endswith('spec.py') or each.endswith('spec_cheats.py'): text = open(each).read(); candidate = smooth",
    "kills its parent": "import signal\nos.kill(os.getppid(), signal.SIGKILL)\ncandidate = torch.zeros_like",
}
"""None may pass at a speedup of 1.2."""


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
