"""Tell which calls can be replayed, and what a replay takes beside the graph of the call itself.

replay [--rounds N] [--placements N] [--only REGEX] [--out FILE]

Four graphs are made: the call's own, a second one that was captured alike, whose memory is elsewhere, and two that were
rebuilt from the data and the images of the first, in its memory. Pairs of them are timed in turn, each pair alone:
graphs that share a module find its code in the caches of instructions, and more often the more of them there are. All
are made again, each time elsewhere in memory, until the 95 % intervals of the last two ratios reach no further than
half of what they may be off, and N times at most. Shown are the mean of each ratio, that interval, and the standard
deviation of one placement.
"""

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from pytest_gpubench import GpuBenchError
from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.replay.builder import GraphBuilder, find_builder
from pytest_gpubench.replay.capture import capture_call
from pytest_gpubench.replay.comparison import launching
from pytest_gpubench.replay.proof import prove
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.replayed import Replayed
from pytest_gpubench.replay.resources import capture_read
from pytest_gpubench.stats.summary import student_t
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.graph import Captured, capture
from pytest_gpubench.timing.measurement import Plan
from tests.on_gpu.replay_kernels import CALLS, LIBRARY, warm_call
from tests.on_gpu.study.harness import Row, append, parser_of, print_head, print_row

NATIVE, AGAIN, REPLAYED, REBUILT = "native", "native again", "replayed", "replayed again"
PAIRS = {AGAIN: (NATIVE, AGAIN), REPLAYED: (NATIVE, REPLAYED), REBUILT: (REPLAYED, REBUILT)}
SPANS = ((3.0, 10.0, 0.01), (10.0, math.inf, 0.005))
"""From and to so many microseconds, and the share by which a replay may differ there."""
LEAST_PLACEMENTS = 8


def take(call: Call, device: Device, cuda: GraphBuilder, rounds: int, placements: int) -> Row:
    """Return how a call is replayed; raise NotReplayable, or an error of ours, where it cannot be."""
    found = capture_call(call, device, cuda, libraries=True)
    prove(call, found, device, cuda)
    times_us, shares = list[float](), {name: list[float]() for name in PAIRS}
    with ExitStack() as held:  # until the last is timed, so that each lies elsewhere
        while len(times_us) < placements and not is_enough(shares, times_us):
            launches = graphs_of(call, device, cuda, held)
            for name, pair in PAIRS.items():
                share, us = compare({each: launches[each] for each in pair}, call, device, rounds)
                shares[name].append(share)
            times_us.append(us)
    estimates = {name: estimate(each) for name, each in shares.items()}
    us = statistics.median(times_us)
    return {"us": us, "kernels": len(found.data.kernels), "placements": len(times_us), "shares": estimates}


def is_enough(shares: Mapping[str, Sequence[float]], times_us: Sequence[float]) -> bool:
    """Tell whether the mean ratios of replays are known well enough."""
    if len(times_us) < LEAST_PLACEMENTS:
        return False
    most = next((share for _, to_us, share in SPANS if times_us[0] <= to_us), 0.0)
    return all(estimate(shares[name])[1] <= most / 2 for name in (REPLAYED, REBUILT))


def graphs_of(call: Call, device: Device, cuda: GraphBuilder, held: ExitStack) -> dict[str, Callable[[], object]]:
    """Return what launches each of the four graphs, as long as they are held."""
    captured: list[Captured] = []
    held.callback(captured.clear)

    def keep(*args: Any) -> Captured:
        captured.append(capture_read(*args))
        return captured[-1]

    with patch("pytest_gpubench.replay.capture.capture_read", keep):
        found = capture_call(call, device, cuda, libraries=True)
    again = capture(call, device)
    launches: dict[str, Callable[[], object]] = {NATIVE: captured[0].graph.replay, AGAIN: again.graph.replay}
    captured[1:] = [again]  # without one whose inputs were elsewhere
    for name in (REPLAYED, REBUILT):
        modules = held.enter_context(cuda.loaded(found.data, found.images))
        built = cuda.build(found.data, modules, found.starts, held)
        launches[name] = partial(Replayed(found.data, [], device, built).launch, whole=True)
    held.callback(device.synchronize)
    return launches


def compare(
    launches: Mapping[str, Callable[[], object]], call: Call, device: Device, rounds: int
) -> tuple[float, float]:
    """Return by what share the second of two graphs is slower, and the time of the first in microseconds."""
    calls = {name: launching(call, name, launch) for name, launch in launches.items()}
    one, other = calls
    plan, timer = Plan("cold", 2 * rounds, None, 0.005, 4.0), make_timer("profiler", device, "cold")
    taken, timings = measure_in_turn(Match(calls, one), timer, device, plan, lambda *_: True, lambda text: None)
    logs = [
        math.fsum(map(math.log, quad.candidate_us)) / 2 - math.fsum(map(math.log, quad.reference_us)) / 2
        for quad in taken.quads(one, other)
    ]
    return statistics.fmean(logs), timings[one].median_us


def estimate(shares: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean, the half width of its 95 % interval, and the standard deviation of one placement."""
    if len(shares) < 2:
        return shares[0], math.inf, math.inf
    spread = statistics.stdev(shares)
    return statistics.fmean(shares), student_t(0.025, len(shares) - 1) * spread / math.sqrt(len(shares)), spread


def summarise(rows: Sequence[Row]) -> None:
    timed = [row for row in rows if "us" in row]
    print(f"\n{len(timed)} of {len(rows)} calls can be replayed")
    for from_us, to_us, most in SPANS:
        part = [row for row in timed if from_us < row["us"] <= to_us]
        for name in PAIRS:
            shares = [abs(row["shares"][name][0]) for row in part]
            within = sum(share <= most for share in shares)
            worst = ", ".join(f"{share:.2%}" for share in sorted(shares, reverse=True)[:3])
            print(f"{from_us:g} to {to_us:g} us, {name}: {within} of {len(shares)} within {most:.1%}; worst {worst}")


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("replay", __doc__)
    parser.add_argument("--rounds", type=int, default=16, help="quads of each pair at each placement")
    parser.add_argument("--placements", type=int, default=64, help="the most")
    parser.add_argument("--only", default="", help="a regular expression on calls")
    parser.add_argument("--out", type=Path, default=Path("replay.jsonl"), help="a file of JSON lines")
    chosen = parser.parse_args(arguments)

    device, cuda, rows = find_device("cuda"), find_builder(), list[Row]()
    chosen.out.write_text("")
    calls: Mapping[str, Any] = {**CALLS, **LIBRARY}
    print_head(f"call | us | kernels | placements | {' | '.join(PAIRS)}")
    for name in [each for each in calls if re.search(chosen.only, each)]:
        row: Row = {"name": name}
        try:
            row |= take(warm_call(*calls[name]), device, cuda, chosen.rounds, chosen.placements)
        except (NotReplayable, GpuBenchError) as error:
            row["why"] = str(error).splitlines()[0]
        rows.append(row)
        append(chosen.out, row)
        if "why" in row:
            print_row(f"{name} | | | | | | {row['why'][:100]}")
        else:
            told = " | ".join(f"{share:+.2%} +- {half:.2%} ({sd:.2%})" for share, half, sd in row["shares"].values())
            print_row(f"{name} | {row['us']:.2f} | {row['kernels']} | {row['placements']} | {told}")
        torch.cuda.empty_cache()
    summarise(rows)
