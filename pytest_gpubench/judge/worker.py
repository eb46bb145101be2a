"""The candidate's process: warmed before the candidate is loaded, it answers the referee's messages.

It is trusted until `load`; after that the candidate may have changed anything in it.
"""

import gc
import os
import pickle
import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pytest_gpubench.correctness import flatten
from pytest_gpubench.errors import BadRequest, is_ours
from pytest_gpubench.gpu.device import Device, cpu_device, cuda_device
from pytest_gpubench.gpu.persisting import driver_library, persisting_bytes
from pytest_gpubench.judge.channel import (
    LONGEST_KERNEL,
    LONGEST_TEXT,
    MOST_KERNELS,
    Broken,
    Channel,
    Closed,
    Layout,
    Reply,
)
from pytest_gpubench.judge.isolation import limit_all
from pytest_gpubench.judge.layout import copy_elements, describe, leaf_of, rebuild, unfilled
from pytest_gpubench.judge.memory import At, GpuMemory, case_blocks, case_views, map_file
from pytest_gpubench.judge.replayed import ReplayedCall, saved_call
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.results.kernels import distinct_names
from pytest_gpubench.timing.profiler import ProfilerTimer, take_reps_of_noop
from pytest_gpubench.timing.windows import kernel_list


def main(descriptor: int, settings: Mapping[str, Any], landlock: str) -> None:
    """Answer the referee's messages until it closes the channel; landlock: what that limits."""
    channel = Channel(socket.socket(fileno=descriptor))
    worker = Worker(channel, settings["device"], settings["memory_bytes"], settings["threads"])
    limits = limit_all(settings["memory_bytes"] if settings["device"] == "cpu" else None)
    gc.collect()
    gc.freeze()  # no collection walks over what is imported
    channel.send(Reply(kind="ready", isolation={"landlock": landlock, **limits}))
    while True:
        try:
            message, files = channel.receive(files=2)
        except Closed:
            os._exit(0)
        worker.answer(msgspec.json.decode(message), files)


class Worker:
    """The state of the process, and an answer to each message."""

    runner: Runner

    def __init__(self, channel: Channel, device: str, memory_bytes: int, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.channel = channel
        self.opened: list[torch.Tensor] = []
        """The blocks of memory of the last case."""
        self.device = cpu_device() if device == "cpu" else cuda_device(int(device))
        self.function: Callable[..., Any] = _doubling()
        """A function of ours, until a candidate is loaded or a saved call is taken."""
        flatten(0)  # imports torch's pytree
        self.gpu = None if self.device.type == "cpu" else _warm_gpu(self.device, memory_bytes)
        self.set_aside_bytes = persisting_bytes(driver_library())
        """The L2 cache set aside before foreign code runs: 3/16 of it are CUDA's default."""
        if self.gpu is None:
            torch.matmul(torch.ones(64, 64), torch.ones(64, 64)).sum().item()  # loads the libraries of first calls

    def answer(self, message: dict[str, Any], files: list[int]) -> None:
        """Act on a message, by a method of the runner's where there is none here, and reply."""
        stage = message.pop("do")
        try:
            act = getattr(self, f"do_{stage}", None) or getattr(self.runner, stage)
            reply = act(*files, **message) or Reply(kind="done")
        except BaseException as error:
            reply = _failed(stage, error)
        try:
            self.channel.send(reply)
        except Broken as error:
            refused = BadRequest(f"the output cannot be sent: {error}: return fewer values, or plain texts")
            self.channel.send(_failed(stage, refused))

    def do_load(self, entry: str, path: str) -> None:
        """Load the candidate's file."""
        self.function = pickle.loads(Path(entry).read_bytes()).load(Path(path))

    def do_replay(self, path: str) -> None:
        """Take a call that another process has saved."""
        if isinstance(self.function, ReplayedCall):
            self.function.close()
        self.function = ReplayedCall(Path(path).read_bytes(), self.device)

    def do_case(
        self, *files: int, structure: Any, layout: Any, outputs: Any, handles: Sequence[str], blank: bool
    ) -> None:
        """Map the memory of a case; blank: take a function of ours, before the candidate is loaded."""
        given, like = msgspec.convert(layout, Layout), msgspec.convert(outputs, Layout)
        sizes = case_blocks(given, like)
        if self.gpu is None:
            self.opened = map_file(files[0], sizes)
        else:
            self.device.synchronize()
            while self.opened:
                self.gpu.close(self.opened.pop())
            self.opened += map(self.gpu.open, handles, sizes)
        found, (self.outputs,), counters = case_views(self.opened, given, like)
        self.counters = counters.data_ptr()
        sets = [rebuild(structure, each) for each in found]
        function = _blank(like, self.device) if blank else self.function
        self.runner = Runner(function, sets, self.device, self.set_aside_bytes)
        for each in files:
            os.close(each)
        gc.collect()  # the runner of the case before refers to itself, and has its memory

    def do_first(self) -> Reply:
        """Call once."""
        self.runner.first()
        return self._deliver()

    def do_save(self, path: str) -> Reply | None:
        """Save a call as data; reply with the reason where it cannot be replayed."""
        saved = saved_call(self.runner, self.device)
        if isinstance(saved, str):
            return Reply(kind="done", text=saved[:LONGEST_TEXT])
        Path(path).write_bytes(saved)
        return None

    def do_begin(self) -> None:
        """Begin a session."""
        gc.collect()
        gc.disable()
        self.runner.begin()

    def do_take(self, index: int, idle_s: float) -> Reply:
        """Take a rep on a set of inputs, after this much idle time."""
        self.runner.take(index, idle_s)
        return self._deliver()

    def do_end(self) -> Reply:
        """End the session and claim its times."""
        reps = self.runner.end()
        gc.enable()
        found = kernel_list(reps[0].records) if reps else {}
        names = [*distinct_names(found).items()][:MOST_KERNELS]
        kernels = [(text[:LONGEST_KERNEL], found[name]) for name, text in names]
        return Reply(kind="done", samples_us=[rep.elapsed_us for rep in reps], kernels=kernels)

    def do_queue(self, calls: int, first: int) -> None:
        """Queue so many calls, each to begin when the referee has counted up to it, and to be counted when it ends.

        Its output is copied when the referee asks for that: what a copy takes depends on the candidate.
        """
        assert self.gpu is not None, "calls are queued on a GPU"
        function = self.runner.function
        launch = partial(function, whole=True) if isinstance(function, ReplayedCall) else function
        for number in range(first, first + calls):
            self.gpu.wait_for(self.counters + At.RELEASED, number)
            _, tensors = describe(launch(*self.runner.sets[0]), "the output")
            self.gpu.write(self.counters + At.DONE, number)
            self.gpu.wait_for(self.counters + At.FETCHED, number)
            copy_elements(self.outputs, tensors)
            self.gpu.write(self.counters + At.COPIED, number)

    def _deliver(self) -> Reply:
        """Copy what a call returned to where the referee reads it, and return the reply that says what it is."""
        node, tensors = describe(self.runner.output, "the output")
        if away := [each.device for each in tensors if each.device.type != self.device.type]:
            raise BadRequest(f"the output has a tensor on {away[0]}: return it on {self.device.torch_device}")
        pairs = zip(self.outputs, tensors, strict=False)
        alike = [(to, each) for to, each in pairs if (to.shape, to.dtype) == (each.shape, each.dtype)]
        copy_elements([to for to, _ in alike], [each for _, each in alike])
        self.device.synchronize()
        _, inputs = describe(self.runner.last_inputs, "the inputs")
        return Reply(kind="done", output=(node, [leaf_of(each, inputs) for each in tensors]))


def _blank(like: Layout, device: Device) -> Callable[..., Any]:
    """Return a call that takes no time but that of launching a kernel: it returns memory that lies ready."""
    import torch

    outputs, cell = unfilled(like, device.torch_device), torch.zeros(1, device=device.torch_device)
    return lambda *inputs: (cell.add_(1), outputs)[1]


def _warm_gpu(device: Device, memory_bytes: int) -> "GpuMemory":
    """Start CUDA, Triton and the profiler; save and replay a call."""
    import torch

    torch.cuda.set_device(device.torch_device)
    share = memory_bytes / torch.cuda.get_device_properties(device.torch_device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, share), device.torch_device)
    timer = ProfilerTimer(device, "cold")
    timer.flush()
    take_reps_of_noop(timer, 3)
    given = torch.ones(64, 64, device=device.torch_device)
    torch.matmul(given, given)
    runner = Runner(_doubling(), [(given,)], device)
    runner.first()
    copy_elements([torch.empty_like(given)], [given])
    saved = saved_call(runner, device)
    if isinstance(saved, bytes):
        replayed = ReplayedCall(saved, device)
        replayed(given)
        replayed.close()
    device.synchronize()
    return GpuMemory(device.torch_device)


def _doubling() -> Callable[..., Any]:
    """Return a function that doubles a tensor, always into the same memory, as a replay does."""
    kept: list[Any] = []

    def double(x: Any) -> Any:
        if not kept:
            kept.append(x.clone())
        return kept[0].copy_(x).mul_(2)

    return double


def _failed(stage: str, error: BaseException) -> Reply:
    """Return the reply to a message that raised an error, with the frames from the candidate's first on."""
    text, trace, frames = "", "", error.__traceback__
    while frames and (is_ours(frames.tb_frame) or frames.tb_frame.f_code.co_filename.startswith("<frozen importlib")):
        frames = frames.tb_next
    try:
        text = str(error)[:LONGEST_TEXT]
        trace = "".join(traceback.format_exception(type(error), error, frames))[-LONGEST_TEXT:]
    except Exception:
        text = text or "its text cannot be read"
    text, trace = (each.encode(errors="backslashreplace").decode() for each in (text, trace))  # of lone surrogates
    name = "BadRequest" if isinstance(error, BadRequest) else type(error).__name__[:100]
    return Reply(kind="failed", stage=stage, error=name, text=text, trace=trace)
