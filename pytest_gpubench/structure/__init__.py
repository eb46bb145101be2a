"""What a call does besides its kernels: where it waits for the GPU, what memory it takes, whether it repeats itself.

All of it is counted in untimed calls.
"""

from pytest_gpubench.structure.observation import observe
from pytest_gpubench.structure.repetition import is_deterministic

__all__ = ["is_deterministic", "observe"]
