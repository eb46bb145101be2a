"""Candidates for tests: what they do, as the text of their file."""

WORK = """
import ctypes, gc, os, signal, socket, sys, threading, time
import torch

def work(x):
    y = x
    for _ in range(4):
        y = torch.tanh(y) + x
    return y
"""

HONEST = WORK + "candidate = work\n"

STATUSES = {
    "raises": ("crash", "def candidate(x):\n    raise ValueError('no')"),
    "ends itself": ("crash", "def candidate(x):\n    os._exit(0)"),
    "ends by a signal": ("crash", "def candidate(x):\n    os.kill(os.getpid(), signal.SIGSEGV)"),
    "exits": ("crash", "def candidate(x):\n    sys.exit(0)"),
    "hangs": ("timeout", "def candidate(x):\n    time.sleep(1000)"),
    "takes memory": ("out_of_memory", "kept = []\ndef candidate(x):\n    while True: kept.append(bytearray(2**26))"),
    "does not compile": ("compile_error", "def candidate(x:\n"),
    "defines nothing": ("refused", "other = work"),
    "returns an object": ("refused", "def candidate(x):\n    return object()"),
    "returns zeros": ("wrong", "def candidate(x):\n    return torch.zeros_like(x)"),
    "returns its input": ("wrong", "def candidate(x):\n    return x"),
    "returns another shape": ("wrong", "def candidate(x):\n    return work(x)[:1]"),
    "remembers its first output": (
        "wrong",
        "kept = []\ndef candidate(x):\n    kept.append(work(x))\n    return kept[0]",
    ),
    "remembers outputs by address": (
        "wrong",
        "kept = {}\ndef candidate(x):\n"
        "    if x.data_ptr() not in kept: kept[x.data_ptr()] = work(x)\n"
        "    return kept[x.data_ptr()]",
    ),
    "computes in half of its calls": (
        "wrong",
        "calls = []\ndef candidate(x):\n    calls.append(0)\n"
        "    return work(x) if len(calls) < 12 or len(calls) % 2 else torch.empty_like(x)",
    ),
    "computes later in a thread": (
        "wrong",
        "calls = []\ndef late(x, out):\n    time.sleep(0.02)\n    out.copy_(work(x))\n"
        "def candidate(x):\n    calls.append(0)\n    out = torch.zeros_like(x)\n"
        "    threading.Thread(target=late, args=(x, out)).start()\n    return out",
    ),
    "prints a verdict to all files": (
        "invalid",
        "def candidate(x):\n"
        "    for fd in range(1, 64):\n"
        '        try: os.write(fd, b\'{"status": "pass", "ratio": 9.0}\\n\')\n'
        "        except OSError: pass\n"
        "    return work(x)",
    ),
    "forges messages": (
        "invalid",
        'import struct\ndef candidate(x):\n    data = b\'{"kind": "done", "samples_us": [1.0]}\'\n'
        "    for fd in range(3, 64):\n"
        "        try: os.write(fd, struct.pack('<I', len(data)) + data)\n"
        "        except OSError: pass\n"
        "    return work(x)",
    ),
    "claims other times": (
        "invalid",
        "from pytest_gpubench.judge.runner import Runner\nfrom pytest_gpubench.timing.base import Rep\n"
        "end = Runner.end\nRunner.end = lambda self: [Rep(each.elapsed_us / 100) for each in end(self)]\n"
        "candidate = work",
    ),
    "turns clocks back": (
        "invalid",
        "real = time.perf_counter_ns\ntime.perf_counter_ns = lambda: real() // 50\ncandidate = work",
    ),
}
"""What a judgement says of candidates that do not do their work."""

HARMLESS = {
    "kills its parent": "try: os.kill(os.getppid(), 9)\nexcept OSError: pass\ncandidate = work",
    "reads its parent's memory": (
        "try: open(f'/proc/{os.getppid()}/mem', 'rb').read(1); raise SystemExit('read it')\nexcept OSError: pass\n"
        "candidate = work"
    ),
    "opens a socket": ("try: socket.socket(); raise SystemExit('opened it')\nexcept OSError: pass\ncandidate = work"),
    "leaves its session": "try: os.setsid(); raise SystemExit('left it')\nexcept OSError: pass\ncandidate = work",
    "writes elsewhere": (
        "try: open('/tmp/gpu_bench_was_here', 'w'); raise SystemExit('written')\nexcept OSError: pass\ncandidate = work"
    ),
    "looks for the reference": (
        "secret = ('Spec', 'Trial', 'Limits', 'Reference')\n"
        "if any(type(each).__name__ in secret for each in gc.get_objects()): raise SystemExit('found it')\n"
        "candidate = work"
    ),
    "overwrites its inputs": "def candidate(x):\n    out = work(x)\n    x.fill_(0)\n    return out",
    "returns a view": "def candidate(x):\n    return work(x.view(100, -1)).view(-1)",
}
"""Attempts that come to nothing: the candidate itself does its work."""


def text_of(body: str) -> str:
    """Return the text of a candidate's file."""
    return WORK + body + "\n"
