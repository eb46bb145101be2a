"""Measure a function on several GPUs at once, a process each: `gpu_bench.ranks`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_gpubench.bench.integrity import auditing
from pytest_gpubench.bench.plan import is_enforced, plan_of, unmeasured
from pytest_gpubench.bench.request import Request, Say
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.limits import Limits, check_count
from pytest_gpubench.results.model import Measurement, Timing, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.calls import name_of
from pytest_gpubench.timing.ranks import TIMEOUT_S, Collective, Job, Rank, Ranks, devices_of, measure_ranks
from pytest_gpubench.verdict.exact import judge_exact, needs_observation
from pytest_gpubench.verdict.rates import RateRules
from pytest_gpubench.verdict.throttling import distrust_throttled
from pytest_gpubench.verdict.time import judge

__tracebackhide__ = True

NOT_OF_RANKS = ("max_memory", "deterministic", "min_tflops", "min_peak_fraction", "max_regression")
"""Limits that a call in several processes is not held to."""


@dataclass(frozen=True)
class RanksRequest(Request[Ranks]):
    """What `ranks` asks for; fields as its keywords.

    gpus: how many the test holds.
    """

    function: Callable[..., object]
    world_size: int
    gpus: int
    setup: Callable[[Rank], object] | None = None
    check: Callable[[Rank, Any], object] | None = None
    label: str | None = None
    collective: Collective | None = None
    message_bytes: int | None = None
    timeout_s: float = TIMEOUT_S
    has_baseline = False

    def __post_init__(self) -> None:
        link_known = self.collective is not None and self.message_bytes is not None
        check_ranks(self.limits, self.settings, self.device, self.world_size, self.gpus, link_known)

    @property
    def labels(self) -> Sequence[str]:
        """The function's name."""
        return [self.label or name_of(self.function)]

    def measure(self, say: Say, measured: list[Measurement]) -> Ranks:
        """Return what the ranks took."""
        if self.settings.disable:
            return self.call_only("switched off by --gpu-bench-disable", measured)
        found = self._run(timed=True)
        assert found is not None
        enforced = is_enforced(self.settings, self.device)
        verdicts = judge_ranks(found.timing, self.limits, self.settings, enforced)
        measured[:] = [Measurement(timing=found.timing, verdicts=verdicts)]
        return found

    def call_only(self, reason: str, measured: list[Measurement]) -> Ranks:
        """Have every rank call the function once, and check what it returns."""
        self._run(timed=False)
        timing = unmeasured(self.title, self.device, self.settings, reason)
        measured[:] = [Measurement(timing=timing)]
        return Ranks(timing)

    def _run(self, timed: bool) -> Ranks | None:
        plan = plan_of(self.settings)
        if self.limits:
            plan = replace(plan, precision_time_s=plan.max_time_s)
        job = Job(
            self.function,
            plan,
            self.setup,
            self.check,
            self.label,
            self.collective,
            self.message_bytes,
            timed=timed,
            timeout_s=self.timeout_s,
        )
        with auditing(self.settings, self.device):
            return measure_ranks(job, devices_of(self.device, self.world_size))


def check_ranks(
    limits: Limits, settings: Settings, device: Device, world_size: int, gpus: int, link_known: bool = True
) -> None:
    """Raise BadRequest where ranks cannot be measured as they are asked for.

    gpus: how many the test holds. link_known: whether it is told what each rank's link has to carry.
    """
    check_count("ranks(world_size={})", world_size, least=2)
    if settings.timer == "scripted" or (device.type == "cuda" and settings.timer != "profiler"):
        raise BadRequest(f"ranks() cannot be timed by {settings.timer!r}: on GPUs the profiler does it")
    unheld = [name for name in NOT_OF_RANKS if (asked := getattr(limits, name)) is not None and asked is not False]
    if unheld or needs_observation(limits):
        raise BadRequest(f"ranks() cannot be held to {(unheld or ['forbid sync or alloc'])[0]}: leave it out")
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


def judge_ranks(timing: Timing, limits: Limits, settings: Settings, enforced: bool) -> tuple[Verdict, ...]:
    """Return the verdicts on what several GPUs took."""
    rates = RateRules(settings.alpha, enforced).judge(timing, limits)
    found = (*judge(timing, limits, settings.alpha, enforced), *rates)
    on_time = distrust_throttled(found, [timing], settings.throttled)
    return on_time + judge_exact(timing, limits, enforced=enforced)
