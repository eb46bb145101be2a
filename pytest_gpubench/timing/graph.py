"""Time the replay of a CUDA graph, captured once: what a call would cost without the launching of its kernels.

It is timed between events around the replay, not by the profiler's records: tracing the kernels of a graph one by one
adds to the gaps between them, and those gaps are what a graph is asked about.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch

from pytest_gpubench.errors import BadRequest, MeasurementError, NothingRecorded, causes_of, first_line
from pytest_gpubench.gpu.device import Device, end_allocating
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Call, Prepared, collection_off
from pytest_gpubench.timing.events import EventsTimer, key_of
from pytest_gpubench.timing.tampering import is_library_file

SIDE_CALLS = 3
"""Calls on the side stream before the capture: torch's documentation asks for a few, torch.compile needs three."""


BARRED = (
    "it waits for the GPU or copies to or from the host's memory (.item(), .cpu(), a tensor made of numbers, "
    "synchronize()), has a shape that depends on the data (a boolean mask, nonzero()), or takes or gives back memory "
    "past torch's allocator (cudaMalloc, empty_cache()): keep values on the GPU and shapes fixed, and allocate before "
    "the call"
)
RANDOM = (
    "it draws random numbers from a generator that the graph does not know: use the default generator of the device, "
    "or make the numbers before the call"
)
STREAM = (
    "it mixes in the default stream, or another that it does not wait for at its end: launch on the current stream, "
    "and let it wait for every other one"
)
REPLAYS = "it replays a CUDA graph, which cannot be captured in another: call what that graph was captured from"
MEMORY = "there is not room for it twice: a graph keeps memory of its own; free some first, or make the call smaller"

MESSAGES = (
    (r"generator|offset increment|increase offset|set_current_seed|philox", RANDOM),
    (r"out of memory", MEMORY),
    (r"prepare for replay", REPLAYS),
    (r"unjoined|uncaptured work|legacy stream|capturestreamimplicit|last recorded in a capturing stream", STREAM),
)
"""Errors of the driver and of torch that can have one cause only, each with its remedy."""

_unfinished: list[object] = []
"""The graphs whose capture failed: torch's allocators may go on asking them, so they must not be freed."""


class NotCaptured(Exception):
    """Raised with the reason, and the remedy as far as it is known, when a failed capture has been mended."""


@dataclass(frozen=True)
class Captured:
    """A call as a graph, with all that it reads and writes kept alive."""

    graph: torch.cuda.CUDAGraph
    prepared: Prepared
    inputs: Sequence[object]
    """The identity of each argument, by which it is recognised when it comes again."""
    output: object


class GraphTimer(EventsTimer):
    """Capture a call as a CUDA graph, and read the time between two CUDA events around each replay.

    The part of a rep that is prepared, untimed, may change the values of the tensors that the call was captured with; a
    call that is given other tensors, or other numbers, is refused with BadRequest.
    """

    name = "graph"

    def __init__(self, device: Device, cache: Cache, ahead: bool = True) -> None:
        super().__init__(device, cache, ahead)
        self.captured: dict[tuple[str, int], Captured] = {}

    def ready(self, call: Call) -> Callable[[], object]:
        """Prepare the call, and return the replay of its graph; capture it first, where that was not done before."""
        key = key_of(call)
        if key not in self.captured:
            self.captured[key] = capture(call, self.device)
        captured, prepared = self.captured[key], call.prepare()
        if captured.inputs != identities_of(prepared):
            raise BadRequest(
                f"a graph replays on the memory and the numbers it was captured with, but {call.label!r} is given "
                "others in each rep (setup= makes them, or each forward run of backward='backward'): let setup= write "
                "into the same tensors and return None, or use timer='profiler'"
            )
        if prepared.keep is not None:
            prepared.keep(captured.output)
        return captured.graph.replay


def identities_of(prepared: Prepared) -> list[object]:
    """Return the identity of each argument: a tensor's memory, a number's or text's value, the type of others."""
    from torch.utils._pytree import tree_leaves

    def identity_of(leaf: object) -> object:
        if isinstance(leaf, torch.Tensor):
            with suppress(RuntimeError):  # not all subclasses have memory of their own
                return leaf.data_ptr(), tuple(leaf.shape), leaf.stride(), leaf.dtype
        return repr(leaf) if isinstance(leaf, (bool, int, float, complex, str, type(None))) else type(leaf)

    return [identity_of(leaf) for leaf in tree_leaves((prepared.args, prepared.kwargs, prepared.made))]


def capture(call: Call, device: Device) -> Captured:
    """Return a call as a graph, after a few calls on the stream it is captured on.

    Raises MeasurementError with a sentence where it cannot be captured, NothingRecorded where it launches nothing;
    whatever else the call raises goes through. The process can go on in every case.
    """
    stream = torch.cuda.Stream(device.torch_device)  # type: ignore[no-untyped-call]
    call_on(stream, call, SIDE_CALLS)
    try:
        return capture_on(stream, call, device)
    except NotCaptured as failed:
        raise MeasurementError(
            f"{call.label!r} cannot be captured as a CUDA graph: {failed}; or use timer='profiler' or 'events'"
        ) from failed.__cause__


def call_on(stream: torch.cuda.Stream, call: Call, calls: int) -> None:
    """Call so many times on a stream that waits for the current one, and is waited for by it."""
    current = torch.cuda.current_stream(stream.device)
    for _ in range(calls):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            call.prepare()()
        current.wait_stream(stream)


def capture_on(stream: torch.cuda.Stream, call: Call, device: Device) -> Captured:
    """Return a call as a graph, captured on a stream that it was called on before.

    It is prepared there too: a backward run follows its forward run. Raises NotCaptured, and the rest as `capture`.
    """
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        timed = call.prepare()
    device.synchronize()
    torch.cuda.empty_cache()  # a graph cannot use what the allocator has cached
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            output = captured_output(graph, pool, stream, timed)
    except BaseException as error:
        mend(graph, pool, stream, device)
        if not isinstance(error, RuntimeError):
            raise
        raise NotCaptured(explain(error)) from error
    if any("graph is empty" in str(each.message).lower() for each in told):
        raise NothingRecorded(
            f"{call.label!r} launched nothing on the GPU when it was captured: "
            "are its tensors on the GPU, and does it compute when it is called?"
        )
    for each in told:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return Captured(graph, timed, identities_of(timed), output)


def captured_output(
    graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream, timed: Callable[[], object]
) -> object:
    """Capture what is timed on a stream; return its output, which every replay writes.

    Other threads may use the GPU meanwhile, such as the one that starts the profiler.
    """
    with collection_off(), torch.cuda.stream(stream):
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            output = timed()
        except BaseException:
            with suppress(RuntimeError):  # it says no more than that the capture was broken
                end_capture(graph, stream)
            raise
        end_capture(graph, stream)
    return output


def end_capture(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> None:
    """End a capture on its stream: torch ends it on none but the current one, and the call may leave another."""
    with torch.cuda.stream(stream):
        graph.capture_end()


def mend(graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream, device: Device) -> None:
    """Clean up after a failed capture, as torch does not.

    The allocator is told that the capture is over, and frees its memory, where torch has not told it. The generator
    stays in a capture until one succeeds: a small one.
    """
    _unfinished.append(graph)
    with suppress(RuntimeError):  # raised where torch has closed the pool: the graph then frees the memory
        end_allocating(device.torch_device, pool)
    with suppress(RuntimeError):
        graph.reset()
    with suppress(RuntimeError):
        device.synchronize()
    with suppress(RuntimeError):
        ones = torch.ones(1, device=device.torch_device)
        device.synchronize()
        captured_output(torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), stream, lambda: ones.add_(0))
    with suppress(RuntimeError):
        device.synchronize()


def explain(error: BaseException) -> str:
    """Return the reason why a capture failed, and the remedy, as far as they are known."""
    message = " ".join(str(each) for each in causes_of(error)).lower()
    for pattern, sentence in MESSAGES:
        if re.search(pattern, message):
            return sentence
    if "captur" not in message:
        return f"{type(error).__name__}: {first_line(error)}"
    frames = [each for each in extract_tb(error.__traceback__) if not is_library_file(each.filename)]
    return f"{BARRED} (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else BARRED
