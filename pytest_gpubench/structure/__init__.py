"""What a call does besides its kernels: where it waits for the GPU, what memory it takes, whether it repeats itself.

All of it is counted in untimed calls.
"""

from pytest_gpubench.structure.allocations import Memory
from pytest_gpubench.structure.observation import Observed, observe
from pytest_gpubench.structure.repetition import is_deterministic
from pytest_gpubench.structure.waits import Wait

__all__ = ["Memory", "Observed", "Wait", "is_deterministic", "observe"]
