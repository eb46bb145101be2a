"""The calls of one arm: the candidate's process and the referee's run the same code.

Reps are single calls, timed inside the process. Batches are calls on different inputs, one after the other, timed by a
clock outside. On a GPU a batch is captured as one CUDA graph where that can be done: launching then costs little.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_gpubench.correctness.leaves import cloned
from pytest_gpubench.errors import GpuBenchError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.layout import describe
from pytest_gpubench.settings.cache import CacheName
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call, Prepared, Rep, Session, call_of
from pytest_gpubench.timing.graph import capture
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.sampling import Instrument
from pytest_gpubench.timing.warmup import Warmth, warm_up

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

ROTATED_SETS = 8
"""The sets of inputs that reps take in turn: where they lie changed the time of a cross entropy by 0.5 % (sd)."""

Deliver = Callable[[Sequence[object]], object]
"""Is given the outputs of a batch, within its time: on the CPU it copies them to where the referee reads them."""


class Runner:
    """A function and the sets of inputs that it is called with; their owner refills them."""

    def __init__(
        self, function: Callable[..., object], sets: Sequence[tuple[Any, ...]], device: Device, deliver: Deliver
    ) -> None:
        self.function = function
        self.sets = sets
        self.device = device
        self.deliver = deliver
        self.timer = make_timer("profiler", device, cache_of(device))
        self.call = Call("candidate", self._prepare, self._call_once, prepares_on_device=True)
        self.outputs: Sequence[object] = ()
        """The output of each call of the last batch or rep."""
        self._session: Session | None = None
        self.idle_s = 0.0
        """The idle time before a rep that keeps its calls from the power cap, once it is warm."""
        self._index = 0
        self._graphs: dict[int, tuple[Any, Sequence[object]]] = {}
        self.copies = False
        """True if a batch copies its outputs, as calls return the same memory."""

    def first(self) -> None:
        """Call once, on the first set."""
        self._index = 0
        self._call_once()
        self.device.synchronize()

    def _prepare(self) -> Prepared:
        """Call on another set, untimed: after the other process has run the first call is slower, by 1 to 2 us."""
        self.function(*self.sets[self._index - 1])
        return Prepared(self._call_once)

    def _call_once(self) -> object:
        output = self.function(*self.sets[self._index])
        self.outputs = (output,)
        return output

    def warm(self) -> Warmth:
        """Call on each set of reps, until compilation is over and time has come to rest."""
        self.call_on_each()
        instrument = Instrument.on(self.device, self.timer)
        warmth = warm_up(instrument, self.device, {"": self.call}, None)[""]
        self.idle_s = instrument.pacing.idle_s(warmth.sample.reps)
        return warmth

    def call_on_each(self) -> None:
        """Call on each set of reps: the first call on one may be slower, or launch more."""
        for args in self.sets[:ROTATED_SETS]:
            self.function(*args)

    @property
    def tax(self) -> float:
        """The share of its own time that tracing adds to a call, which is taken off its reps."""
        return self.timer.taxes.of(self.call) if isinstance(self.timer, ProfilerTimer) else 0.0

    # reps, timed from inside

    def begin(self) -> None:
        """Begin a session of reps."""
        self._session = self.timer.session()
        self._session.__enter__()

    def take(self, index: int, idle_s: float) -> None:
        """Take a rep on this set of inputs, after this much idle time."""
        assert self._session is not None, "no session has begun"
        self._index = index
        self._session.take(self.call, idle_s)

    def end(self) -> Sequence[Rep]:
        """End the session and return its reps."""
        assert self._session is not None, "no session has begun"
        session, self._session = self._session, None
        session.__exit__(None, None, None)
        return session.reps()

    def stop(self) -> None:
        """End a session that an error left open."""
        if self._session is not None:
            session, self._session = self._session, None
            error = RuntimeError("left")
            session.__exit__(type(error), error, None)

    # batches, timed from outside

    def prepare(self, batches: Sequence[int]) -> bool:
        """Prepare batches of these sizes, as CUDA graphs where that can be done; return whether it can."""
        if set(batches) == set(self._graphs):
            return True
        self.forget()
        self._batch(max(batches))
        self.copies = _share_memory(self.outputs)
        if self.device.type != "cuda":
            return False
        try:
            for batch in sorted(batches, reverse=True):  # the other way round memory is allocated twice
                call = call_of("batch", lambda batch=batch: self._batch(batch))  # type: ignore[misc]
                captured = capture(call, self.device, explained=False)
                self._graphs[batch] = captured, self.outputs
        except (GpuBenchError, RuntimeError):
            self._graphs.clear()
        return bool(self._graphs)

    def forget(self) -> None:
        """Drop the graphs, which read the inputs that were there, and the outputs."""
        self._graphs.clear()
        self.outputs = ()

    def run(self, batch: int) -> None:
        """Run a batch, and wait until it is done."""
        if batch in self._graphs:
            captured, self.outputs = self._graphs[batch]
            captured.graph.replay()
        else:
            self._batch(batch)
        self.deliver(self.outputs)
        self.device.synchronize()

    def is_graph(self, batch: int) -> bool:
        """Tell whether a batch is a CUDA graph, whose outputs always lie in the same place."""
        return batch in self._graphs

    def _batch(self, batch: int) -> None:
        outputs = []
        for args in self.sets[:batch]:
            output = self.function(*args)
            outputs.append(cloned(output) if self.copies else output)
        self.outputs = outputs


def cache_of(device: Device) -> CacheName:
    """Return the state of the cache before a rep: on the CPU hot, as for batches, which follow a copy of inputs."""
    return "cold" if device.type == "cuda" else "hot"


def _share_memory(outputs: Sequence[object]) -> bool:
    """Tell whether two calls returned the same memory, as those of a function that keeps its output."""
    addresses = [each.data_ptr() for output in outputs for each in tensors_of(output) if each.numel()]
    return len(set(addresses)) < len(addresses)


def tensors_of(output: object) -> "list[torch.Tensor]":
    """Return the tensors of an output, in order; raise BadRequest for what cannot be sent."""
    return describe(output, "the output")[1]
