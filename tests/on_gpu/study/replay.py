"""Tell which calls can be replayed, and what a replay takes beside the graph of the call itself.

replay [--rounds N] [--placements N] [--only REGEX] [--out FILE]

Four graphs are made: the call's own, a second one that was captured alike, whose memory is elsewhere, and two that were
rebuilt from its data in one memory, as a saved call and today's are. Pairs of them are timed in turn, each pair alone:
graphs that share a module find its code in the caches of instructions, and more often the more of them there are. With
--placements all are made so many times, each time elsewhere in memory, and the mean of the ratios is shown, with its
95 % interval and their standard deviation.
"""

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.on_gpu.study.harness import parser_of, print_head, print_row
from tests.on_gpu.study.items import Row, append

if TYPE_CHECKING:
    from pytest_gpubench.gpu.device import Device
    from pytest_gpubench.replay.builder import GraphBuilder
    from pytest_gpubench.replay.capture import CapturedCall
    from pytest_gpubench.timing.base import Call

NATIVE, AGAIN, REPLAYED, REBUILT = "native", "native again", "replayed", "rebuilt"
PAIRS = {AGAIN: (NATIVE, AGAIN), REPLAYED: (NATIVE, REPLAYED), "rebuilt against replayed": (REPLAYED, REBUILT)}
WITHIN = {3.0: 0.01, 10.0: 0.005}
"""The share by which a replay may differ, above so many microseconds."""


def take(call: "Call", device: "Device", cuda: "GraphBuilder", rounds: int, placements: int) -> Row:
    """Return how a call is replayed; raise NotReplayable, or an error of ours, where it cannot be."""
    from pytest_gpubench.replay.capture import capture_call
    from pytest_gpubench.replay.proof import prove

    found = capture_call(call, device, cuda, libraries=True)
    prove(call, found, device, cuda)
    shares: dict[str, list[float]] = {name: [] for name in PAIRS}
    with ExitStack() as held:  # until the last is timed, so that each lies elsewhere
        for _ in range(placements):
            launches = held.enter_context(graphs_of(call, found, device, cuda))
            for name, pair in PAIRS.items():
                share, us = compare({each: launches[each] for each in pair}, call, device, rounds)
                shares[name].append(share)
    return {
        "us": us,
        "kernels": len(found.data.kernels),
        "shares": {name: estimate(each) for name, each in shares.items()},
    }


@contextmanager
def graphs_of(
    call: "Call", found: "CapturedCall", device: "Device", cuda: "GraphBuilder"
) -> Iterator[Mapping[str, Callable[[], object]]]:
    """Give what launches each of the four graphs."""
    from pytest_gpubench.replay.addresses import input_memory
    from pytest_gpubench.replay.replayed import memory_for, replaying
    from pytest_gpubench.timing.graph import capture

    assert call.inputs is not None, "it was captured"
    natives = {name: capture(call, device) for name in (NATIVE, AGAIN)}
    memory = memory_for(found.data.regions, device.torch_device, input_memory(call.inputs(), device.torch_device))
    with ExitStack() as held:
        rebuilt = {
            name: held.enter_context(replaying(found.data, modules, memory, cuda, device))
            for name in (REPLAYED, REBUILT)
            for modules in [held.enter_context(cuda.loaded(found.data, found.images))]
        }
        yield {name: each.graph.replay for name, each in natives.items()} | {
            name: each.launch for name, each in rebuilt.items()
        }


def compare(
    launches: Mapping[str, Callable[[], object]], call: "Call", device: "Device", rounds: int
) -> tuple[float, float]:
    """Return by what share the second of two graphs is slower, and the time of the first in microseconds."""
    from pytest_gpubench.replay.comparison import launching
    from pytest_gpubench.timing import make_timer
    from pytest_gpubench.timing.comparison import Match, measure_in_turn
    from pytest_gpubench.timing.measurement import Plan

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
    from pytest_gpubench.stats.summary import student_t

    if len(shares) < 2:
        return shares[0], math.inf, math.inf
    spread = statistics.stdev(shares)
    return statistics.fmean(shares), student_t(0.025, len(shares) - 1) * spread / math.sqrt(len(shares)), spread


def summarise(rows: Sequence[Row]) -> None:
    timed = [row for row in rows if "us" in row]
    print(f"\n{len(timed)} of {len(rows)} calls can be replayed")
    for above_us, most in WITHIN.items():
        below_us = min((each for each in WITHIN if each > above_us), default=math.inf)
        part = [row for row in timed if above_us < row["us"] <= below_us]
        for name in PAIRS:
            shares = [abs(row["shares"][name][0]) for row in part]
            within = sum(share <= most for share in shares)
            worst = ", ".join(f"{share:.2%}" for share in sorted(shares, reverse=True)[:3])
            print(
                f"{above_us:g} to {below_us:g} us, {name}: {within} of {len(shares)} within {most:.1%}; worst {worst}"
            )


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("replay", __doc__)
    parser.add_argument("--rounds", type=int, default=24, help="quads of each pair at each placement")
    parser.add_argument("--placements", type=int, default=8)
    parser.add_argument("--only", default="", help="a regular expression on calls")
    parser.add_argument("--out", type=Path, default=Path("replay.jsonl"), help="a file of JSON lines")
    chosen = parser.parse_args(arguments)
    import torch

    from pytest_gpubench import GpuBenchError
    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.replay.builder import find_builder
    from pytest_gpubench.replay.reader import NotReplayable
    from tests.on_gpu.replay_kernels import CALLS, LIBRARY, warm_call

    device, cuda, rows = find_device("cuda"), find_builder(), list[Row]()
    assert cuda is not None
    chosen.out.write_text("")
    calls: Mapping[str, Any] = {**CALLS, **LIBRARY}
    print_head(f"call | us | kernels | {' | '.join(PAIRS)}")
    for name in [each for each in calls if re.search(chosen.only, each)]:
        row: Row = {"name": name}
        try:
            row |= take(warm_call(*calls[name]), device, cuda, chosen.rounds, chosen.placements)
        except (NotReplayable, GpuBenchError) as error:
            row["why"] = str(error).splitlines()[0]
        rows.append(row)
        append(chosen.out, row)
        if "why" in row:
            print_row(f"{name} | | | | | {row['why'][:100]}")
        else:
            told = " | ".join(f"{share:+.2%} +- {half:.2%} ({sd:.2%})" for share, half, sd in row["shares"].values())
            print_row(f"{name} | {row['us']:.2f} | {row['kernels']} | {told}")
        torch.cuda.empty_cache()
    summarise(rows)
