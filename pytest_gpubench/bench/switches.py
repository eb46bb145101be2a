"""Switches of torch that a call has to leave as it found them: the next arm's call runs under them too."""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from pytest_gpubench.errors import UnfairComparison

UNREADABLE = "unreadable"
"""The reading of a switch that torch refuses to tell, as after its old and its new names were mixed."""
NO_SWITCHES = (
    *("graph_exec_group", "thread_name", "torch_function_state", "tracing_state"),  # slow, or of no call
    *("autograd_fallback_mode", "backcompat_broadcast_warn", "backcompat_keepdim_warn", "warnAlways"),  # warnings
    "deterministic_algorithms",  # a part of use_deterministic_algorithms
)
"""Names that torch can read and write too, and that are no switches of their own."""
PUBLIC_NAMES = {
    "blas_preferred_backend": "torch.backends.cuda.preferred_blas_library",
    "cublas_": "torch.backends.cuda.matmul.",
    "cudnn_": "torch.backends.cudnn.",
    "deterministic_": "torch.utils.deterministic.",
    "float32_": "torch.set_float32_",
    "linalg_preferred_backend": "torch.backends.cuda.preferred_linalg_library",
    "math_sdp_allow_fp16_bf16_reduction": "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp",
    "miopen_": "torch.backends.miopen.",
    "mkldnn_": "torch.backends.mkldnn.",
    "onednn_": "torch.backends.mkldnn.",
    "qengine": "torch.backends.quantized.engine",
    "rocm_fa_preferred_backend": "torch.backends.cuda.preferred_rocm_fa_library",
    "sdp_priority_order": "torch.nn.attention.sdpa_kernel",
}
"""The beginning of names in torch._C, and that of the public names of the same switches."""
PRECISIONS = {
    "": ("generic", "all"),
    "cudnn.": ("cuda", "all"),
    "cuda.matmul.": ("cuda", "matmul"),
    "cudnn.conv.": ("cuda", "conv"),
    "cudnn.rnn.": ("cuda", "rnn"),
    "mkldnn.": ("mkldnn", "all"),
    "mkldnn.matmul.": ("mkldnn", "matmul"),
    "mkldnn.conv.": ("mkldnn", "conv"),
    "mkldnn.rnn.": ("mkldnn", "rnn"),
}
"""Each fp32_precision of torch.backends, and what torch._C calls it: after the one that it follows until it is set."""


@dataclass(frozen=True)
class Switch:
    """A global switch of torch."""

    name: str
    read: Callable[[], object]
    write: Callable[[Any], object]
    follows: str = ""
    """The switch whose value it has until it is given its own."""


@functools.cache
def switches() -> tuple[Switch, ...]:
    """Return the switches that change what a call computes, or how fast: all that torch can read and write, and more.

    Read by torch's own functions, in a tenth of the time that attributes take: this is done after every call.
    """
    from torch.backends import cuda

    _choose_attention()
    return (
        *_precisions(),
        *_pairs(),
        *(
            Switch(
                f"torch.backends.cuda.enable_{kind}", getattr(cuda, f"{kind}_enabled"), getattr(cuda, f"enable_{kind}")
            )
            for kind in ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")
        ),
        Switch(
            "torch.use_deterministic_algorithms",
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda found: torch.use_deterministic_algorithms(found[0], warn_only=found[1]),
        ),
        Switch("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
        Switch(
            "torch.set_default_device",
            lambda: torch.empty(0).device,
            # for the CPU none: a default of its own slows every call of torch
            lambda device: torch.set_default_device(None if device.type == "cpu" else device),
        ),
        Switch("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled),
        Switch("torch.autograd.set_detect_anomaly", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
        Switch("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads),
        Switch("torch.set_autocast_cache_enabled", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        *(_autocast(kind) for kind in ("cuda", "cpu")),
    )


def _choose_attention() -> None:
    """Let torch order its kernels of attention for this GPU, which else the first attention of the process does."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        given = torch.zeros(1, 1, 1, 8, dtype=torch.float16, device="cuda")
        torch._fused_sdp_choice(given, given, given)


def _pairs() -> Iterator[Switch]:
    """Yield the switches that torch has a function to read and one to write for, without other arguments."""
    for name in sorted(dir(torch._C)):
        read, write = getattr(torch._C, name), getattr(torch._C, name.replace("_get_", "_set_", 1), None)
        short = name.removeprefix("_cuda").removeprefix("_get_")
        if name.startswith(("_get_", "_cuda_get_cudnn_")) and write is not None and short not in NO_SWITCHES:
            with suppress(RuntimeError, Warning):  # refused now, and told at another time
                try:
                    read()
                except TypeError:
                    continue
            yield Switch(_public_name(short), read, functools.partial(_write, write))


def _precisions() -> Iterator[Switch]:
    """Yield the precisions of float32 by their new names, which torch 2.9 and later have."""
    read, write = (getattr(torch._C, f"_{name}_fp32_precision_{name}ter", None) for name in ("get", "set"))
    if read is None or write is None:
        return
    names = {place: f"torch.backends.{name}fp32_precision" for name, place in PRECISIONS.items()}
    for (backend, operation), name in names.items():
        above = ("generic" if operation == "all" else backend, "all")
        follows = names[above] if names[above] != name else ""
        yield Switch(
            name, functools.partial(read, backend, operation), functools.partial(write, backend, operation), follows
        )


def _public_name(name: str) -> str:
    """Return the name by which a switch of torch._C is documented; the function that sets it, where there is none."""
    for begin, public in PUBLIC_NAMES.items():
        if name.startswith(begin):
            return public + name.removeprefix(begin) if begin.endswith("_") else public
    return f"torch._C._set_{name}"


def _write(write: Callable[..., object], value: object) -> None:
    write(*value) if isinstance(value, tuple) else write(value)


def _autocast(kind: str) -> Switch:
    def write(found: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(kind, found[0])
        torch.set_autocast_dtype(kind, found[1])

    return Switch(
        f"torch.autocast({kind!r})", lambda: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)), write
    )


Readings = tuple[object, ...]
"""The value of each switch."""


@functools.cache
def _readers() -> tuple[Callable[[], object], ...]:
    return tuple(switch.read for switch in switches())


SAME = "none", "ieee"
"""Precisions that compute the same: writing an old name back leaves the new one "ieee" where it was "none"."""


def readings() -> Readings:
    """Return the value of each switch."""
    try:
        return tuple([read() for read in _readers()])
    except (RuntimeError, Warning):  # torch may warn of its old names, and warnings may be errors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(_reading(read) for read in _readers())


def _reading(read: Callable[[], object]) -> object:
    try:
        return read()
    except RuntimeError:
        return UNREADABLE


def refuse_switching(who: str, before: Readings) -> None:
    """Put back the switches that were changed, and raise UnfairComparison naming them."""
    after = readings()
    if after == before:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its old names, which are all that the oldest torch has
        _put_back(before)
        _put_back(before)  # an old name's write changes the new ones too
    rows = [row for row in zip(switches(), before, after, strict=True) if row[1] != row[2]]
    if all(value in SAME and now in SAME for _, value, now in rows):
        return
    changed = {switch.name: now for switch, _, now in rows}
    own = [row for row in rows if row[2] is not UNREADABLE and changed.get(row[0].follows, UNREADABLE) != row[2]]
    found = ", ".join(f"{switch.name} from {value} to {now}" for switch, value, now in own or rows)
    raise UnfairComparison(
        f"{who} changed {found}, and left it so: every call after it would run under that; let it put back what it "
        "changes, or change it before the comparison, for all arms alike"
    )


def _put_back(before: Readings) -> None:
    """Write each switch that does not have this value; one that followed another may have it by then."""
    for switch, value in zip(switches(), before, strict=True):
        with suppress(RuntimeError):
            if value is not UNREADABLE and _reading(switch.read) != value:
                switch.write(value)
