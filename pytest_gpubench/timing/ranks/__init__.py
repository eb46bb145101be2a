"""A call over several GPUs of one host: one process for each, which begin every rep together.

In each rep the slowest rank counts. A kernel of a collective spins until its peers arrive, so the rank that begins
first seems to take longest. To keep what the hosts do out of the time, before each rep the hosts wait for each other,
keep their GPUs busy until all of the call is queued, and let the GPUs wait for each other right before the call (an
all-reduce of one number). A rep in which a host was not ahead of its GPU is taken again by all ranks, as throttled ones
are, and flagged `host-bound` where no other can be had. The GPUs leave that all-reduce within a few microseconds of
each other; these remain in the time. So does waiting within the call for a rank that has more to do. `Ranks.skew_us`
is how much longer the slowest takes than the fastest.

NCCL does not use NVLink multicast (NCCL_NVLS_ENABLE=0). On the CPU ranks are timed by the host's clock, over gloo.
"""

from pytest_gpubench.timing.ranks.job import PROGRESS_TIMEOUT_S, Collective, Job, Rank
from pytest_gpubench.timing.ranks.processes import measure_ranks
from pytest_gpubench.timing.ranks.result import Ranks

__all__ = ["PROGRESS_TIMEOUT_S", "Collective", "Job", "Rank", "Ranks", "measure_ranks"]
