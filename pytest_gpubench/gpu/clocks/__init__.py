"""Lock the clocks of a GPU for a while, and reset them however the process ends.

NVML does not say whether somebody locked the clocks before, as with `nvidia-smi --lock-gpu-clocks`: a reset leaves them
to the GPU. A record on disk, written before the clocks are changed, says which processes want them locked.
"""

from pytest_gpubench.gpu.clocks.lock import ClockLock, lock_of
from pytest_gpubench.gpu.clocks.restore import restore_abandoned

__all__ = ["ClockLock", "lock_of", "restore_abandoned"]
