"""Time a saved call and today's in turn: the same inputs, the same memory, one process, one minute."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import permutations

import msgspec
import torch

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.addresses import input_memory
from pytest_gpubench.replay.builder import GraphBuilder
from pytest_gpubench.replay.call_data import CallData, Region
from pytest_gpubench.replay.capture import CapturedCall
from pytest_gpubench.replay.elf import code_of
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.replayed import Memory, Replayed, memory_for, new_memory, replaying
from pytest_gpubench.replay.scatter import Outputs, differing
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import LOOKS
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement
from pytest_gpubench.verdict.replays import Replay

SAVED, TODAY = "saved", "today"
Say = Callable[[str], None]


@dataclass(frozen=True)
class ReplayedPair:
    """A saved call and today's, with what both are replayed with."""

    saved: CapturedCall
    today: CapturedCall
    call: Call
    """Today's call, which gives each rep its inputs as they were given."""
    device: Device
    cuda: GraphBuilder

    def compare(self, tolerance: RegressionTolerance, settings: Settings, plan: Plan, say: Say) -> Replay:
        """Return how today's call compares with the saved one; what is slower has to be so in other memory too.

        Raises NotReplayable where the saved call cannot be given today's inputs, and DriverError.
        """
        if is_same(self.saved, self.today):
            return Replay(None)
        with ExitStack() as held:
            first = held.enter_context(self._timed(tolerance, settings, plan, say, (SAVED, TODAY)))
            if first[1] is not Outcome.FAIL or settings.reps is not None:
                return first[0]
            say(f"replaying {self.call.label} again, in other memory")
            second = held.enter_context(self._timed(tolerance, settings, plan, say, (TODAY, SAVED)))
        if second[1] is Outcome.FAIL:
            return first[0]
        return replace(first[0], doubt="but not in other memory")

    @contextmanager
    def _timed(
        self, tolerance: RegressionTolerance, settings: Settings, plan: Plan, say: Say, order: Sequence[str]
    ) -> Iterator[tuple[Replay, Outcome]]:
        """Give how they compare, and whether that keeps the tolerance, while their memory is held.

        order: that they are built in, on which it depends where their code lies.
        """
        assert self.call.inputs is not None, "it was captured"
        device = self.device.torch_device
        memory = memory_for(self.today.data.regions, device, input_memory(self.call.inputs(), device))
        shared = shared_memory(self.saved.data, self.today.data, memory, device)
        each = {SAVED: (self.saved, shared), TODAY: (self.today, memory)}
        with ExitStack() as built:
            replayed = {
                name: built.enter_context(replaying(call.data, modules, at, self.cuda, self.device))
                for name, (call, at) in ((name, each[name]) for name in order)
                for modules in [built.enter_context(self.cuda.loaded(call.data, call.images))]
            }
            saved = replayed[SAVED]
            wrong = differing(self._outputs(replayed[TODAY]), self._outputs(saved), lambda: self._outputs(saved))
            what = f"{self.call.label} does not compute what the saved call does"
            notes = (f"{what}: {wrong[0].line}",) if wrong else ()
            calls = {name: launching(self.call, name, replayed[name].launch) for name in (SAVED, TODAY)}
            replay, outcome = time_in_turn(calls, tolerance, settings, plan, self.device, say)
            self.call.prepare()
        yield replace(replay, notes=notes), outcome

    def _outputs(self, replayed: Replayed) -> Outputs:
        self.call.prepare()
        replayed.launch()
        return {name: tensor.clone() for name, tensor in replayed.outputs()}


def launching(call: Call, label: str, launch: Callable[[], object]) -> Call:
    """Return the call of a graph's launch, on inputs that are prepared as those of another call."""

    def prepare() -> Prepared:
        prepared = call.prepare()
        return Prepared(launch, on_device=prepared.on_device)

    return Call(label, prepare, call.function, call.prepares_on_device)


def time_in_turn(
    calls: Mapping[str, Call],
    tolerance: RegressionTolerance,
    settings: Settings,
    plan: Plan,
    device: Device,
    say: Say,
) -> tuple[Replay, Outcome]:
    """Time both in quads until the tolerance is decided, or the time is spent."""
    judge = SpeedupJudgement(TODAY, {TODAY: least_speedup(tolerance)}, settings.alpha, settings.precision)

    def look(taken: Interleaved, looks: tuple[int, ...]) -> bool:
        return judge.look(taken.quads(SAVED, TODAY), looks, taken.tick_us)

    match = Match(calls, SAVED, settings.seed or 0, looks=LOOKS)
    timer = make_timer(settings.timer, device, settings.cache)
    _, timings = measure_in_turn(match, timer, device, plan, look, say)
    times_us = timings[SAVED].median_us, timings[TODAY].median_us
    return Replay(judge.latest, *times_us), judge.outcome


def least_speedup(tolerance: RegressionTolerance) -> float:
    """Return the least that the saved call's time over today's may be."""
    assert tolerance.margin is not None, "it is a share"
    return 1 / (1 + tolerance.margin)


def is_same(saved: CapturedCall, today: CapturedCall) -> bool:
    """Tell whether two calls launch the same code with the same parameters, wherever its lines were in a file.

    Raises NotReplayable where the saved call cannot be given what today's is given.
    """
    refuse_other_inputs(saved.data, today.data)
    return what_runs(saved) == what_runs(today)


def what_runs(call: CapturedCall) -> bytes:
    """Return the graph and the regions of a call, with the code of each image in place of its name."""
    found = msgspec.msgpack.encode((call.data.graph, call.data.regions))
    for name, image in call.images.items():
        found = found.replace(name.encode(), code_of(image).encode())
    return found


def refuse_other_inputs(saved: CallData, today: CallData) -> None:
    """Raise NotReplayable where the saved call cannot be given what today's is given."""
    refuse_other_capability(saved, today.capability)
    if saved.numbers != today.numbers:
        was, now = (
            ", ".join(sorted({*one} - {*other})) for one, other in permutations((saved.numbers, today.numbers), 2)
        )
        raise NotReplayable(f"it was given {was or 'no such number'}, and is given {now or 'none'} now")
    now_given = {each.name: (each.dtype, each.shape, each.strides) for each in today.inputs}
    for each in saved.inputs:
        if now_given.get(each.name, ()) != (each.dtype, each.shape, each.strides):
            raise NotReplayable(f"{each.name} was a tensor of {each.dtype} {list(each.shape)}, and is another one now")
    regions = {each.names: (each.bytes, each.misalignment) for each in today.regions if each.kind == "input"}
    for region in saved.regions:
        if region.kind == "input" and regions.get(region.names) != (region.bytes, region.misalignment):
            raise NotReplayable(f"{', '.join(region.names)} lay in memory of another size or alignment")


def refuse_other_capability(saved: CallData, capability: tuple[int, int]) -> None:
    """Raise NotReplayable where the saved call was compiled for another compute capability."""
    if saved.capability != capability:
        was, now = (".".join(map(str, each)) for each in (saved.capability, capability))
        raise NotReplayable(f"it was compiled for compute capability {was}, and this GPU has {now}")


def shared_memory(data: CallData, other: CallData, memory: Memory, device: torch.device) -> Memory:
    """Return memory for a call that is, region by region, another call's wherever that has one of the same size."""

    def wanted(region: Region) -> object:
        return region.names or (region.kind, region.bytes, region.misalignment)

    free = [(wanted(region), each) for region, each in zip(other.regions, memory, strict=True)]
    found = []
    for region in data.regions:
        fits = next((each for each in free if each[0] == wanted(region)), None)
        if fits is not None:
            free.remove(fits)
        found.append(new_memory(region, device) if fits is None else fits[1])
    return found
