"""The clocks of a GPU held at one value for a while, and given back however the process ends.

NVML says nowhere whether somebody locked the clocks before, with `nvidia-smi --lock-gpu-clocks` say: what is given back
is the GPU's own choice. A record on disk, written before the clocks are changed, says whose they are meanwhile.
"""

from pytest_gpubench.gpu.clocks.abandoned import restore_abandoned, restore_all
from pytest_gpubench.gpu.clocks.lock import ClockLock, lock_of

__all__ = ["ClockLock", "lock_of", "restore_abandoned", "restore_all"]
