"""Images of modules: the compiled code that a kernel is from, as Triton, torch.compile or the driver keep it."""

import gc
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

from pytest_gpubench.replay.loaded_images import LoadedImages
from pytest_gpubench.units import first_few

COMPILED = {
    "triton.compiler.compiler": ("CompiledKernel",),
    "torch._inductor.runtime.static_triton_launcher": ("StaticallyLaunchedCudaKernel",),
    "torch._inductor.runtime.static_cuda_launcher": ("StaticallyLaunchedCudaKernel",),
}
"""Classes of kernels by their modules: Triton's, and of torch.compile's own launcher in new and older versions."""


_launched: dict[int, ReferenceType[Any]] = {}
"""Kernels of Triton's that have been launched, by the driver's function: to find them takes 50 ms."""


class Images:
    """The images of the kernels of one call, all of which have been launched in this process.

    loaded: where those are looked for that Triton has not compiled; None leaves them out.
    """

    def __init__(self, loaded: LoadedImages | None = None) -> None:
        self.found: dict[str, bytes] = {}
        """Those that were asked for, by their SHA-256."""
        self.functions: set[tuple[str, int]] = set()
        """Those that they were asked for, each after the SHA-256 of its image."""
        self.missing: list[str] = []
        """The symbols of kernels without one."""
        self._loaded = loaded
        self._has_looked = False

    def of(self, function: int, symbol: str) -> str:
        """Return the SHA-256 of the image that a function of the driver's is from; empty where it is not known."""
        if (kernel := _known(function)) is None and not self._has_looked:
            self._has_looked = True
            classes = {getattr(sys.modules.get(each), name, None) for each, names in COMPILED.items() for name in names}
            note_launched(each for each in gc.get_objects() if type(each) in classes)
            kernel = _known(function)
        image = image_of(kernel)
        if image is None and self._loaded is not None:
            image = self._loaded.image_of(function, symbol)
        if image is None:
            self.missing.append(symbol)
            return ""
        name = sha256_of(image)
        self.found[name] = image
        self.functions.add((name, function))
        return name

    @property
    def why_missing(self) -> str:
        """The reason why the call has no images, in words."""
        symbols = first_few(list(dict.fromkeys(self.missing)), 3)
        if self._loaded is None:
            return f"it launches kernels that Triton did not compile: {symbols}"
        return f"the images of its kernels were not found in this process's memory: {symbols}"


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 of bytes as text."""
    return hashlib.sha256(data).hexdigest()


def _known(function: int) -> Any:
    """Return a kernel that was found before, if it is still there: the driver gives the same number to another one."""
    kernel = found() if (found := _launched.get(function)) is not None else None
    return kernel if getattr(kernel, "function", None) == function else None


def note_launched(kernels: Iterable[Any]) -> None:
    """Note the functions of Triton's kernels that have been launched: none of these needs to be looked for."""
    functions = ((vars(each).get("function"), each) for each in kernels)
    _launched.update((function, ref(each)) for function, each in functions if isinstance(function, int))


def image_of(kernel: Any) -> bytes | None:
    """Return the image of one of Triton's kernels; None where it is not kept.

    torch.compile's launcher lets go of it when it has loaded it: Triton's cache has it then.
    """
    if kernel is None:
        return None
    image = getattr(kernel, "asm", {}).get("cubin") or getattr(kernel, "cubin_raw", None)
    if isinstance(image, bytes):
        return image
    from triton.runtime.cache import get_cache_manager

    try:
        path = get_cache_manager(kernel.hash).get_file(f"{kernel.name}.cubin")
        return Path(path).read_bytes() if path else None
    except (AttributeError, OSError):
        return None
