"""Tell which calls can be replayed, and what a replay takes beside the graph of the call itself.

replay [--rounds N] [--placements N] [--only REGEX] [--out FILE]

Four graphs are timed in turn: the call's own, a second one that was captured alike, whose memory is elsewhere, and two
that were rebuilt from its data in one memory, as a saved call and today's are. The two of a kind show what differs
although nothing has changed. With --placements each is made so many times, each time elsewhere in memory, and the mean
of their ratios is shown.
"""

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.on_gpu.study.harness import parser_of, print_head, print_row
from tests.on_gpu.study.items import Row, append

if TYPE_CHECKING:
    from pytest_gpubench.gpu.device import Device
    from pytest_gpubench.replay.builder import GraphBuilder
    from pytest_gpubench.timing.base import Call
    from pytest_gpubench.timing.rounds import Interleaved

NATIVE, AGAIN, REPLAYED, REBUILT = "native", "native again", "replayed", "rebuilt"
PAIRS = {AGAIN: (NATIVE, AGAIN), REPLAYED: (NATIVE, REPLAYED), "rebuilt against replayed": (REPLAYED, REBUILT)}
WITHIN = {3.0: 0.01, 10.0: 0.005}
"""The share by which a replay may differ, above so many microseconds."""


def take(call: "Call", device: "Device", cuda: "GraphBuilder", rounds: int, placements: int) -> Row:
    """Return how a call is replayed; raise NotReplayable, or an error of ours, where it cannot be."""
    from pytest_gpubench.replay.addresses import input_memory
    from pytest_gpubench.replay.capture import capture_call
    from pytest_gpubench.replay.proof import prove
    from pytest_gpubench.replay.replayed import memory_for, replaying
    from pytest_gpubench.timing.graph import capture

    found = capture_call(call, device, cuda, libraries=True)
    prove(call, found, device, cuda)
    assert call.inputs is not None, "it was captured"
    natives = {f"{name} {place}": capture(call, device) for place in range(placements) for name in (NATIVE, AGAIN)}
    launches: dict[str, Callable[[], object]] = {name: each.graph.replay for name, each in natives.items()}
    with ExitStack() as held:
        for place in range(placements):
            inputs = input_memory(call.inputs(), device.torch_device)
            memory = memory_for(found.data.regions, device.torch_device, inputs)
            for name in (REPLAYED, REBUILT):
                modules = held.enter_context(cuda.loaded(found.data, found.images))
                again = replaying(found.data, modules, memory, cuda, device)
                launches[f"{name} {place}"] = held.enter_context(again).launch
        taken, us = time_in_turn(call, launches, device, rounds // placements)
    shares = {name: estimate(taken, *pair, placements) for name, pair in PAIRS.items()}
    return {"us": us, "kernels": len(found.data.kernels), "shares": shares}


def time_in_turn(
    call: "Call", launches: Mapping[str, Callable[[], object]], device: "Device", rounds: int
) -> tuple["Interleaved", float]:
    """Return the rounds, and the time of the native graph in microseconds."""
    from pytest_gpubench.replay.comparison import launching
    from pytest_gpubench.timing import make_timer
    from pytest_gpubench.timing.comparison import Match, measure_in_turn
    from pytest_gpubench.timing.measurement import Plan

    calls = {name: launching(call, name, launch) for name, launch in launches.items()}
    plan, timer = Plan("cold", 2 * rounds, None, 0.005, 4.0), make_timer("profiler", device, "cold")
    match = Match(calls, next(iter(calls)))
    taken, timings = measure_in_turn(match, timer, device, plan, lambda *_: True, lambda text: None)
    return taken, timings[match.reference].median_us


def estimate(taken: "Interleaved", reference: str, name: str, placements: int) -> tuple[float, float]:
    """Return by what share an arm is slower than another, the mean of all places, and the standard error of that."""
    shares, variances = [], []
    for place in range(placements):
        logs = [
            math.fsum(map(math.log, quad.candidate_us)) / 2 - math.fsum(map(math.log, quad.reference_us)) / 2
            for quad in taken.quads(f"{reference} {place}", f"{name} {place}")
        ]
        shares.append(statistics.median(logs))
        variances.append(statistics.variance(logs) / len(logs))
    return statistics.fmean(shares), 1.2533 * math.sqrt(math.fsum(variances)) / placements


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
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--placements", type=int, default=1)
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
            told = " | ".join(f"{share:+.2%} ({error:.2%})" for share, error in row["shares"].values())
            print_row(f"{name} | {row['us']:.2f} | {row['kernels']} | {told}")
        torch.cuda.empty_cache()
    summarise(rows)
