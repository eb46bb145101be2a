"""A call beyond its kernels: its waits for the GPU, its memory, and whether its outputs repeat.

All of it is counted in untimed calls.
"""

from pytest_gpubench.structure.observation import observe
from pytest_gpubench.structure.repetition import is_deterministic

__all__ = ["is_deterministic", "observe"]
