"""Placements: before a limit fails closely, the call is measured again with its memory at other addresses.

By the host's clock before any limit on the speed fails, and some time later: a busy host slows a call by any factor.
On H200s a kernel with contended atomics took 133 to 203 us by where the sums lay that it adds to, each time with an
interval of 0.4 %; other kernels differ by up to 1 %. A limit that is missed by less than placements differ by says
nothing about the code.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast

import msgspec
import torch

from pytest_gpubench.bench.request import CallResult, Request, Say, T, carrying
from pytest_gpubench.correctness.margins import moved
from pytest_gpubench.results.model import Measurement, Outcome, Verdict
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import format_time, repr_of, round_to_digits
from pytest_gpubench.verdict.limits import limit_of
from pytest_gpubench.verdict.reasons import explained_by_references

CLOSE = 0.5
"""The placement does not explain a limit that is missed by this part or more."""
CLOSE_IN_TURN = 0.05
"""The same for a speedup over the same kernels, which the placement slows as much."""
APART_S = 1.0
"""The pause before a placement is measured by the host's clock, which others on the host slow in bursts."""
LEAST_PLACEMENTS = 3
"""The placements that agree before a limit fails, as two may by chance; two for a speedup over the same kernels."""
MOST_PLACEMENTS = 5
"""The placements after which a limit fails where they differ by less than the fastest misses it by."""


def measure_confirmed(request: Request[T], say: Say) -> CallResult[T]:
    """Measure a request; a close FAIL is INCONCLUSIVE unless the same request fails at other addresses too.

    What fails against a reference has its reasons.
    """
    found = _confirmed(request, say)
    measured = explained_by_references(found.measurements)
    if measured == found.measurements:
        return found
    return CallResult(request.with_measurements(found.result, measured), measured)


def _confirmed(request: Request[T], say: Say) -> CallResult[T]:
    found = request.measure(say)
    if request.settings.reps is not None or not request.is_repeatable or not request.settings.takes_times:
        return found
    broken = [(item, each) for item in found.measurements for each in item.verdicts if each.fails_test]
    if not broken or not all(is_close_fail(each, item, found.measurements[0]) for item, each in broken):
        return found
    with carrying(found.measurements):
        measured = _measured_elsewhere(request, say, found.measurements)
    return CallResult(request.with_measurements(found.result, measured), measured)


def _measured_elsewhere(request: Request[Any], say: Say, measured: Sequence[Measurement]) -> list[Measurement]:
    """Measure at other placements until they decide; return the first measurements with the verdicts of all."""
    placements = [list(measured)]
    why_not = ""
    with ExitStack() as held:  # the memory of all placements, so that each gets other memory
        while not why_not and any(_is_open(items, measured[0]) for items in zip(*placements, strict=True)):
            say(f"measuring {request.title} again, with memory at other addresses")
            time.sleep(APART_S if measured[0].timing.timer == "wall" else 0.0)
            try:
                placements.append(list(held.enter_context(elsewhere(request)).measure(say).measurements))
            except Exception as error:  # no room, or code that relies on its addresses
                request.device.synchronize()  # raises an error that the process does not survive
                why_not = f"at other addresses it raised {repr_of(error)}"
    return [confirmed(items, measured[0], why_not) for items in zip(*placements, strict=True)]


def _is_open(items: Sequence[Measurement], reference: Measurement) -> bool:
    """Tell whether another placement may tell more of a close FAIL."""
    if len(items) >= MOST_PLACEMENTS:
        return False
    first = items[0]
    close = [each for each in first.verdicts if is_close_fail(each, first, reference) and not _doubt(each, items)]
    return any(len(items) < _least(each, first, reference) or _distance(each.kind, items) > 0 for each in close)


def _least(verdict: Verdict, item: Measurement, reference: Measurement) -> int:
    return 2 if _is_shared(verdict, item, reference) else LEAST_PLACEMENTS


def is_close_fail(verdict: Verdict, item: Measurement, reference: Measurement) -> bool:
    """Tell whether a limit on the speed is missed by little, by a part that is not known, or by the host's clock."""
    limit = limit_of(verdict)
    if verdict.outcome is not Outcome.FAIL or limit is None or not limit.is_on_speed:
        return False
    close = CLOSE_IN_TURN if _is_shared(verdict, item, reference) else CLOSE
    return item.timing.timer == "wall" or not limit.missed_by(item) >= close


def _is_shared(verdict: Verdict, item: Measurement, reference: Measurement) -> bool:
    """Tell whether the placement slows both sides of a limit as much: a speedup over the same kernels."""
    ours, theirs = ([kernel.name for kernel in each.timing.kernels] for each in (item, reference))
    return verdict.kind == "min_speedup" and bool(ours) and ours == theirs


def confirmed(items: Sequence[Measurement], reference: Measurement, why_not: str = "") -> Measurement:
    """Return the first measurement; its close FAILs are INCONCLUSIVE where those at other addresses doubt them.

    reference: the first measurement that the call made.
    why_not: why there are no more placements, for the FAILs that stand.
    """
    verdicts = []
    for verdict in items[0].verdicts:
        outcome, sentence = verdict.outcome, verdict.sentence
        if is_close_fail(verdict, items[0], reference):
            if why := _doubt(verdict, items):
                others = ", ".join(_found(verdict.kind, item) for item in items[1:])
                later = "later, " if items[0].timing.timer == "wall" else ""
                outcome, sentence = Outcome.INCONCLUSIVE, f"{why}: {sentence}; {later}at other addresses {others}"
            elif why_not:
                sentence = f"{sentence}; {why_not}"
        verdicts.append(msgspec.structs.replace(verdict, outcome=outcome, sentence=sentence))
    return msgspec.structs.replace(items[0], verdicts=tuple(verdicts))


def _doubt(verdict: Verdict, items: Sequence[Measurement]) -> str:
    """Return why a FAIL at the first placement does not stand; empty where it does."""
    limit = limit_of(verdict)
    assert limit is not None, "it is a close FAIL"
    least = min(limit.missed_by(item) for item in _judged(verdict.kind, items))
    passes = any((each.kind, each.outcome) == (verdict.kind, Outcome.PASS) for item in items for each in item.verdicts)
    cause = "the load of the host or " if items[0].timing.timer == "wall" else ""
    if passes or least <= 0:
        return f"{cause}the place of its memory decides"
    return f"{cause}the place of its memory matters as much" if _distance(verdict.kind, items) > least else ""


def _distance(kind: str, items: Sequence[Measurement]) -> float:
    """Return by what part the times of placements differ, beyond their intervals; 0 or less where they agree."""
    intervals = [_time_interval(kind, item) for item in _judged(kind, items)]
    return max(each.low for each in intervals) / min(each.high for each in intervals) - 1


def _judged(kind: str, items: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements that a limit could be judged by; one that is INVALID says nothing of a time."""
    outcomes = (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE)
    return [item for item in items if any(each.kind == kind and each.outcome in outcomes for each in item.verdicts)]


def _time_interval(kind: str, item: Measurement) -> Interval:
    """Return the interval of the time that a limit is on, of `min_speedup` over the reference's."""
    if kind == "min_speedup" and item.speedup:
        ratios = item.speedup.interval or Interval(item.speedup.ratio, item.speedup.ratio)
        return Interval(1 / ratios.high, 1 / ratios.low)
    return item.timing.median_interval_us or Interval(item.timing.median_us, item.timing.median_us)


def _found(kind: str, item: Measurement) -> str:
    if kind == "min_speedup" and item.speedup:
        return f"{round_to_digits(item.speedup.ratio, 4)}x"
    if found := next((each.found for each in item.verdicts if each.kind == kind == "min_weighted_speedup"), ""):
        return found
    return format_time(item.timing.median_us)


# other addresses


@contextmanager
def elsewhere(request: Request[T]) -> Iterator[Request[T]]:
    """Give the request with copies of its arguments' tensors, while the free memory that its calls used is taken.

    A producer knows the tensors where they are: they stay there.
    """
    taken = _free_memory(request.device.torch_device)
    other = request
    if request.remake is not None and not isinstance(request.settings.cache, Producer):
        args, kwargs = cast(Any, request.given)
        given = moved(args, kwargs or {}, request.device.torch_device)
        given.prepare(showing=())
        same = {name: getattr(request, name) for name in ("settings", "limits", "pass_alpha")}
        other = replace(request.remake(given.args, given.kwargs), **same)
    yield other
    del taken


def _free_memory(device: torch.device) -> list[torch.Tensor]:
    """Return tensors in every block that torch would hand out to outputs and temporaries on the current stream."""
    if device.type != "cuda":
        return []
    stream = torch.cuda.current_stream(device).cuda_stream
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    own = [each for each in segments if (each["device"], each["stream"]) == (device.index, stream)]
    blocks = [block for each in own if not any(each.get("segment_pool_id", ())) for block in each["blocks"]]
    sizes = sorted((block["size"] for block in blocks if block["state"] == "inactive"), reverse=True)
    return [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
