"""Verdicts on a GPU that was slower than it can be: throttled, or used by other processes."""

from collections.abc import Sequence

import msgspec

from pytest_gpubench.counters import is_changed_by_others
from pytest_gpubench.results.model import Measurement, Outcome, Timing, Verdict
from pytest_gpubench.verdict.limits import BY_NAME, limit_of


def invalidate_throttled(verdicts: Sequence[Verdict], timings: Sequence[Timing], throttled: str) -> tuple[Verdict, ...]:
    """Return the verdicts, INVALID where what slowed the GPU may have made them.

    throttled: "warn" leaves those on a throttled GPU as they are.
    """
    if not (why := why_slower(timings, throttled)):
        return tuple(verdicts)
    found = []
    for each in verdicts:
        limit = BY_NAME.get(each.kind)
        is_kept = each.outcome is Outcome.PASS and limit is not None and limit.holds_throttled  # none gets faster so
        if not is_kept and each.outcome is not Outcome.NOT_JUDGED:
            sentence = invalid_sentence(each.sentence, *why)
            each = msgspec.structs.replace(each, outcome=Outcome.INVALID, sentence=sentence)
        found.append(each)
    return tuple(found)


def beside(item: Measurement, neighbours: str) -> Measurement:
    """Return a measurement that was taken while other processes computed on the GPU."""
    timing, verdicts = msgspec.structs.replace(item.timing, neighbours=neighbours), list[Verdict]()
    for each in item.verdicts:
        limit = limit_of(each)
        changes = limit is not None and (limit.is_noisy or any(map(is_changed_by_others, limit.counters)))
        is_open = changes and each.outcome is not Outcome.INVALID
        verdicts += invalidate_throttled([each], [timing], "") if is_open else [each]
    return msgspec.structs.replace(item, timing=timing, verdicts=tuple(verdicts))


def what_slowed(timing: Timing, when: str) -> list[str]:
    """Return a sentence on each thing that slowed the GPU; when: `now`, `in the baseline 'main'`."""
    reasons = ", ".join(timing.throttle_reasons)
    return [
        *([f"the GPU was throttled {when} ({reasons})"] if reasons else []),
        *([f"{when}: {timing.neighbours}"] if timing.neighbours else []),
    ]


def why_slower(timings: Sequence[Timing], throttled: str) -> tuple[str, str] | None:
    """Return what slowed the GPU, and what to do about it; None where nothing did."""
    for timing in timings:
        if timing.neighbours:
            return timing.neighbours, (
                "end what is not yours, let tests wait with --gpu-bench-busy=wait, or accept it with "
                "--gpu-bench-busy=accept"
            )
    reasons = sorted({reason for timing in timings for reason in timing.throttle_reasons})
    if not reasons or throttled == "warn":
        return None
    return f"the GPU was throttled while it was measured ({', '.join(reasons)})", (
        "let the GPU cool or raise its power cap, give more --gpu-bench-budget-s to wait for clean reps, or accept it "
        "with --gpu-bench-throttled=warn"
    )


def invalid_sentence(sentence: str, why: str, remedy: str) -> str:
    """Return a sentence with what slowed the GPU, and what to do about it."""
    return f"{why}, so this says more about the GPU than about the code: {sentence}; {remedy}"
