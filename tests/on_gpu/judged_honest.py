"""Honest candidates that a too eager referee may flag, as specs and candidates: every one has to pass."""

from tests.on_gpu.judged_tricks import Trick, spec

DOUBLE = spec("args[0] * 2", "torch.randn(2**20)")
MATRIX = spec("args[0] @ args[0]", "torch.randn(1024, 1024, dtype=torch.bfloat16)", "tolerance = {'golden': 'float64'}")
CONVOLUTION = spec(
    "torch.nn.functional.conv2d(*args)",
    "torch.randn(8, 32, 64, 64).to(memory_format=torch.channels_last), torch.randn(32, 32, 3, 3)",
    "tolerance = {'golden': 'float64'}",
)
FOURIER = spec("torch.fft.fft2(args[0])", "torch.randn(512, 512)", "tolerance = {'golden': 'float64'}")
TINY = spec("args[0] + 1", "torch.randn(32)")
TABLE = spec("args[0][args[1]]", "torch.randn(2**19, 32), torch.randint(2**19, (64,))")
SUM = spec("args[0].sum()", "torch.randn(2**26)", "tolerance = {'rtol': 0, 'atol': 2}")
SCALED = spec(
    "args[0] @ (args[1].float() * args[2])",
    "torch.randn(256, 512), torch.randint(-128, 128, (512, 512), dtype=torch.int8), torch.rand(512)",
    "tolerance = {'golden': 'float64'}",
)
SEVERAL = spec("{'low': args[0].amin(-1), 'both': [args[0].amax(-1), args[0].sum(-1)]}", "torch.randn(2048, 1024)")

HONEST = {
    "a static output": Trick(
        DOUBLE,
        "kept = []\ndef candidate(x):\n    kept or kept.append(torch.empty_like(x))\n"
        "    return torch.mul(x, 2, out=kept[0])",
    ),
    "a slice of a workspace": Trick(
        DOUBLE,
        "kept = []\ndef candidate(x):\n    kept or kept.append(torch.empty(3 * x.numel(), device=x.device))\n"
        "    return torch.mul(x, 2, out=kept[0][x.numel() : 2 * x.numel()])",
    ),
    "a graph with copied inputs": Trick(
        DOUBLE,
        "state = []\ndef candidate(x):\n    if torch.cuda.is_current_stream_capturing(): return x * 2\n"
        "    if not state:\n        own = x.clone()\n        graph = torch.cuda.CUDAGraph()\n"
        "        torch.cuda.synchronize()\n        with torch.cuda.graph(graph): out = own * 2\n"
        "        state.extend([graph, own, out])\n    state[1].copy_(x)\n    state[0].replay()\n"
        "    return state[2].clone()",
    ),
    "torch.compile": Trick(DOUBLE, "@torch.compile\ndef candidate(x):\n    return x * 2"),
    "a kernel that tunes itself": Trick(
        DOUBLE,
        "@triton.autotune([triton.Config({'BLOCK': 512}), triton.Config({'BLOCK': 1024})], key=['count'])\n"
        "@triton.jit\ndef _double(x, out, count, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, 2 * tl.load(x + at, mask=at < count), mask=at < count)\n"
        "def candidate(x):\n    out = torch.empty_like(x)\n"
        "    _double[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](x, out, x.numel())\n    return out",
    ),
    "a thread that computes on the host": Trick(
        DOUBLE,
        "def log():\n    while True: sum(range(1000)); time.sleep(0.001)\n"
        "threading.Thread(target=log, daemon=True).start()\ndef candidate(x):\n    return x * 2",
    ),
    "a number read back to the host": Trick(
        DOUBLE, "def candidate(x):\n    first = x[0].item()\n    return x * 2 if first == first else x"
    ),
    "inference mode": Trick(DOUBLE, "@torch.inference_mode()\ndef candidate(x):\n    return x * 2"),
    "a module": Trick(
        DOUBLE, "class Double(torch.nn.Module):\n    def forward(self, x): return x * 2\ncandidate = Double()"
    ),
    "inputs are overwritten after they were read": Trick(DOUBLE, "def candidate(x):\n    return x.mul_(2).clone()"),
    "a product in two halves": Trick(
        MATRIX,
        "def candidate(a):\n    wide = a.float()\n"
        "    return (wide[:, :512] @ wide[:512] + wide[:, 512:] @ wide[512:]).bfloat16()",
    ),
    "channels last": Trick(
        CONVOLUTION,
        "torch.backends.cudnn.benchmark = True\ndef candidate(x, w):\n    return torch.nn.functional.conv2d(x, w)",
    ),
    "complex outputs": Trick(FOURIER, "def candidate(x):\n    return torch.fft.fft(torch.fft.fft(x, dim=1), dim=0)"),
    "a tiny kernel": Trick(TINY, "def candidate(x):\n    return x + 1"),
    "rows of a large table": Trick(TABLE, "def candidate(table, rows):\n    return torch.index_select(table, 0, rows)"),
    "reading alone": Trick(SUM, "def candidate(x):\n    return x.view(1024, -1).sum(1).sum()"),
    "integers with scales": Trick(SCALED, "def candidate(x, w, scales):\n    return (x @ w.float()) * scales"),
    "nested outputs": Trick(
        SEVERAL, "def candidate(x):\n    return {'low': x.min(-1).values, 'both': [x.max(-1).values, x.sum(-1)]}"
    ),
}
