"""What a call does besides its kernels: where the host waits for the GPU, and the GPU memory that it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__tracebackhide__ = True


@dataclass(frozen=True)
class Wait:
    """One time that the host waited for the GPU."""

    what: str
    """The source line, or the function that waits."""
    where: str = ""
    """File and line of the user's code; empty where that is not known."""

    def __str__(self) -> str:
        return f"{self.what} ({self.where})" if self.where else self.what


@dataclass(frozen=True)
class AllocatedMemory:
    """What one call took from torch's caching allocator."""

    allocations: int
    allocated_bytes: int
    """Of all allocations together, rounded up as the allocator does."""
    peak_bytes: int
    """The most that was allocated at once, above what was before the call; outputs included, inputs not."""
    kept_bytes: int
    """What every call adds to the memory in use though its outputs are dropped: 0 unless it leaks."""


@dataclass(frozen=True)
class Observed:
    """What a call did on a GPU."""

    waits: tuple[Wait, ...] = ()
    """Seen by torch or by Python."""
    runtime_waits: Mapping[str, int] = field(default_factory=dict)
    """How often the call, or what it calls, waited by a function of the CUDA runtime, among them those in `waits`."""
    memory: AllocatedMemory | None = None
    """None where the allocator does not count."""
    driver_allocations: Mapping[str, int] = field(default_factory=dict)
    """Calls of cudaMalloc and cudaFree, by name: torch's own among them."""
