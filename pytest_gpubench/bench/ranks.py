"""A call on several GPUs as a test asks for it: which limits it can be held to, and the verdicts on them."""

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.limits import Limits, check_count
from pytest_gpubench.results.model import Timing, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.verdict.exact import judge_exact, needs_observation
from pytest_gpubench.verdict.rates import RateRules
from pytest_gpubench.verdict.throttling import distrust_throttled
from pytest_gpubench.verdict.time import judge

__tracebackhide__ = True

NOT_OF_RANKS = ("max_memory", "deterministic", "min_tflops", "min_peak_fraction", "max_regression")
"""Limits that a call in several processes is not held to."""


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
    if not timing.measured:
        return ()
    rates = RateRules(settings.alpha, enforced).judge(timing, limits)
    found = (*judge(timing, limits, settings.alpha, enforced), *rates)
    on_time = distrust_throttled(found, [timing], settings.throttled)
    return on_time + judge_exact(timing, limits, enforced=enforced)
