"""A call's waits of the host for the GPU, its GPU memory, its kernels and its compilations."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """The memory that one call took from torch's caching allocator."""

    allocations: int
    allocated_bytes: int
    """The sum of all allocations, rounded up as the allocator does."""
    peak_bytes: int
    """The most that was allocated at once, above what was before the call; outputs included, inputs not."""
    kept_bytes: int
    """The memory that a call keeps after its outputs are dropped: 0 unless it leaks."""


@dataclass(frozen=True)
class Observed:
    """The waits, memory, kernels and compilations of a warm call on a GPU."""

    waits: tuple[Wait, ...] = ()
    """Seen by torch or by Python."""
    runtime_waits: Mapping[str, int] = field(default_factory=dict)
    """The call's waits by function of the CUDA runtime, those in `waits` among them."""
    memory: AllocatedMemory | None = None
    """None where the allocator does not count."""
    driver_allocations: Mapping[str, int] = field(default_factory=dict)
    """Calls of cudaMalloc and cudaFree, by name: torch's own among them."""
    kernels: Mapping[str, int] = field(default_factory=dict)
    """Launches of each kernel, copy and memset, by name."""
    compilations: int = 0
    """Kernels of Triton's and graphs of torch.compile that it compiles, or reads from a cache."""

    @property
    def waits_number(self) -> int:
        """The number of its waits: a wait may be seen by torch, by the CUDA runtime, or by both."""
        return max(len(self.waits), sum(self.runtime_waits.values()))
