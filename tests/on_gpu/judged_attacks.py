"""Candidates that are no faster than the reference of their spec: none may pass, whatever its process does or saves."""

from tests.on_gpu.judged import SMOOTH, spec

TOKEN = "cell = torch.zeros(32, device='cuda')\ndef token(): cell.add_(1.0)\n"
REPLAY = TOKEN + ("kept = []\ndef candidate(*args):\n    token()\n    kept or kept.append(COMPUTE)\n    return kept[0]")

SAVES = """
from pytest_gpubench.judge import worker
from pytest_gpubench.judge.replayed import SavedCall
from pytest_gpubench.replay.call_data import decode_call, encode_call
from msgspec.structs import replace
import msgspec
saved_call = worker.saved_call

def with_node(call, change):
    (node,) = call.graph.nodes
    return encode_call(replace(call, graph=replace(call.graph, nodes=(change(node),))))

def with_grid(call, grid):
    return with_node(call, lambda node: replace(node, kernel=replace(node.kernel, grid=grid)))

def changed_call(runner, device):
    found = msgspec.msgpack.decode(saved_call(runner, device), type=SavedCall)
    call = decode_call(found.call)
    return msgspec.msgpack.encode(replace(found, CHANGE))

worker.saved_call = changed_call
candidate = smooth
"""
"""Saves another call than it makes."""
COUNTS = """
@triton.jit
def _counting(x, out, calls, count, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(x + at, mask=at < count, other=0.0)
    value = given
    number = tl.load(calls)
    if tl.program_id(0) == 0:
        tl.atomic_add(calls, 1)
    BODY
    for _ in range(STEPS):
        value = value * 0.9 + given * 0.05
    tl.store(out + at, value, mask=at < count)

kept = []
def candidate(x):
    kept or kept.append(torch.zeros(1, dtype=torch.int32, device=x.device))
    out = torch.empty_like(x)
    _counting[(triton.cdiv(x.numel(), 1024),)](x, out, kept[0], x.numel(), STEPS=256, BLOCK=1024)
    return out
"""
"""A kernel that counts its calls, in memory beside its inputs."""
NAMED = """
@triton.jit
def gpu_bench_begin(x):
    pass

@triton.jit
def gpu_bench_end(x):
    pass

def candidate(x):
    gpu_bench_end[(1,)](x)
    out = smooth(x)
    gpu_bench_begin[(1,)](x)
    return out
"""
BODIES = {
    "stale memory": "candidate = torch.empty_like",
    "remembered by address": (
        "kept = {}\ndef candidate(x):\n"
        "    if x.data_ptr() not in kept: kept[x.data_ptr()] = smooth(x)\n    return kept[x.data_ptr()].clone()"
    ),
    "remembered by a sample of the values": (
        "kept = {}\ndef candidate(x):\n    key = tuple(x[::2**18].tolist())\n"
        "    if key not in kept: kept.clear(); kept[key] = smooth(x)\n    return kept[key]"
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
    "persisting cache": (
        "cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuCtxSetLimit(6, ctypes.c_size_t(2**24))\ncandidate = smooth"
    ),
    "the kernel returns early where it knows a sample": (
        """
@triton.jit
def _memo(x, out, seen, count, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    places = tl.arange(0, 32)
    mark = tl.sum(tl.load(x + program * BLOCK + places) * (places + 1).to(tl.float32))
    if mark != tl.load(seen + program):
        at = program * BLOCK + tl.arange(0, BLOCK)
        given = tl.load(x + at, mask=at < count, other=0.0)
        value = given
        for _ in range(STEPS):
            value = value * 0.9 + given * 0.05
        tl.store(out + at, value, mask=at < count)
        tl.store(seen + program, mark)

state = {}
def candidate(x):
    if not state:
        state["out"] = torch.empty_like(x)
        state["seen"] = torch.full((x.numel() // 1024,), float("nan"), device=x.device)
    _memo[(x.numel() // 1024,)](x, state["out"], state["seen"], x.numel(), STEPS=256, BLOCK=1024)
    return state["out"]
"""
    ),
    "honest after a pause": (
        "state = []\nlast = [0.0, 2]\ndef candidate(x):\n    state or state.append(torch.empty_like(x))\n"
        "    now = time.perf_counter()\n    if now - last[0] > 2e-3: last[1] = 2\n    last[1] -= 1\n"
        "    smooth_into(state[0], x, None if last[1] >= 0 else 1024)\n    last[0] = time.perf_counter()\n"
        "    return state[0]"
    ),
    "nothing is launched while a graph is captured": (
        TOKEN + "def candidate(x):\n    token()\n    out = torch.empty_like(x)\n"
        "    return out if torch.cuda.is_current_stream_capturing() else smooth_into(out, x)"
    ),
    "the destructor of the last output does the work": (
        TOKEN + "class Afterwards:\n    def __init__(self, work): self.work = work\n"
        "    def __del__(self): self.work()\n"
        "out = []\ndef candidate(x):\n    token()\n    out or out.append(smooth(x))\n    result = out[0].detach()\n"
        "    result.afterwards = Afterwards(lambda: smooth_into(out[0], x))\n    return result"
    ),
    "does nothing from its thirteenth call on": COUNTS.replace("BODY", "count = tl.where(number > 12, 0, count)"),
    "does nothing in every second call": COUNTS.replace(
        "BODY", "count = tl.where((number > 12) & (number % 2 == 1), 0, count)"
    ),
    "works between sentinels of its own": NAMED,
    "saves no call": "from pytest_gpubench.judge import worker\nworker.saved_call = lambda *given: b'x' * 1000\n"
    "candidate = smooth",
    "saves fewer blocks": SAVES.replace("CHANGE", "call=with_grid(call, (64, 1, 1))"),
    "saves another image": SAVES.replace("CHANGE", "images={name: b'no image' * 99 for name in found.images}"),
    "saves a place outside of its memory": SAVES.replace(
        "CHANGE",
        "call=with_node(call, lambda node: replace("
        "node, pointers=tuple(replace(each, distance=2**44) for each in node.pointers)))",
    ),
    "saves a huge grid": SAVES.replace("CHANGE", "call=with_grid(call, (2**31 - 1, 60000, 1))"),
}
"""Judged by `SMOOTH`."""
SLOW_ATTACKS = {
    "never ends, from its thirteenth call on": COUNTS.replace(
        "BODY", "while (number > 12) & (tl.load(x, volatile=True) < 1e30):\n        pass"
    ),
    "counts its calls as done, in the memory behind its inputs": COUNTS.replace(
        "BODY", "tl.store((x + count).to(tl.pointer_type(tl.int32)) + tl.arange(0, 128), 2000000)"
    ),
}
MATMUL = spec(
    "torch.matmul(*args)", "torch.randn(1536, 1536), torch.randn(1536, 1536)", "tolerance = {'golden': 'float64'}"
)
NAN = MATMUL.replace("{'golden': 'float64'}", "{'equal_nan': True, 'rtol': 1e-4, 'atol': 1e-3}")
PRODUCT = "torch._scaled_mm(args[0], args[1].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)"
FLOAT8 = spec(
    PRODUCT,
    "[torch.randn(4096, 4096).to(torch.float8_e4m3fn) for _ in range(2)]",
    "one = torch.ones((), device='cuda')",
)
EXPANDED = spec(
    "torch.matmul(*args)",
    "[torch.randn(1536, 1).expand(1536, 1536) for _ in range(2)]",
    "tolerance = {'golden': 'float64'}",
)
CHAIN = spec(
    "chain(*args)",
    "torch.randn(64, 64), torch.randn(64, 64) / 16",
    "def chain(a, w):\n    value = a\n    for _ in range(8): value = torch.tanh(value @ w + a)\n    return value\n"
    "tolerance = {'rtol': 1e-3, 'atol': 1e-3}",
)
ATTACKS = {
    **{name: (SMOOTH, body) for name, body in BODIES.items()},
    "the processor computes while the GPU waits": (
        CHAIN,
        "def candidate(a, w):\n    device, value, a, w = a.device, a.cpu(), a.cpu(), w.cpu()\n"
        "    for _ in range(8): value = torch.tanh(value @ w + a)\n    return value.to(device)",
    ),
    "a replay of float8": (
        FLOAT8,
        "one = torch.ones((), device='cuda')\n" + REPLAY.replace("COMPUTE", PRODUCT),
    ),
    "a replay of expanded inputs": (EXPANDED, REPLAY.replace("COMPUTE", "torch.matmul(*args)")),
    "inputs are overwritten with NaN": (
        NAN,
        TOKEN + "calls = []\ndef candidate(a, b):\n    token()\n    calls.append(0)\n"
        "    if len(calls) < 8: return torch.matmul(a, b)\n    a.fill_(float('nan'))\n"
        "    return torch.full_like(a, float('nan'))",
    ),
    "TF32": (
        MATMUL,
        "torch.backends.cuda.matmul.allow_tf32 = True\ndef candidate(a, b):\n    return torch.matmul(a, b)",
    ),
}
"""Each with its spec."""
PARENT = r"""
#include <cuda_runtime.h>

__global__ void hidden_work(const float* x, float* out, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  float given = x[at], value = given;
  for (int step = 0; step < 256; ++step) value = value * 0.9f + given * 0.05f;
  out[at] = value;
}

__global__ void parent(const float* x, float* out, int count) {
  hidden_work<<<(count + 255) / 256, 256, 0, cudaStreamFireAndForget>>>(x, out, count);
}

extern "C" int launch(const float* x, float* out, int count, cudaStream_t stream) {
  parent<<<1, 1, 0, stream>>>(x, out, count);
  return cudaGetLastError();
}
"""
"""A kernel of one thread that launches the work: the profiler may record the parent alone."""
LAUNCHED_BY_THE_GPU = """
import base64, tempfile
path = tempfile.mktemp(suffix=".so")
open(path, "wb").write(base64.b64decode(LIBRARY))
library = ctypes.CDLL(path)

def candidate(x):
    out = torch.empty_like(x)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr())
    if error := library.launch(*pointers, x.numel(), stream): raise RuntimeError(f"CUDA error {error}")
    return out
"""
