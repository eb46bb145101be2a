"""Images of modules: the compiled code that a kernel is from, as Triton and torch.compile keep it."""

import gc
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__tracebackhide__ = True

COMPILED = ("CompiledKernel", "StaticallyLaunchedTritonKernel", "StaticallyLaunchedCudaKernel")
"""Classes of Triton's and of torch.compile's own launcher (the last one before torch 2.12)."""


class Images:
    """The images of kernels that Triton compiled in this process, by the driver's function."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        """Those that were asked for, by their SHA-256."""
        self.missing: list[str] = []
        """The symbols of kernels without one: they are from a library."""
        self._compiled: dict[int, Any] = {}

    def of(self, function: int, symbol: str) -> str:
        """Return the SHA-256 of the image that a function is from; empty where it is not known."""
        if function not in self._compiled:
            self._compiled = dict(compiled_kernels())
        image = image_of(self._compiled.get(function))
        if image is None:
            self.missing.append(symbol)
            return ""
        name = sha256_of(image)
        self.found[name] = image
        return name


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 of bytes as text."""
    return hashlib.sha256(data).hexdigest()


def compiled_kernels() -> Iterator[tuple[int, Any]]:
    """Yield Triton's kernels that have been launched, each after the driver's function."""
    for each in gc.get_objects():
        if type(each).__name__ in COMPILED and isinstance(function := vars(each).get("function"), int):
            yield function, each


def image_of(kernel: Any) -> bytes | None:
    """Return the image of one of Triton's kernels; None where it is not kept."""
    if kernel is None:
        return None
    image = getattr(kernel, "asm", {}).get("cubin") or getattr(kernel, "cubin_raw", None)
    return image if isinstance(image, bytes) else _cached(kernel)


def _cached(kernel: Any) -> bytes | None:
    """Return the image from Triton's cache: torch.compile's launcher lets go of it when it has loaded it."""
    from triton.runtime.cache import get_cache_manager

    try:
        path = get_cache_manager(kernel.hash).get_file(f"{kernel.name}.cubin")
        return Path(path).read_bytes() if path else None
    except (AttributeError, OSError):
        return None
