"""The calls of one arm: the candidate's process and the referee's run the same code."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from statistics import median
from typing import Any

from pytest_gpubench.correctness import flatten
from pytest_gpubench.errors import KernelsDiffer
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.persisting import set_aside_as_before
from pytest_gpubench.settings.cache import CacheName
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call, Rep, Session, call_of
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.rounds import Instrument
from pytest_gpubench.timing.warmup import warm_up
from pytest_gpubench.timing.windows import kernel_list

Tax = tuple[Mapping[str, int], float, float]
"""The kernels of a call and how often it launches each, its traced time in microseconds, and its tracing tax."""


class Runner:
    """A function and the sets of inputs that it is called with; their owner refills them.

    set_aside_bytes: how much of the L2 cache is set aside before any foreign code runs; None for what is at a session's
    begin.
    """

    def __init__(
        self,
        function: Callable[..., object],
        sets: Sequence[Sequence[Any]],
        device: Device,
        set_aside_bytes: int | None = None,
    ) -> None:
        self.function = function
        self.sets = sets
        self.device = device
        self.set_aside_bytes = set_aside_bytes
        self.timer = make_timer("profiler", device, cache_of(device.type))
        self.call = replace(call_of("candidate", self._call_once), prepares_on_device=True)  # as inputs are written
        self.output: object = None
        """The output of the last call or rep."""
        self._held = ExitStack()
        self._session: Session
        self.taxes: Sequence[Tax] = ()
        """The tracing tax of its call, once it is warm."""
        self.idle_s = 0.0
        """The idle time before a rep that keeps its calls from the power cap, once it is warm."""
        self._index = 0

    def first(self) -> None:
        """Call once, on the first set."""
        self._index = 0
        self._call_once()
        self.device.synchronize()

    def first_call(self) -> Call:
        """Return the call on the first set, with the memory that it is given."""
        self._index = 0
        return replace(self.call, inputs=lambda: flatten(self.sets[0]))

    def approach(self, index: int) -> None:
        """Call once before a rep on this set, on another one: the first call after another process's is slower.

        By 1 to 2 us. The inputs of the rep are written after it, so that none of its work can be done here.
        """
        self.function(*self.sets[index - 1])
        self.device.synchronize()

    def visit(self) -> None:
        """Launch a kernel of ours."""
        if isinstance(self.timer, ProfilerTimer):
            self.timer.sentinels.noop()
        self.device.synchronize()

    def _call_once(self) -> object:
        self.output = self.function(*self.sets[self._index])
        return self.output

    @property
    def last_inputs(self) -> Sequence[Any]:
        """The inputs of the last call or rep."""
        return self.sets[self._index]

    def warm(self, known: Sequence[Tax] = ()) -> None:
        """Call on each set, until compilation is over and time has come to rest.

        known: taxes that another process has measured: a call like that one pays the same, without their noise.
        """
        if isinstance(self.timer, ProfilerTimer):
            self.timer.taxes.known[:] = [(Counter(kernels), traced_us, tax) for kernels, traced_us, tax in known]
        self.call_on_each()
        instrument = Instrument.on(self.device, self.timer)
        with self._cold():
            reps = warm_up(instrument, self.device, {"": self.call}, None)[""].last
        self.idle_s = instrument.pacing.idle_s(reps)
        if isinstance(self.timer, ProfilerTimer):
            tax = self.timer.taxes.of(self.call)
            self.taxes = [(kernel_list(reps[0].records), (1 + tax) * median(rep.elapsed_us for rep in reps), tax)]

    def call_on_each(self) -> None:
        """Call on each set: the first call on one may be slower, or launch more."""
        for args in self.sets:
            self.function(*args)

    def begin(self) -> None:
        """Begin a session of reps: no call sets cache aside."""
        with ExitStack() as held:
            held.enter_context(self._cold())
            self._session = held.enter_context(self.timer.session())
            self._held = held.pop_all()

    def _cold(self) -> AbstractContextManager[object]:
        if self.device.type != "cuda":
            return nullcontext()
        return set_aside_as_before(self.device.cache_bytes, before_bytes=self.set_aside_bytes)

    def take(self, index: int, idle_s: float) -> None:
        """Take a rep on this set of inputs, after this much idle time."""
        self._index = index
        self._session.take(self.call, idle_s)

    def end(self) -> Sequence[Rep]:
        """End the session and return its reps; raise KernelsDiffer where some launched nothing.

        A rep is taken that does not count: the copy of an output has to lie before another one.
        """
        self.take(0, 0.0)
        self._held.close()
        *reps, _ = self._session.reps()
        if self.timer.sees_kernels and not all(rep.records for rep in reps):
            raise KernelsDiffer("it launches nothing on the GPU in some calls")
        return reps

    def stop(self) -> None:
        """End a session that an error left open."""
        self._held.__exit__(RuntimeError, RuntimeError("left"), None)


def cache_of(kind: str) -> CacheName:
    """Return the state of the cache before a rep on a kind of device: on the CPU hot, as inputs were just written."""
    return "cold" if kind == "cuda" else "hot"
