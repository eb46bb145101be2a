"""The device to measure on, and the facts about it."""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.results.model import DeviceFacts
from pytest_gpubench.results.provenance import cpu_info

if TYPE_CHECKING:
    import torch

CPU_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
CPU_CACHE_BYTES = 64 * 2**20
"""Assumed for the last-level cache where the system does not say how large it is."""


@dataclass(frozen=True, eq=False)
class Device:
    """A device to measure on."""

    torch_device: "torch.device"
    facts: DeviceFacts
    nvml: Nvml | None = None

    @property
    def type(self) -> Literal["cuda", "cpu"]:
        """The kind of device: a GPU or the CPU."""
        return self.facts.type

    @property
    def cache_bytes(self) -> int:
        """The size of the cache that is flushed before a cold measurement."""
        return self.facts.cache_bytes or CPU_CACHE_BYTES

    def stopwatch(self) -> Callable[[], float]:
        """Start a clock; the function returned waits for the device and returns the microseconds since then."""
        if self.type == "cpu":
            started_s = time.perf_counter()
            return lambda: 1e6 * (time.perf_counter() - started_s)
        begin, end = new_event(), new_event()
        begin.record()

        def stop() -> float:
            end.record()
            self.synchronize()
            return 1e3 * float(begin.elapsed_time(end))

        return stop

    def synchronize(self) -> None:
        """Wait until all work on the device is done."""
        if self.type == "cuda":
            import torch

            torch.cuda.synchronize(self.torch_device)


def new_event() -> "torch.cuda.Event":
    """Return an event that can be timed."""
    import torch

    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def end_allocating(device: "torch.device", pool: tuple[int, int]) -> None:
    """Let allocations come from a pool of torch's no more, and give it back."""
    import torch

    names = ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")  # the second before torch 2.8
    index = device.index or 0
    next(getattr(torch._C, name) for name in names if hasattr(torch._C, name))(index, pool)
    torch._C._cuda_releasePool(index, pool)


def find_device(wanted: Literal["auto", "cuda", "cpu"]) -> Device:
    """Return the device that is asked for; raise DeviceUnavailable if it is the GPU and there is none."""
    try:
        import torch
    except (ImportError, OSError) as error:
        raise DeviceUnavailable(f"torch cannot be imported ({error}): install it, or mend its libraries") from None
    if wanted == "cpu":
        return cpu_device()
    if torch.cuda.is_available():
        return cuda_device(torch.cuda.current_device())
    if wanted == "cuda":
        raise DeviceUnavailable(
            f"a GPU was asked for, but {why_no_gpu()}: use a machine with one, or, for tests, --gpu-bench-device=auto"
        )
    return cpu_device()


def required_device(wanted: Literal["auto", "cuda", "cpu"], require_gpu: bool) -> Device:
    """Return the device to measure on; raise DeviceUnavailable where it must be a GPU and is not."""
    device = find_device(wanted)
    if require_gpu and device.type != "cuda":
        why = "--gpu-bench-device=cpu" if wanted == "cpu" else why_no_gpu()
        raise DeviceUnavailable(
            f"--gpu-bench-require-gpu was given, but the device is the CPU ({why}): measure on a GPU, or leave it out"
        )
    return device


def why_no_gpu() -> str:
    """Return the reason why torch sees no GPU, as far as it is known."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if visible is not None and visible.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"
    return "torch finds no GPU (is the driver there? see nvidia-smi)"


@cache
def cuda_device(index: int) -> Device:
    """Return the GPU with this CUDA index."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    uuid, nvml, error = _open_by_uuid(getattr(properties, "uuid", None))
    facts = DeviceFacts(
        type="cuda",
        name=properties.name,
        host=socket.gethostname(),
        uuid=uuid,
        compute_capability=f"{properties.major}.{properties.minor}",
        multiprocessors=properties.multi_processor_count,
        cache_bytes=properties.L2_cache_size,
        memory_bytes=properties.total_memory,
        driver=nvml.driver() if nvml else None,
        cuda=torch.version.cuda,
        max_sm_clock_mhz=nvml.max_clock_mhz("SM") if nvml else None,
        max_memory_clock_mhz=nvml.max_clock_mhz("MEM") if nvml else None,
        power_limit_w=nvml.power_limit_w() if nvml else None,
        mig=nvml.mig() if nvml else None,
        nvml_error=error,
    )
    return Device(torch.device("cuda", index), facts, nvml)


@cache
def cpu_device() -> Device:
    """Return the CPU."""
    import torch

    return Device(torch.device("cpu"), cpu_facts())


def cpu_facts() -> DeviceFacts:
    """Return the facts about the CPU, which need no torch."""
    name, sizes = cpu_info()["brand_raw"] or "CPU", []
    for size in CPU_CACHE_FOLDER.glob("index*/size"):
        with suppress(OSError, ValueError):  # not told, in some virtual machines
            text = size.read_text().strip()
            sizes.append(int(text.rstrip("KM")) * {"K": 2**10, "M": 2**20}.get(text[-1:], 1))
    return DeviceFacts(type="cpu", name=name, host=socket.gethostname(), cache_bytes=max(sizes, default=None))


def _open_by_uuid(bare: object) -> tuple[str | None, Nvml | None, str | None]:
    """Return the UUID with the prefix that torch leaves out, NVML's GPU, and why there is none."""
    if bare is None:
        return None, None, "this torch does not say which GPU it uses"
    errors = []
    for uuid in (f"GPU-{bare}", f"MIG-{bare}"):
        try:
            return uuid, Nvml.open(uuid), None
        except RuntimeError as error:
            errors.append(str(error))
    return f"GPU-{bare}", None, errors[0]
