"""Measure a function on several GPUs at once, a process each: `gpu_bench.ranks`."""

import os
from dataclasses import dataclass, replace
from typing import get_args

from pytest_gpubench.bench.integrity import auditing
from pytest_gpubench.bench.plan import is_enforced, unmeasured_reason
from pytest_gpubench.bench.request import CallResult, Request, Say
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import Measurement
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.cache import CacheName, Producer
from pytest_gpubench.timing.ranks import Job, Ranks, measure_ranks
from pytest_gpubench.verdict.limits import WHILE_TIMED, Limits
from pytest_gpubench.verdict.limits.base import Need, Seen
from pytest_gpubench.verdict.throttling import invalidate_throttled

NOT_OF_RANKS: frozenset[Need] = frozenset({"observation", "resources", "repeats", "flops", "peaks", "baseline"})
"""The facts that are not known of a call in several processes."""
LEAST_CPU_RANKS = 16
"""So many ranks may share the CPU, however few cores it has."""


@dataclass(frozen=True)
class RanksRequest(Request[Ranks]):
    """A call of `ranks`: one function, in several processes."""

    job: Job
    world_size: int
    gpus: int
    """The number of GPUs that the test holds."""
    has_baseline = False

    def __post_init__(self) -> None:
        link_known = self.job.collective is not None and self.job.message_bytes is not None
        check_ranks(self.limits, self.settings, self.device, self.world_size, self.gpus, link_known)

    def measure(self, say: Say) -> CallResult[Ranks]:
        """Return what the ranks took."""
        if reason := unmeasured_reason(self.settings, self.device, interpreted=0):
            return self.call_only(reason)
        plan = self.job.plan
        if self.limits:
            plan = replace(plan, precision_time_s=plan.max_time_s)
        found = self._run(replace(self.job, plan=plan))
        assert found is not None, "it was to be timed"
        enforced, settings = is_enforced(self.settings, self.device), self.settings
        seen = Seen(found.timing, settings.alpha, settings.alpha)
        verdicts = self.limits.judge(WHILE_TIMED, seen, enforced)
        on_time = invalidate_throttled(verdicts, [found.timing], settings.throttled)
        verdicts = on_time + self.limits.judge("structure", seen, enforced)
        return CallResult(found, [Measurement(timing=found.timing, verdicts=verdicts)])

    def call_only(self, reason: str) -> CallResult[Ranks]:
        """Have every rank call the function once, and check what it returns."""
        self._run(replace(self.job, timed=False))
        (item,) = self.without_time(reason)
        return CallResult(Ranks(item.timing), [item])

    def _run(self, job: Job) -> Ranks | None:
        with auditing(self.settings, self.device):
            return measure_ranks(job, self.device, self.world_size)


def check_ranks(
    limits: Limits, settings: Settings, device: Device, world_size: int, gpus: int, link_known: bool = True
) -> None:
    """Raise BadRequest where ranks cannot be measured as they are asked for.

    gpus: how many the test holds. link_known: whether it is told what each rank's link has to carry.
    """
    most = max(LEAST_CPU_RANKS, 2 * (os.cpu_count() or 1))
    if device.type == "cpu" and world_size > most:
        raise BadRequest(
            f"ranks(world_size={world_size}) would start as many processes on the CPU: ask for at most {most} here"
        )
    if isinstance(settings.cache, Producer):
        raise BadRequest(
            f"ranks() cannot run {settings.cache} before each rep: it is called without arguments, and each process "
            f"has tensors of its own; give cache={' or '.join(map(repr, get_args(CacheName)))}"
        )
    if settings.timer == "scripted" or (device.type == "cuda" and settings.timer != "profiler"):
        raise BadRequest(f"ranks() cannot be timed by {settings.timer!r}: on GPUs the profiler does it")
    for limit in limits:
        if limit.needs & NOT_OF_RANKS:
            name = "forbid sync or alloc" if limit.name == "forbid" else limit.name
            raise BadRequest(f"ranks() cannot be held to {name}: leave it out")
    if limits.min_gbps is not None and not link_known:
        raise BadRequest(
            f"ranks() under min_gbps={limits.min_gbps:g} needs collective= and message_bytes=, which say what each "
            "rank's link has to carry"
        )
    if device.type == "cuda" and world_size > gpus:
        raise BadRequest(
            f"ranks(world_size={world_size}) needs as many GPUs, and the test holds {gpus}: mark it "
            f"@pytest.mark.perf(gpus={world_size})"
        )
