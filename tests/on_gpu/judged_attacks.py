"""Attacks on the referee's clock, as specs and candidates: none may pass, or be given a ratio that it has not."""

from tests.on_gpu.judged_tricks import ROWS, SMOOTH, Trick, spec

CLONE = spec("args[0].clone()", "torch.randn(2**18)")
"""A copy engine can do it, and a GPU needs not switch to the candidate's context for that."""

CLAIMS = """
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.judge.worker import Worker
from dataclasses import replace
end, capture, queue = Runner.end, Worker.do_capture, Worker.do_queue
Worker.do_save = lambda worker, path: setattr(worker.reply, "text", "no")
Runner.end = lambda self: [replace(each, elapsed_us=each.elapsed_us / 2) for each in end(self)]
candidate = smooth

def addresses(worker, released_at, done_at):
    base = worker.inputs.data_ptr()
    return base + released_at, base + done_at
"""
"""Claims half of its times, and lets nobody replay its calls, so that only the referee's clock can tell."""


def queued(body: str, before: str = "") -> Trick:
    """Return a candidate that queues its calls in its own way; `launch` is the call, `gpu` waits and counts."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return Trick(
        SMOOTH,
        f"{CLAIMS}{before}\ndef queue(worker, calls, first, released_at, done_at):\n"
        "    launch, gpu = worker.launch, worker.gpu\n"
        "    released, done = addresses(worker, released_at, done_at)\n"
        f"    numbers = range(first, first + calls)\n{lines}Worker.do_queue = queue",
    )


HONESTLY = "for number in numbers:\n    gpu.wait_for(released, number)\n    launch()\n    gpu.write(done, number)"

ATTACKS = {
    "only claims": Trick(SMOOTH, CLAIMS),
    "says that a call is done when it begins": queued(
        "for number in numbers:\n    gpu.wait_for(released, number)\n    gpu.write(done, number)\n    launch()"
    ),
    "says that a call is done while it runs": queued(
        "side = torch.cuda.Stream()\nfor number in numbers:\n    gpu.wait_for(released, number)\n"
        "    side.wait_stream(torch.cuda.current_stream())\n    launch()\n"
        "    with torch.cuda.stream(side):\n        torch.cuda._sleep(20_000)\n        gpu.write(done, number)"
    ),
    "begins all calls when the first is released": queued(
        "gpu.wait_for(released, first)\nfor number in numbers:\n    launch()\n    gpu.write(done, number)"
    ),
    "does all calls in one at the end": queued(
        "for number in numbers:\n    gpu.wait_for(released, number)\n"
        "    if number < numbers[-1]: gpu.write(done, number)\n"
        "launch()\ngpu.write(done, numbers[-1])"
    ),
    "waits for nothing": queued("for number in numbers:\n    launch()\n    gpu.write(done, number)"),
    "releases its calls itself": queued(f"gpu.write(released, numbers[-1])\n{HONESTLY}"),
    "counts up to the end at once": queued(f"gpu.write(done, numbers[-1])\n{HONESTLY}"),
    "counts backwards": queued(f"{HONESTLY}\n    gpu.write(done, 0)"),
    "begins when it sees its inputs": queued(
        "(x,) = worker.runner.sets[0]\nout = worker.runner.output\nfor number in numbers:\n"
        "    with torch.cuda.stream(side):\n        _look[(1,)](x.view(torch.int32), x.numel() - 1)\n"
        "        smooth_into(out, x)\n        gpu.wait_for(released, number)\n        gpu.write(done, number)",
        "side = torch.cuda.Stream()\n\n\n@triton.jit\ndef _look(x, last):\n"
        "    seen = tl.load(x + last, volatile=True)\n"
        "    turns = 0\n    while (tl.load(x + last, volatile=True) == seen) & (turns < 3000):\n        turns += 1\n",
    ),
    "keeps the GPU busy after each call": queued(
        f"side = torch.cuda.Stream()\n{HONESTLY}\n"
        "    side.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(side): torch.cuda._sleep(300_000)"
    ),
    "says that it cannot be captured": Trick(
        SMOOTH,
        f"{CLAIMS}def no_graph(worker):\n    capture(worker)\n    worker.reply.graph = False\n"
        "Worker.do_capture = no_graph",
    ),
    "takes a call from another context": Trick(
        SMOOTH,
        f"{CLAIMS}driver, context = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p()\n"
        "driver.cuCtxGetCurrent(ctypes.byref(context))\nother = ctypes.c_void_p()\n"
        "if driver.cuCtxCreate_v2(ctypes.byref(other), ctypes.c_uint(0), ctypes.c_int(0)): raise RuntimeError\n"
        "driver.cuCtxSetCurrent(context)",
    ),
    "lets a copy engine copy": Trick(CLONE, CLAIMS.replace("candidate = smooth", "candidate = torch.clone")),
    "writes one row, and expands it": Trick(
        ROWS, "def candidate(x):\n    return x.mean(0, keepdim=True).expand(2048, 2048)"
    ),
}
"""At a limit of 1.06, and truly 1.0x."""
