"""A call over several GPUs of one host: a process for each, in lockstep, and in each rep the slowest of them counts.

A kernel of a collective spins until its peers arrive, so that whoever begins first seems to take longest. What the
hosts do must not be in that: before each rep they wait for each other, keep their GPUs busy until all of the call is
queued, and have the GPUs wait for each other last (an all-reduce of one number, on the GPU), right before the call. A
rep in which a host was not ahead is flagged `host-bound`. What is left, a few microseconds in which the GPUs leave that
last meeting, is in the time of those that left it first; waiting within the call, for a peer that has more to do, is
the call's own. `Ranks.skew_us` is how much longer the slowest takes than the fastest.

NCCL is kept from using NVLink multicast (NCCL_NVLS_ENABLE=0). Without GPUs ranks are timed by the host's clock, and
talk over gloo.
"""

from pytest_gpubench.timing.ranks.collectives import Collective
from pytest_gpubench.timing.ranks.crew import devices_of, measure_ranks
from pytest_gpubench.timing.ranks.job import TIMEOUT_S, Job, Rank
from pytest_gpubench.timing.ranks.timings import Ranks

__all__ = ["TIMEOUT_S", "Collective", "Job", "Rank", "Ranks", "devices_of", "measure_ranks"]
