"""The candidate as the referee uses it: write inputs to memory shared with its process, call it, read its outputs.

While the referee works, the candidate's process is stopped.
"""

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadRequest, GpuBenchError, MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.channel import Leaf, Reply
from pytest_gpubench.judge.layout import (
    Node,
    bytes_of,
    describe,
    dtype_of,
    place,
    rebuild,
    span_of,
    view,
    views,
)
from pytest_gpubench.judge.memory import GpuMemory, make_file, map_file
from pytest_gpubench.judge.process import Ended, Process
from pytest_gpubench.judge.runner import ROTATED_SETS, cache_of
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.timing.bandwidth import copy_bandwidth
from pytest_gpubench.timing.l2flush import make_flush

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

PROBE_BYTES = 4096
PROBES = 4
"""Samples of outputs in each batch, however many outputs a call has: each takes time that is measured."""
PRACTICE_RUNS, PRACTICE_PAUSE_S = 16, 5e-3
"""The pause before each is about as long as drawing inputs in a trial: without it a batch takes 0.1 ms less."""
PAUSE_S = 1e-3
"""The pause between the process's last reply and its next batch."""


@contextmanager
def _reading() -> Iterator[None]:
    """Raise Ended where the candidate's process describes its outputs wrongly."""
    try:
        yield
    except (ValueError, IndexError, TypeError, AttributeError, RuntimeError, GpuBenchError) as error:
        raise Ended("invalid", f"the candidate's outputs cannot be read: {error}") from None


class Candidate:
    """A candidate in its process, given a case's inputs."""

    def __init__(self, process: Process, device: Device) -> None:
        self.process = process
        self.device = device
        self.gpu = GpuMemory(device.torch_device) if device.type == "cuda" else None
        self.flush = make_flush(device, cache_of(device))
        self.bandwidth = None if self.gpu is None else copy_bandwidth(device)
        """Bytes that the GPU's memory moves in a microsecond; None if unknown, and on the CPU."""
        self.outputs: list[tuple[Node, list[Leaf]]] = []
        self._known: dict[int, list[tuple[Node, list[Leaf]]]] = {}
        self._allocated: list[torch.Tensor] = []
        self.fixed_us = Interval(0.0, 0.0)
        """The times of batches of one call that takes hardly any time: the shortest, and the third quartile."""
        self._samples: list[torch.Tensor] = []
        """The memory of samples of the last batch's outputs on a GPU, and what it held when the clock stopped."""
        self.worked_us = 0.0
        """The CPU time of the process in the last batch."""

    def practise(self) -> None:
        """Do all that a trial does with a function of ours, before the candidate is loaded; raise where it fails."""
        import torch

        given = torch.arange(2.0**12, device=self.device.torch_device)
        self.process.ask("practise")
        self.begin_case((given,), 2)
        self.first()
        self.fill([(given,), (given + 1,)])
        self.process.ask("begin")
        self.take(0, 0.0)
        self._check_practice(0, given)
        self.process.ask("end")
        self.forget()
        self.process.ask("prepare", batches=[1, 2])
        for values in ([(given,)], [(given,), (given + 1,)], [(given,), (given + 1,)]):
            self.run(values)
        self._check_practice(1, given + 1)
        self.fixed_us = self._find_fixed(given)
        self.forget()

    def _find_fixed(self, given: "torch.Tensor") -> Interval:
        times_us = []
        for _ in range(PRACTICE_RUNS):
            time.sleep(PRACTICE_PAUSE_S)
            times_us.append(self.run([(given,)]))
        return Interval(min(times_us), sorted(times_us)[3 * PRACTICE_RUNS // 4])

    def _check_practice(self, number: int, given: "torch.Tensor") -> None:
        if not bool((self.output(number) == 2 * given).all()):
            raise MeasurementError("the referee cannot read what a new candidate's process computes")

    def forget(self) -> None:
        """Close the memory of earlier outputs, which the candidate's process may free."""
        self._known.clear()
        if self.gpu is not None:
            self.gpu.close()

    def load(self, entry: bytes, path: str) -> None:
        """Load its file."""
        self.process.ask("load", entry=entry.hex(), path=path)

    # inputs

    def begin_case(self, example: Sequence[object], sets: int) -> None:
        """Give it memory for so many sets of inputs like these."""
        import torch

        self.forget()
        self.node, tensors = describe(tuple(example), "the inputs")
        self.layout, files, handle = place(tensors, sets), [], ""
        if self.gpu is None:
            files = [make_file(self.layout.size)]
            self.memory = map_file(files[0])
        else:
            self.memory, handle = self.gpu.allocate(self.layout.size)
            self._allocated.append(self.memory)
            self._staged = torch.empty_like(self.memory)
            self._staged_spans = self._spans_in(self._staged)
        self._spans = self._spans_in(self.memory)
        for index in {*range(min(ROTATED_SETS, sets)), sets - 1}:  # those of reps, and of the untimed calls before them
            self.fill([example], index)
        self.process.ask("case", files, structure=self.node, layout=self.layout, handle=handle)
        for each in files:
            os.close(each)
        self._free(kept=1)

    def _spans_in(self, memory: "torch.Tensor") -> "list[torch.Tensor]":
        """Return the memory of each input of each set."""
        return [span_of(each) for tensors in views(memory, self.layout) for each in tensors]

    def fill(self, values: Sequence[Sequence[object]], first: int = 0) -> None:
        """Write sets of inputs, from this one on."""
        self._write(self._spans[first * len(self.layout.leaves) :], self._spans_of(values))

    def _spans_of(self, values: Sequence[Sequence[object]]) -> "list[torch.Tensor]":
        spans: list[torch.Tensor] = []
        for inputs in values:
            node, tensors = describe(tuple(inputs), "the inputs")
            if node != self.node or place(tensors).leaves != self.layout.leaves:
                raise BadRequest("the spec's inputs differ from seed to seed in more than the values of their tensors")
            spans += map(span_of, tensors)
        return spans

    def _write(self, targets: "list[torch.Tensor]", spans: "list[torch.Tensor]") -> None:
        import torch

        if spans:
            torch._foreach_copy_(targets[: len(spans)], spans)
        self.device.synchronize()

    # calls

    def first(self) -> None:
        """Call it once; on the CPU give it memory to copy outputs like these to."""
        self._note(self.process.ask("first"))
        if self.gpu is None:
            self._make_targets()

    def _make_targets(self) -> None:
        import torch

        _, leaves = self.outputs[0]
        if any(leaf.handle for leaf in leaves):
            return
        with _reading():
            tensors = [torch.empty(leaf.shape, dtype=dtype_of(leaf.dtype)) for leaf in leaves]
            self.target_layout = place(tensors, self.layout.sets)
        file = make_file(self.target_layout.size)
        self.targets = map_file(file)
        self.process.ask("targets", [file], layout=self.target_layout)
        os.close(file)

    def call(self) -> None:
        """Call it once more."""
        self.forget()
        self._note(self.process.ask("first"))

    def take(self, index: int, idle_s: float) -> None:
        """Take a rep on a set of inputs, after this much idle time."""
        self.forget()
        self._note(self.process.ask("take", index=index, idle_s=idle_s))

    def run(self, values: Sequence[Sequence[object]]) -> float:
        """Run a batch on these inputs; return the microseconds from revealing them to having its outputs.

        The process replies once before, as it wakes up later after a longer stop.
        """
        run = self._run_on_cpu if self.gpu is None else self._run_on_gpu
        return run(len(values), self._spans_of(values))

    def _run_on_cpu(self, batch: int, spans: "list[torch.Tensor]") -> float:
        """Write inputs while the process is stopped; the clock runs until it is stopped again."""
        process = self.process
        process.ask("wake")
        self._write(self._spans, spans)
        time.sleep(PAUSE_S)
        process.tell("run", batch=batch)
        worked_s, started_s = process.cpu_s, time.perf_counter()
        process.thaw()
        message = process.hear_undecoded()
        process.freeze()  # before the clock stops and the reply is decoded, as its children may work until then
        told_s = time.perf_counter()
        self.worked_us = 1e6 * (process.cpu_s - worked_s)
        self._note(process.read(message), batch)
        return 1e6 * (told_s - started_s)

    def _run_on_gpu(self, batch: int, spans: "list[torch.Tensor]") -> float:
        """Start the clock, write inputs, flush the cache, and run; the time that memory needs for inputs is taken off.

        Inputs are written only then, as kernels that wait for them run even while their process is stopped. Samples of
        the outputs are read before the clock stops: see `check_samples`.
        """
        import torch

        process = self.process
        self._write(self._staged_spans, spans)
        process.tell("wake")
        process.thaw()
        process.hear()
        time.sleep(PAUSE_S)
        started_s, size = time.perf_counter(), batch * self.layout.set_bytes
        self.memory[:size].copy_(self._staged[:size])
        self.flush()
        self.device.synchronize()
        process.tell("run", batch=batch)
        self._note(process.hear(), batch)
        with _reading():
            places = self._places(secrets.randbelow(batch))
            self._samples = [torch.cat(places), *places]
            self.device.synchronize()
        told_s = time.perf_counter()
        process.freeze()
        self._open_outputs()
        self.check_samples()
        writing_us = 2 * size / self.bandwidth if self.bandwidth else 0.0
        return 1e6 * (told_s - started_s) - writing_us

    def check_samples(self) -> None:
        """Raise Ended where samples of the last batch's outputs have changed since the clock stopped.

        Call it again when outputs have been compared: until then, work that was left on the GPU has mostly been done.
        """
        import torch

        if self._samples and not torch.equal(torch.cat(self._samples[1:]), self._samples[0]):
            raise Ended("invalid", "the candidate says that it is done before its outputs are there")

    def _places(self, number: int) -> "list[torch.Tensor]":
        """Return the memory of samples of a call's outputs."""
        found, (_, leaves) = [self.memory[:0]], self.outputs[number]
        placed = [(leaf, memory) for leaf in leaves if (memory := self._memory_of(leaf)) is not None]
        for leaf, memory in (secrets.choice(placed) for _ in range(PROBES if placed else 0)):
            view(memory, leaf)  # refuses what lies outside
            size = bytes_of(leaf)
            start = leaf.offset + secrets.randbelow(max(size - PROBE_BYTES, 0) + 1)
            found.append(memory[start : start + min(PROBE_BYTES, size)])
        return found

    def _open_outputs(self) -> None:
        """Open the memory of all outputs of a batch: 0.4 ms each, which must not count in a later batch."""
        for leaf in (leaf for _, leaves in self.outputs for leaf in leaves):
            self._memory_of(leaf)

    # outputs

    def output(self, number: int) -> Any:
        """Return the output of a call, with tensors in shared memory; raise Ended where it is no valid one."""
        with _reading():
            tensors, (node, leaves) = [], self.outputs[number]
            for index, leaf in enumerate(leaves):
                if leaf.handle == "elsewhere" or (self.gpu is None and leaf.handle):
                    raise Ended("wrong", f"output {index} is not on {self.device.torch_device}")
                if self.gpu is None:
                    tensors.append(self._target(leaf, index, number))
                else:
                    memory = self._memory_of(leaf)
                    tensors.append(view(self.memory[:0] if memory is None else memory, leaf))
            return rebuild(node, tensors)

    @property
    def output_bytes(self) -> int:
        """The size of the outputs of a call; on the CPU copies have no gaps, and are expanded."""
        return self.target_layout.set_bytes if self.gpu is None else sum(map(bytes_of, self.outputs[0][1]))

    def _target(self, leaf: Leaf, index: int, number: int) -> "torch.Tensor":
        known = self.target_layout.leaves
        if index >= len(known) or (known[index].dtype, known[index].shape) != (leaf.dtype, leaf.shape):
            raise Ended("wrong", f"output {index} is new, or has another shape or dtype than in the first call")
        target = known[index]
        return view(self.targets, target, number * self.target_layout.set_bytes)

    def _memory_of(self, leaf: Leaf) -> "torch.Tensor | None":
        """Return the memory of an output; None where it needs none."""
        assert self.gpu is not None, "outputs on the CPU are copied"
        if leaf.handle == "inputs":
            return self.memory
        if not leaf.handle or leaf.handle == "elsewhere":
            return None
        with _reading():
            return self.gpu.open(leaf.handle)

    def _note(self, reply: Reply, batch: int = 1) -> None:
        if reply.outputs is not None:
            self._known[batch] = reply.outputs
        self.outputs = self._known.get(batch, [])
        if len(self.outputs) < batch:
            raise Ended("invalid", "the candidate does not say where its outputs are")

    def end(self) -> None:
        """Kill its process, and give its memory back."""
        if self.gpu is not None:
            with suppress(Ended):
                self.process.freeze()
            self.gpu.close()
        self.process.kill()
        self._free(kept=0)

    def _free(self, kept: int) -> None:
        """Free memory of the GPU that no process uses any more: of all cases but the latest, or of all."""
        while len(self._allocated) > kept:
            assert self.gpu is not None, "memory files are freed by themselves"
            self.gpu.free(self._allocated.pop(0))
