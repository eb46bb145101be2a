"""Honest candidates that a too eager referee may flag, as specs and candidates: every one has to pass."""

from tests.on_gpu.judged import spec

DOUBLE = spec("args[0] * 2", "torch.randn(2**20)")
CONVOLUTION = spec(
    "torch.nn.functional.conv2d(*args)",
    "torch.randn(8, 32, 64, 64).to(memory_format=torch.channels_last), torch.randn(32, 32, 3, 3)",
    "tolerance = {'golden': 'float64'}",
)
FOURIER = spec("torch.fft.fft2(args[0])", "torch.randn(512, 512)", "tolerance = {'golden': 'float64'}")
TINY = spec("args[0] + 1", "torch.randn(32)")
TABLE = spec("args[0][args[1]]", "torch.randn(2**19, 32), torch.randint(2**19, (64,))")
SUM = spec("args[0].sum()", "torch.randn(2**26)", "tolerance = {'rtol': 0, 'atol': 2}")

HONEST = {
    "a static output": (
        DOUBLE,
        "kept = []\ndef candidate(x):\n    kept or kept.append(torch.empty_like(x))\n"
        "    return torch.mul(x, 2, out=kept[0])",
    ),
    "a slice of a workspace": (
        DOUBLE,
        "kept = []\ndef candidate(x):\n    kept or kept.append(torch.empty(3 * x.numel(), device=x.device))\n"
        "    return torch.mul(x, 2, out=kept[0][x.numel() : 2 * x.numel()])",
    ),
    "a graph with copied inputs": (
        DOUBLE,
        "state = []\ndef candidate(x):\n    if torch.cuda.is_current_stream_capturing(): return x * 2\n"
        "    if not state:\n        own = x.clone()\n        graph = torch.cuda.CUDAGraph()\n"
        "        torch.cuda.synchronize()\n        with torch.cuda.graph(graph): out = own * 2\n"
        "        state.extend([graph, own, out])\n    state[1].copy_(x)\n    state[0].replay()\n"
        "    return state[2].clone()",
    ),
    "torch.compile": (DOUBLE, "@torch.compile\ndef candidate(x):\n    return x * 2"),
    "a kernel that tunes itself": (
        DOUBLE,
        "@triton.autotune([triton.Config({'BLOCK': 512}), triton.Config({'BLOCK': 1024})], key=['count'])\n"
        "@triton.jit\ndef _double(x, out, count, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, 2 * tl.load(x + at, mask=at < count), mask=at < count)\n"
        "def candidate(x):\n    out = torch.empty_like(x)\n"
        "    _double[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](x, out, x.numel())\n    return out",
    ),
    "a number read back to the host": (
        DOUBLE,
        "def candidate(x):\n    first = x[0].item()\n    return x * 2 if first == first else x",
    ),
    "inputs are overwritten after they were read": (DOUBLE, "def candidate(x):\n    return x.mul_(2).clone()"),
    "channels last": (
        CONVOLUTION,
        "torch.backends.cudnn.benchmark = True\ndef candidate(x, w):\n    return torch.nn.functional.conv2d(x, w)",
    ),
    "complex outputs": (FOURIER, "def candidate(x):\n    return torch.fft.fft(torch.fft.fft(x, dim=1), dim=0)"),
    "a tiny kernel": (TINY, "def candidate(x):\n    return x + 1"),
    "rows of a large table": (TABLE, "def candidate(table, rows):\n    return torch.index_select(table, 0, rows)"),
    "reading alone": (SUM, "def candidate(x):\n    return x.view(1024, -1).sum(1).sum()"),
}
REPLAYED = {
    "the same kernel": "candidate = smooth",
    "returns a view": "def candidate(x):\n    return smooth(x.view(2048, -1)).view(-1)",
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
    "a half of it on another stream": (
        "side = torch.cuda.Stream()\ndef candidate(x):\n    out, half = torch.empty_like(x), x.numel() // 2\n"
        "    side.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(side): smooth_into(out[:half], x[:half])\n"
        "    smooth_into(out[half:], x[half:])\n    torch.cuda.current_stream().wait_stream(side)\n    return out"
    ),
    "its times are claimed": (
        "from pytest_gpubench.judge.runner import Runner\nfrom dataclasses import replace\nend = Runner.end\n"
        "Runner.end = lambda self: [replace(each, elapsed_us=each.elapsed_us / 4) for each in end(self)]\n"
        "candidate = smooth"
    ),
}
"""Judged by `SMOOTH` with a lower limit: as fast as the reference, or a little slower, whatever its process says."""
