"""Tricks that got a PASS from `compare`, as specs and candidates: none may pass where an honest candidate is 1.0x."""

from dataclasses import dataclass

from tests.on_gpu.judged import KERNEL, SPEC

LIMIT = 1.06
"""A candidate that is as fast as the reference misses it by too much to be judged in three processes."""
SMOOTH = SPEC.replace("LIMIT", str(LIMIT))
TOKEN = "cell = torch.zeros(32, device='cuda')\ndef token(): cell.add_(1.0)\n"
STACK = """
def on_stack(*names):
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in names: return True
        frame = frame.f_back
    return False
"""
REPLAY = TOKEN + ("kept = []\ndef candidate(*args):\n    token()\n    kept or kept.append(COMPUTE)\n    return kept[0]")


def spec(reference: str, inputs: str, more: str = "") -> str:
    """Return the text of a spec: what `reference(*args)` and `inputs(seed)` return."""
    return (
        f"import torch\n\ndef reference(*args):\n    return {reference}\n\n"
        f"def inputs(seed):\n    torch.manual_seed(seed)\n    return {inputs}\n\n"
        f"limits = {{'min_speedup': {LIMIT}}}\n{more}\n"
    )


MATMUL = spec(
    "torch.matmul(*args)", "torch.randn(1536, 1536), torch.randn(1536, 1536)", "tolerance = {'golden': 'float64'}"
)
NAN = MATMUL.replace("{'golden': 'float64'}", "{'equal_nan': True, 'rtol': 1e-4, 'atol': 1e-3}")
SORT = spec("torch.sort(args[0]).values", "torch.randint(2**31 - 1, (2**20,), dtype=torch.int32)")
FLOAT8 = spec(
    "torch._scaled_mm(args[0], args[1].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)",
    "[torch.randn(4096, 4096).to(torch.float8_e4m3fn) for _ in range(2)]",
    "one = torch.ones((), device='cuda')",
)
EXPANDED = spec(
    "torch.matmul(*args)",
    "[torch.randn(1536, 1).expand(1536, 1536) for _ in range(2)]",
    "tolerance = {'golden': 'float64'}",
)
FLAT = spec("torch.softmax(args[0], -1)", "0.1 * torch.randn(32, 262144)")
NORM = spec("args[0].norm().item()", "torch.randn(2**22)")
ROWS = spec("args[0].mean(0, keepdim=True).repeat(2048, 1)", "torch.randn(2048, 2048)")
WIDE = spec("args[0] * 2", "torch.randn(6 * 2**20)")
CHAIN = spec(
    "chain(*args)",
    "torch.randn(64, 64), torch.randn(64, 64) / 16",
    "def chain(a, w):\n    value = a\n    for _ in range(8): value = torch.tanh(value @ w + a)\n    return value\n"
    "tolerance = {'rtol': 1e-3, 'atol': 1e-3}",
)
ATTENTION = spec(
    "torch.nn.functional.scaled_dot_product_attention(*args)",
    "[torch.randn(4, 16, 1024, 64, dtype=torch.bfloat16) for _ in range(3)]",
    "tolerance = {'rtol': 5e-2, 'atol': 1e-2}",
)


@dataclass(frozen=True)
class Trick:
    """A candidate, and the spec that it is judged by."""

    spec: str
    body: str

    @property
    def text(self) -> str:
        """The candidate's file."""
        return f"{KERNEL}\n\n{self.body}\n"


TRICKS = {
    "the kernel returns early where it knows a sample": Trick(
        SMOOTH,
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
""",
    ),
    "honest where the stack says that it is checked": Trick(
        SMOOTH,
        STACK + "out = []\ndef candidate(x):\n    out or out.append(torch.empty_like(x))\n"
        "    return smooth_into(out[0], x, None if on_stack('first', 'warm_up', 'do_first') else 1024)",
    ),
    "honest after a pause": Trick(
        SMOOTH,
        "state = []\nlast = [0.0, 2]\ndef candidate(x):\n    state or state.append(torch.empty_like(x))\n"
        "    now = time.perf_counter()\n    if now - last[0] > 2e-3: last[1] = 2\n    last[1] -= 1\n"
        "    smooth_into(state[0], x, None if last[1] >= 0 else 1024)\n    last[0] = time.perf_counter()\n"
        "    return state[0]",
    ),
    "nothing is launched while a graph is captured": Trick(
        SMOOTH,
        TOKEN + "def candidate(x):\n    token()\n    out = torch.empty_like(x)\n"
        "    return out if torch.cuda.is_current_stream_capturing() else smooth_into(out, x)",
    ),
    "the destructor of the last output does the work": Trick(
        SMOOTH,
        TOKEN + "class Afterwards:\n    def __init__(self, work): self.work = work\n"
        "    def __del__(self): self.work()\n"
        "out = []\ndef candidate(x):\n    token()\n    out or out.append(smooth(x))\n    result = out[0].detach()\n"
        "    result.afterwards = Afterwards(lambda: smooth_into(out[0], x))\n    return result",
    ),
    "the flush is left out": Trick(
        WIDE,
        "calls = []\ndef candidate(x):\n    calls.append(0)\n    if len(calls) == 2:\n"
        "        for each in gc.get_objects():\n"
        "            if type(each).__name__ == 'ProfilerTimer': each.flush = lambda: None\n    return x * 2",
    ),
    "the untimed call computes the timed one": Trick(
        SMOOTH,
        f"{KERNEL}first, ready = [], []\ndef candidate(x):\n    first or first.append(x)\n"
        "    if not torch.autograd._profiler_enabled(): return smooth(x)\n"
        "    if x.data_ptr() == first[0].data_ptr(): return ready.pop() if ready else smooth(x)\n"
        "    ready[:] = [smooth(first[0])]\n    return smooth(x)",
    ),
    "the processor computes while the GPU waits": Trick(
        CHAIN,
        "def candidate(a, w):\n    device, value, a, w = a.device, a.cpu(), a.cpu(), w.cpu()\n"
        "    for _ in range(8): value = torch.tanh(value @ w + a)\n    return value.to(device)",
    ),
    "a replay of integers": Trick(SORT, REPLAY.replace("COMPUTE", "torch.sort(args[0]).values")),
    "a replay of float8": Trick(
        FLOAT8,
        "one = torch.ones((), device='cuda')\n"
        + REPLAY.replace(
            "COMPUTE", "torch._scaled_mm(args[0], args[1].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)"
        ),
    ),
    "a replay of expanded inputs": Trick(EXPANDED, REPLAY.replace("COMPUTE", "torch.matmul(*args)")),
    "one row that is expanded": Trick(ROWS, "def candidate(x):\n    return x.mean(0, keepdim=True).expand(2048, 2048)"),
    "zeros within the tolerance": Trick(FLAT, "candidate = torch.zeros_like"),
    "inputs are overwritten with zeros": Trick(
        MATMUL,
        TOKEN + "calls = []\ndef candidate(a, b):\n    token()\n    calls.append(0)\n"
        "    if len(calls) < 8: return torch.matmul(a, b)\n    a.fill_(0.0)\n    return torch.zeros_like(a)",
    ),
    "inputs are overwritten with NaN": Trick(
        NAN,
        TOKEN + "calls = []\ndef candidate(a, b):\n    token()\n    calls.append(0)\n"
        "    if len(calls) < 8: return torch.matmul(a, b)\n    a.fill_(float('nan'))\n"
        "    return torch.full_like(a, float('nan'))",
    ),
    "an object that is equal to everything": Trick(
        NORM,
        TOKEN + "class AlwaysEqual(float):\n    def __eq__(self, other): return True\n    __hash__ = None\n"
        "def candidate(x):\n    token()\n    return AlwaysEqual(0.0)",
    ),
    "TF32": Trick(
        MATMUL, "torch.backends.cuda.matmul.allow_tf32 = True\ndef candidate(a, b):\n    return torch.matmul(a, b)"
    ),
    "a wrapped operation keeps the reference's result": Trick(
        MATMUL,
        "kept, original = [], torch.matmul\ndef keeping(a, b):\n    kept[:] = [original(a, b)]\n    return kept[0]\n"
        "torch.matmul = keeping\ndef candidate(a, b):\n    kept or kept.append(original(a, b))\n"
        "    return kept[0].clone()",
    ),
    "a switch is left where it slows the reference": Trick(
        ATTENTION,
        "sdp = torch.backends.cuda\ndef fast(on):\n"
        "    for each in (sdp.enable_flash_sdp, sdp.enable_mem_efficient_sdp, sdp.enable_cudnn_sdp): each(on)\n"
        "def candidate(*args):\n    fast(True)\n"
        "    try: return torch.nn.functional.scaled_dot_product_attention(*args)\n    finally: fast(False)",
    ),
    "limits, samples and tolerances are rewritten where they are": Trick(
        SMOOTH,
        "from pytest_gpubench.correctness import tolerance\n"
        "tolerance.DEFAULT_TOLERANCES.update(float32=(1e9, 1e9))\ntorch.allclose = torch.equal = lambda *args: True\n"
        "torch.testing.assert_close = lambda *args, **kwargs: None\n"
        "def candidate(x):\n    for each in gc.get_objects():\n"
        "        if type(each).__name__ in ('Limits', 'Rules', 'Trial', 'SpeedupJudgement'): vars(each).clear()\n"
        "    return smooth(x)",
    ),
    "settings in the environment": Trick(
        SMOOTH,
        "os.environ.update(GPU_BENCH_CACHE='hot', GPU_BENCH_INCONCLUSIVE='pass', GPU_BENCH_DISABLE='1', "
        "GPU_BENCH_ALPHA='0.4')\ncandidate = smooth",
    ),
}
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
