"""The candidate as the referee uses it: write inputs to memory shared with its process, call it, read its output.

A *released* call is timed by the referee's clock: its inputs are written when the call before it has ended and its
output has been copied away, and they replace those of that call. So no two calls can overlap or be one, and none can
begin early; what ends late is wrong. Its output is fetched when its time is taken: a copy takes as long as strides say.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.gpu.device import Device, new_event
from pytest_gpubench.judge.channel import Leaf
from pytest_gpubench.judge.judgement import Ended
from pytest_gpubench.judge.layout import (
    Node,
    as_it_lay,
    copy_elements,
    describe,
    distinct_elements,
    dtype_of,
    layout_of,
    leaf_of,
    rebuild,
    set_bytes,
    span_of,
    spans_like,
    unfilled,
)
from pytest_gpubench.judge.memory import At, GpuMemory, case_blocks, case_views, make_file, map_file
from pytest_gpubench.judge.process import STOP_S, Process
from pytest_gpubench.judge.runner import cache_of
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.peaks import copy_bandwidth

if TYPE_CHECKING:
    import torch

POLL_S = 2e-4
MOST_QUEUED = 512
"""The launches and waits that a process may queue before the first is released: there is room for about a thousand."""
KEPT_SHARE = 8
"""Inputs and outputs that are kept take at most one part in so many of the candidate's memory."""


class Released(NamedTuple):
    """A released call by the referee's clock."""

    call_us: float
    """From its release until it is done, in microseconds, with all that this costs."""
    own_us: float
    """The time that the referee took before it, to write inputs and to flush the cache."""
    output: Any


class Candidate:
    """A candidate in its process, given a case's inputs."""

    def __init__(self, process: Process, device: Device) -> None:
        self.process = process
        self.device = device
        self.gpu = GpuMemory(device.torch_device) if device.type == "cuda" else None
        self.flush = make_flush(device, cache_of(device.type))
        self.bandwidth = None if self.gpu is None else copy_bandwidth(device)
        """Bytes that the GPU's memory moves in a microsecond; None if unknown, and on the CPU."""
        self.alone: Callable[[], AbstractContextManager[object]] = nullcontext
        """Stops what else uses the GPU while calls are timed."""
        self.meanwhile: Callable[[Callable[[], None]], object] = lambda look: None
        """Is called while the candidate is loaded, and in its first call, in which it may compile."""
        self._counted = 0
        """The calls released so far."""
        self._reported: tuple[Node, list[Leaf]] | None = None
        self._allocated: list[list[torch.Tensor]] = []
        """The blocks of each case."""

    def practise(self) -> None:
        """Share memory with a function of ours, before the candidate is loaded; raise where that fails."""
        import torch

        given = torch.arange(2.0**12, device=self.device.torch_device)
        self.begin_case((given,), 1, [leaf_of(given)])
        self.first()
        found = [self.output()]
        if self.gpu is not None:
            found += [each.output for each in self.release([(given + 1,), (given + 2,)])]
        if not all(torch.equal(output, 2 * (given + number)) for number, output in enumerate(found)):
            raise MeasurementError("the referee cannot read what a new candidate's process computes")

    def load(self, entry: bytes, path: Path) -> None:
        """Load its file."""
        entry_path = self.process.box / "entry"
        entry_path.write_bytes(entry)
        self.process.ask("load", meanwhile=self.meanwhile, entry=str(entry_path), path=str(path))

    # inputs

    def begin_case(self, example: Sequence[object], sets: int, outputs: Sequence[Leaf], blank: bool = False) -> None:
        """Give it memory for so many sets of inputs like these, and for outputs like the reference's.

        blank: call a function of ours that takes no time; only before the candidate is loaded.
        """
        import torch

        node, tensors = describe(tuple(example), "the inputs")
        self._example = example
        dense = [torch.empty(each.shape, dtype=dtype_of(each.dtype), device="meta") for each in outputs]
        self.layout, self.output_layout = layout_of(tensors, sets), layout_of(dense)
        self._like = outputs
        sizes, files, handles = case_blocks(self.layout, self.output_layout), list[int](), list[str]()
        with ExitStack() as held:
            if self.gpu is None:
                files = [make_file(sum(sizes))]
                held.callback(os.close, files[0])
                blocks = map_file(files[0], sizes)
            else:
                self._allocated.append(blocks := [])
                for size in sizes:
                    block, handle = self.gpu.allocate(size)
                    blocks.append(block)
                    handles.append(handle)
                self._counted = 0
            found, (self._outputs,), counters = case_views(blocks, self.layout, self.output_layout)
            self._counters = counters.zero_().view(torch.int32)
            self._spans = [[*map(span_of, tensors)] for tensors in found]
            for index in range(sets):
                self.fill(example, index)
            layouts = {"structure": node, "layout": self.layout, "outputs": self.output_layout}
            self.process.ask("case", files, **layouts, handles=handles, blank=blank)
        self._free(kept=1)

    def fill(self, values: Sequence[object], index: int = 0) -> None:
        """Write a set of inputs; on a GPU its copy engine does, and no kernel of this process."""
        for target, source in zip(self._spans[index], spans_like(self._example, values), strict=True):
            target.copy_(source)
        self.device.synchronize()

    # calls

    def first(self, meanwhile: Callable[[Callable[[], None]], object] = lambda look: None) -> None:
        """Call it once."""
        self._reported = self.process.ask("first", meanwhile=meanwhile).output

    def approach(self, index: int) -> None:
        """Call once before a rep on this set, before its inputs are written."""
        self.process.ask("approach", index=index)

    def visit(self) -> None:
        """Let its process use the GPU without a call: one could leave it hot, slow or full for what comes next."""
        self.process.ask("visit")

    def take(self, index: int, idle_s: float) -> None:
        """Take a rep on a set of inputs, after this much idle time."""
        self._reported = self.process.ask("take", index=index, idle_s=idle_s).output

    @property
    def most_together(self) -> int:
        """The number of calls whose inputs and outputs may be kept, or that may be queued, at a time."""
        size = set_bytes(self.output_layout) + set_bytes(self.layout)
        queued = 5 + len(self.output_layout.leaves)
        return max(1, min(MOST_QUEUED // queued, self.process.memory_bytes // (KEPT_SHARE * size)))

    def release(self, values: Sequence[Sequence[object]]) -> list[Released]:
        """Call on each of these inputs, one after the other, after a first call.

        Its process, which has to be the referee's, queues all of them, and a counter in the GPU's memory releases each.
        """
        assert self.gpu is not None, "calls are replayed on a GPU"
        spans = [spans_like(self._example, each) for each in values]
        kept = [unfilled(self.output_layout, self.device.torch_device) for _ in values]
        clock, copied, at = [[new_event() for _ in range(3)] for _ in values], new_event(), self._counters.data_ptr()
        first = self._counted + 1
        self.process.ask("queue", calls=len(values), first=first)
        self._counted += len(values)
        with self.process.running(), self._ended_by_errors():
            for number, (inputs, outputs, (free, begin, end)) in enumerate(zip(spans, kept, clock, strict=True), first):
                free.record()
                copy_elements(self._spans[0], inputs)
                self.flush()
                begin.record()
                self.gpu.write(at + At.RELEASED, number)
                self.gpu.wait_for(at + At.DONE, number)
                end.record()
                self.gpu.write(at + At.FETCHED, number)
                self.gpu.wait_for(at + At.COPIED, number)
                copy_elements(outputs, self._outputs)
            copied.record()
            if not _happens(copied, self.process.left_s):
                raise Ended("timeout", f"its calls did not end within {self.process.allowed_s:g} s")
        return [
            Released(1e3 * begin.elapsed_time(end), 1e3 * free.elapsed_time(begin), self._rebuilt(outputs))
            for (free, begin, end), outputs in zip(clock, kept, strict=True)
        ]

    @contextmanager
    def _ended_by_errors(self) -> Iterator[None]:
        """Kill its processes where an error or an interrupt ends a block, and let what was queued in it end.

        Else freeing memory would wait for counters that nobody counts. While its processes live, they can count back.
        """
        import torch

        try:
            yield
        except BaseException:
            last = new_event()
            last.record()
            self.process.kill()
            stream = torch.cuda.Stream(self.device.torch_device)  # type: ignore[no-untyped-call]
            with torch.cuda.stream(stream):
                self._counters.fill_(self._counted)
            if not _happens(last, STOP_S):
                raise MeasurementError(
                    "the GPU still waits for a candidate that was killed: end this process"
                ) from None
            raise

    # outputs

    def output(self) -> Any:
        """Return a copy of the last output, which its process cannot change; raise Ended where it is no valid one."""
        kept = unfilled(self.output_layout, self.device.torch_device)
        copy_elements(kept, self._outputs)
        return self._rebuilt(kept)

    def _rebuilt(self, tensors: "list[torch.Tensor]") -> Any:
        """Return tensors in the structure of the last output; raise Ended where they are not like the reference's."""
        if self._reported is None:
            raise Ended("invalid", "the candidate does not say what it returns")
        node, leaves = self._reported
        if len(leaves) != len(self._like):
            raise Ended("wrong", f"it returns {len(leaves)} tensors, and the reference {len(self._like)}")
        try:
            for index, (leaf, like) in enumerate(zip(leaves, self._like, strict=True)):
                _require_like(index, leaf, like)
            return rebuild(node, [*map(as_it_lay, tensors, leaves)])
        except Ended:
            raise
        except Exception as error:  # of whatever kind: a structure is the candidate's word
            raise Ended("invalid", f"the candidate's outputs cannot be read: {error}") from None

    def end(self) -> None:
        """Kill its process, and give its memory back."""
        self.process.close()
        self._free(kept=0)

    def _free(self, kept: int) -> None:
        """Free memory of the GPU that no process uses any more: of all cases but the latest, or of all."""
        while len(self._allocated) > kept:
            assert self.gpu is not None, "memory files are freed by themselves"
            for each in self._allocated.pop(0):
                self.gpu.free(each)


def _happens(event: Any, within_s: float) -> bool:
    """Wait until an event of CUDA has happened; return False where it has not within this time."""
    until_s = time.monotonic() + within_s
    while not event.query():
        if time.monotonic() > until_s:
            return False
        time.sleep(POLL_S)
    return True


def _require_like(index: int, leaf: Leaf, like: Leaf) -> None:
    """Raise Ended where an output has another shape or dtype than the reference's, or shares memory as that does not.

    Its elements with one another, or with an input.
    """
    if (leaf.dtype, leaf.shape) != (like.dtype, like.shape):
        found, wanted = (f"{each.dtype} {list(each.shape)}" for each in (leaf, like))
        raise Ended("wrong", f"output {index} is {found}, and the reference's {wanted}")
    if leaf.is_input and not like.is_input:
        raise Ended("wrong", f"output {index} is memory of an input, and the reference's is its own: return a copy")
    if distinct_elements(leaf) < distinct_elements(like):
        raise Ended("wrong", f"output {index} is expanded, and the reference's is not: write each of its elements")
