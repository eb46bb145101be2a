"""Verdicts on a device that was slower than it can be: a GPU throttled, or either used by other processes."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pytest_gpubench.counters import is_changed_by_others
from pytest_gpubench.results.model import Measurement, Outcome, Timing, Verdict
from pytest_gpubench.verdict.limits import BY_NAME, limit_of

HELD_UP = "held up"
"""The flag of a timing on the CPU whose call has threads that waited for cores in most reps."""


def invalidate_throttled(verdicts: Sequence[Verdict], timings: Sequence[Timing], throttled: str) -> tuple[Verdict, ...]:
    """Return the verdicts, INVALID where what slowed the GPU may have made them, INCONCLUSIVE on a CPU.

    Those that are INVALID or NOT JUDGED stay so. throttled: "warn" leaves those on a throttled GPU as they are.
    """
    if (slowed := what_made_slower(timings, throttled)) is None:
        return tuple(verdicts)
    found = []
    for each in verdicts:
        limit = BY_NAME.get(each.kind)
        is_kept = each.outcome is Outcome.PASS and limit is not None and limit.holds_throttled  # none gets faster so
        if not is_kept and each.outcome not in (Outcome.NOT_JUDGED, Outcome.INVALID):  # which have other reasons
            each = msgspec.structs.replace(each, outcome=slowed.outcome, sentence=slowed.sentence(each.sentence))
        found.append(each)
    return tuple(found)


def beside(item: Measurement, neighbours: str) -> Measurement:
    """Return a measurement that was taken while other processes computed on the GPU."""
    timing, verdicts = msgspec.structs.replace(item.timing, neighbours=neighbours), list[Verdict]()
    for each in item.verdicts:
        limit = limit_of(each)
        changes = limit is not None and (limit.is_noisy or any(map(is_changed_by_others, limit.counters)))
        verdicts += invalidate_throttled([each], [timing], "") if changes else [each]
    return msgspec.structs.replace(item, timing=timing, verdicts=tuple(verdicts))


def what_slowed(timing: Timing, when: str) -> list[str]:
    """Return a sentence on each thing that slowed the GPU; when: `now`, `in the baseline 'main'`."""
    reasons = ", ".join(timing.throttle_reasons)
    return [
        *([f"the GPU was throttled {when} ({reasons})"] if reasons else []),
        *([f"{when}: {timing.neighbours}"] if timing.neighbours else []),
    ]


@dataclass(frozen=True)
class Slowed:
    """The cause of a slow device, what to do about it, and the outcome of what it may have caused."""

    why: str
    remedy: str
    device: str = "GPU"
    outcome: Outcome = Outcome.INVALID

    def sentence(self, on_limit: str) -> str:
        """Return the sentence on a limit with these."""
        return f"{self.why}, so this says more about the {self.device} than about the code: {on_limit}; {self.remedy}"


def what_made_slower(timings: Sequence[Timing], throttled: str) -> Slowed | None:
    """Return what slowed the device in one of the timings; None where nothing did."""
    for timing in timings:
        if timing.neighbours:
            return Slowed(
                timing.neighbours,
                "end what is not yours, let tests wait with --gpu-bench-busy=wait, or accept it with "
                "--gpu-bench-busy=accept",
            )
    reasons = sorted({reason for timing in timings for reason in timing.throttle_reasons})
    if reasons and throttled != "warn":
        return Slowed(
            f"the GPU was throttled while it was measured ({', '.join(reasons)})",
            "let the GPU cool or raise its power cap, give more --gpu-bench-budget-s to wait for clean reps, or accept "
            "it with --gpu-bench-throttled=warn",
        )
    if any(HELD_UP in timing.flags for timing in timings):
        return Slowed(
            "threads of the call waited for cores in most reps",
            "end what else computes, or use fewer threads (torch.set_num_threads, OMP_NUM_THREADS)",
            "CPU",
            Outcome.INCONCLUSIVE,
        )
    return None
