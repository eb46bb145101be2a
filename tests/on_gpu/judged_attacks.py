"""Attacks on the referee's clock, as specs and candidates: none may pass, or be given a ratio that it has not."""

from tests.on_gpu.judged_tricks import ROWS, SMOOTH, Trick, spec

CLONE = spec("args[0].clone()", "torch.randn(2**18)")
"""A copy engine can do it, and a GPU needs not switch to the candidate's context for that."""

CLAIMS = """
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.judge.worker import Worker
from dataclasses import replace
end, first = Runner.end, Runner.first
Worker.do_save = lambda worker, path: setattr(worker.reply, "text", "no")
Runner.end = lambda self: [replace(each, elapsed_us=each.elapsed_us / 2) for each in end(self)]
candidate = smooth
"""
"""Claims half of its times, and lets nobody replay its calls, so that only the referee's clock can tell."""

ATTACKS = {
    "only claims": Trick(SMOOTH, CLAIMS),
    "replies when its call begins": Trick(
        SMOOTH, f"{CLAIMS}def early(self):\n    self._index = 0\n    self._call_once()\nRunner.first = early\n"
    ),
    "keeps the GPU busy after each call": Trick(
        SMOOTH,
        f"{CLAIMS}side = torch.cuda.Stream()\ndef busy(self):\n    first(self)\n"
        "    with torch.cuda.stream(side): torch.cuda._sleep(300_000)\nRunner.first = busy\n",
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
