"""Candidates whose calls are replayed by the referee, and attacks on that: bodies after `KERNEL` of judged.py."""

HONEST = {
    "the same kernel": "candidate = smooth",
    "a buffer that is kept": (
        "kept = []\ndef candidate(x):\n    kept or kept.append(torch.empty_like(x))\n    return smooth_into(kept[0], x)"
    ),
    "weights that it keeps": (
        "@triton.jit\ndef _weigh(x, w, out, count, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, tl.load(x + at, mask=at < count) * tl.load(w + at, mask=at < count), mask=at < count)\n"
        "kept = []\ndef candidate(x):\n    kept or kept.append(torch.ones_like(x))\n"
        "    out = smooth(x)\n"
        "    _weigh[(triton.cdiv(x.numel(), 1024),)](out, kept[0], out, x.numel(), BLOCK=1024)\n    return out"
    ),
    "two streams": (
        "side = torch.cuda.Stream()\ndef candidate(x):\n    out = torch.empty_like(x)\n"
        "    side.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(side): smooth_into(out, x)\n"
        "    torch.cuda.current_stream().wait_stream(side)\n    return out"
    ),
    "its times are claimed": (
        "from pytest_gpubench.judge.runner import Runner\nfrom dataclasses import replace\nend = Runner.end\n"
        "Runner.end = lambda self: [replace(each, elapsed_us=each.elapsed_us / 4) for each in end(self)]\n"
        "candidate = smooth"
    ),
}
"""As fast as the reference, or a little slower, whatever its process says."""

SAVES = """
from pathlib import Path
from pytest_gpubench.judge import worker
from pytest_gpubench.judge.replayed import SavedCall
from pytest_gpubench.replay.call_data import CallData, Pointer, Region, decode_call, encode_call
import msgspec
saved_call = worker.saved_call

def changed(change):
    def saved(runner, device):
        found = msgspec.msgpack.decode(saved_call(runner, device), type=SavedCall)
        return msgspec.msgpack.encode(change(found, decode_call(found.call)))
    worker.saved_call = saved

def with_kernel(call, **changes):
    (node,) = call.graph.nodes
    node = msgspec.structs.replace(node, kernel=msgspec.structs.replace(node.kernel, **changes))
    return msgspec.structs.replace(call, graph=msgspec.structs.replace(call.graph, nodes=(node,)))

def with_node(call, **changes):
    (node,) = call.graph.nodes
    node = msgspec.structs.replace(node, **changes)
    return msgspec.structs.replace(call, graph=msgspec.structs.replace(call.graph, nodes=(node,)))
"""
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
SLOW_ATTACKS = {
    "never ends, from its thirteenth call on": COUNTS.replace(
        "BODY", "while (number > 12) & (tl.load(x, volatile=True) < 1e30):\n        pass"
    ),
    "counts its calls as done, in the memory behind its inputs": COUNTS.replace(
        "BODY", "tl.store((x + count).to(tl.pointer_type(tl.int32)) + tl.arange(0, 128), 2000000)"
    ),
}
ATTACKS = {
    "does nothing from its thirteenth call on": COUNTS.replace("BODY", "count = tl.where(number > 12, 0, count)"),
    "does nothing in every second call": COUNTS.replace(
        "BODY", "count = tl.where((number > 12) & (number % 2 == 1), 0, count)"
    ),
    "works between sentinels of its own": NAMED,
    "saves no call": "from pytest_gpubench.judge import worker\nworker.saved_call = lambda *given: b'x' * 1000\n"
    "candidate = smooth",
    "saves fewer blocks": f"{SAVES}changed(lambda found, call: msgspec.structs.replace("
    "found, call=encode_call(with_kernel(call, grid=(64, 1, 1)))))\ncandidate = smooth",
    "saves another image": f"{SAVES}changed(lambda found, call: msgspec.structs.replace("
    "found, images={name: b'no image' * 99 for name in found.images}))\ncandidate = smooth",
    "saves a place outside of its memory": f"{SAVES}changed(lambda found, call: msgspec.structs.replace("
    "found, call=encode_call(with_node(call, pointers=tuple(msgspec.structs.replace(each, distance=2**44) "
    "for each in call.graph.nodes[0].pointers)))))\ncandidate = smooth",
    "saves a huge grid": f"{SAVES}changed(lambda found, call: msgspec.structs.replace("
    "found, call=encode_call(with_kernel(call, grid=(2**31 - 1, 60000, 1)))))\ncandidate = smooth",
}
"""Truly at most 1.0x."""
