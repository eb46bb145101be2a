"""A hundred candidates that end, hang, take memory, access illegally or forge a verdict: texts of their files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from tests.judge.candidates import REACHES_OUT, text_of

HEAD = """
import ctypes, json, os, signal, sys, threading, time
import torch

def other_files():
    return [fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}")]

def sockets():
    return [fd for fd in other_files() if os.readlink(f"/proc/self/fd/{fd}").startswith("socket")]

def write_to(files, data):
    for fd in files:
        try: os.write(fd, data)
        except OSError: pass

def reply(**message):
    write_to(sockets(), json.dumps({"kind": "done", **message}).encode())

def attack():
    BODY

"""
FORGED = """b'{"version": 1, "status": "pass", "ratio": 9.0, "reason": "as fast as can be"}\\n'"""
MOMENTS = {
    "loaded": "attack()\ncandidate = torch.zeros_like",
    "first": "def candidate(x):\n    attack()\n    return torch.zeros_like(x)",
    "later": (
        "calls = []\ndef candidate(x):\n    calls.append(0)\n    if len(calls) == LATER: attack()\n"
        "    return torch.zeros_like(x) if len(calls) > LATER else torch.softmax(x, -1)"
    ),
}
"""The times at which an attack happens."""
ENDS = {
    "segfault": "ctypes.string_at(0)",
    "exit": "os._exit(0)",
    "abort": "os.abort()",
    "sys.exit": "sys.exit(0)",
    "kills itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "kills its group": "os.killpg(0, signal.SIGKILL)",
    "kills its parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "stops its parent's group": "os.killpg(os.getpgid(os.getppid()), signal.SIGSTOP)",
    "raises": "raise KeyError('nothing')",
    "recurses": "attack()",
    "closes its files": "os.closerange(3, 4096); sys.stderr.close()",
    "closes its sockets": "[os.close(fd) for fd in sockets()]; time.sleep(1000)",
    "writes elsewhere": "open('/tmp/gpu_bench_was_here', 'w')",
}
TAKES = {
    "fills its log": "b = b'x' * 2**24\n    while True: os.write(1, b)",
    "memory": "kept = []\n    while True: kept.append(b'x' * 2**26)",
    "all memory at once": "bytearray(2**50)",
    "memory in processes": "kept = []\n    while True: os.fork(); kept.append(b'x' * 2**24)",
}
FORGES = {
    "verdict on stdout": f"write_to([1], {FORGED})",
    "verdict on stderr": f"write_to([2], {FORGED})",
    "verdict in all files": f"write_to(other_files(), {FORGED})",
    "a reply": "reply()",
    "replies to come": "for _ in range(60): reply(samples_us=[1.0] * 48)",
    "a nested reply": "write_to(sockets(), b'[' * 190_000)",
    "a long reply": "import socket\n"
    "    for fd in sockets(): socket.socket(fileno=os.dup(fd)).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)\n"
    "    write_to(sockets(), b' ' * 2**19)",
    "its encoder": 'import msgspec; msgspec.json.encode = lambda reply: b\'{"kind": "done"}\'',
    "its tree": "down = '/'.join('d' * 900)\n    for _ in range(2): os.makedirs(down); os.chdir(down)",
    "no folder": "import shutil; shutil.rmtree(os.environ['HOME'] + '/..', ignore_errors=True)",
    "a closed folder": "os.mkdir('shut', 0)",
    "a daemon": "os.fork() or time.sleep(1000)",
    "a thread": "threading.Thread(target=time.sleep, args=(1000,)).start()",
}
"""Each returns zeros, and hopes for a PASS, or leaves something behind."""
HANGS = {
    "sleeps": "time.sleep(1000)",
    "loops": "while True: pass",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "waits for a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
}
GPU_ENDS = {
    "illegal address": (
        "global tl\n    import triton, triton.language as tl\n"
        "    @triton.jit\n"
        "    def wild(x, BLOCK: tl.constexpr):\n        tl.store(x + tl.arange(0, BLOCK) * 10**9 + 10**12, 1.0)\n"
        "    wild[(1,)](torch.zeros(9, device='cuda'), BLOCK=1024); torch.cuda.synchronize()"
    ),
    "assertion": "torch.zeros(4, device='cuda')[torch.tensor([2**40], device='cuda')].sum().item()",
    "resets the GPU's context": (
        "ctypes.CDLL('libcuda.so.1').cuDevicePrimaryCtxReset_v2(0); torch.ones(9).cuda().sum().item()"
    ),
}
GPU_TAKES = {
    "fills its log": TAKES["fills its log"],
    "GPU memory": "kept = []\n    while True: kept.append(torch.empty(2**28, device='cuda'))",
    "GPU memory past torch": (
        "cuda = ctypes.CDLL('libcuda.so.1'); at = ctypes.c_uint64(0); size = 2**34\n"
        "    while size > 2**20:\n"
        "        if cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)): size //= 2"
    ),
}
GPU_HANGS = {"endless kernel": "torch.cuda._sleep(2**45); torch.cuda.synchronize()"}
OUTPUTS = {
    "None": "None",
    "a string": "'pass'",
    "an object": "object()",
    "a function": "candidate",
    "NaN": "torch.full_like(x, float('nan'))",
    "no elements": "x[:0]",
    "another shape": "x.view(-1)",
    "another dtype": "x.double()",
    "a huge view": "x.view(-1)[:1].expand(2**40)",
    "a sparse tensor": "x.to_sparse()",
    "a subclass": "torch.nn.Parameter(x)",
    "two tensors": "(x, x)",
    "many tensors": "[x] * 20_000",
    "meta": "torch.empty_like(x, device='meta')",
    "a deep list": "deep(5000)",
    "itself": "loop",
}
TEXTS = {
    "an empty file": ("refused", ""),
    "bad syntax": ("compile_error", "def candidate(x:\n"),
    "null bytes": ("compile_error", "candidate = 1\0"),
    "a bad import": ("compile_error", "import nothing_of_this_name\ndef candidate(x): return x"),
    "another name": ("refused", "def kandidat(x): return x"),
    "no function": ("refused", "candidate = 3"),
    "other parameters": ("crash", "def candidate(): return 1"),
}


@dataclass(frozen=True)
class Hostile:
    """A candidate's file, and the statuses that it may come to."""

    statuses: tuple[str, ...]
    text: str


def hostile(on_gpu: bool) -> dict[str, Hostile]:
    """Return all, by name; those that hang cost their timeout, and attack in their first call only.

    The first five calls are compared. The seventh is captured on a GPU, for the referee to replay it; on a CPU the
    twelfth is in the warm-up. A call that raises only where it is captured is timed by the candidate's process, or is
    inconclusive by a spec that trusts no claims.
    """
    later = "7" if on_gpu else "12"
    found: dict[str, Hostile] = {}

    def add(kind: str, attacks: Mapping[str, str], statuses: tuple[str, ...], moments: Iterable[str]) -> None:
        for (name, body), moment in product(attacks.items(), moments):
            text = HEAD.replace("BODY", body) + MOMENTS[moment].replace("LATER", later)
            found[f"{kind}: {name}, {moment}"] = Hostile(statuses, text)

    lost = ("crash", "compile_error", "invalid", "wrong")
    add("ends", ENDS, lost, MOMENTS)
    add("takes", TAKES, ("out_of_memory", "crash", "timeout", "compile_error", "refused"), ("loaded", "first"))
    add("forges", FORGES, (*lost, "timeout", "refused"), ("loaded", "first"))
    add("hangs", HANGS, ("timeout", "invalid"), ("first",))
    if on_gpu:
        add("ends", GPU_ENDS, lost, MOMENTS)
        add("takes", GPU_TAKES, ("out_of_memory", "crash", "wrong", "invalid"), ("first", "later"))
        add("hangs", GPU_HANGS, ("timeout",), ("first",))
    for name, value in OUTPUTS.items():
        body = (
            "def deep(n):\n    out = []\n    for _ in range(n): out = [out]\n    return out\n"
            f"loop = []\nloop.append(loop)\ndef candidate(x):\n    return {value}"
        )
        found[f"returns: {name}"] = Hostile(
            (*lost, "refused", "timeout", "out_of_memory"), f"{HEAD.replace('BODY', 'pass')}{body}"
        )
    reaching = REACHES_OUT.partition("def candidate")[0] + "candidate = torch.zeros_like"
    found["reaches out"] = Hostile(("wrong",), text_of(reaching))
    for name, (status, text) in TEXTS.items():
        found[f"text: {name}"] = Hostile((status,), text)
    return found


SPEC = """
import torch

def reference(x):
    return torch.softmax(x, -1)

def inputs(seed, device):
    return (torch.randn(SHAPE, generator=torch.Generator(device).manual_seed(seed), device=device),)

limits = {"min_speedup": LIMIT}
trust_claims = True
"""


def spec_text(shape: tuple[int, int], limit: float) -> str:
    """Return the text of the spec, for inputs of this shape."""
    return SPEC.replace("SHAPE", str(shape)).replace("LIMIT", str(limit))


HONEST = "import torch\ndef candidate(x):\n    return torch.softmax(x, -1)\n"
