"""Batches of calls of both arms, each on new inputs, by the referee's clock."""

import math
import secrets
import statistics
import time
from itertools import chain

from pytest_gpubench.judge.candidate import PAUSE_S, Candidate
from pytest_gpubench.judge.conclusion import overlap, per_call
from pytest_gpubench.judge.looks import ARMS, Draw, Orders
from pytest_gpubench.judge.reference import Reference

__tracebackhide__ = True

MORE_CALLS, MORE_CALLS_US, MORE_PAUSES_S = 36, 1e6, (0.0, 1.0, 2.0)
"""The further batches of one call, and the time that they may take, after each of these pauses."""
WAKING_SLACK_US = 100.0
"""The time by which a candidate's process may wake up later than it mostly did when it practised: 65 us were seen."""


class Batches:
    """Batches of one call, and of so many calls that the fixed cost of a batch matters little."""

    def __init__(self, candidate: Candidate, reference: Reference, large: int, draw: Draw) -> None:
        self.candidate, self.reference, self.device = candidate, reference, candidate.device
        self.large, self._draw = large, draw
        self.sizes = [1, large]
        self.times_us: dict[str, dict[int, list[float]]] = {arm: {size: [] for size in self.sizes} for arm in ARMS}
        self.worked_us: dict[int, list[float]] = {size: [] for size in self.sizes}
        """On the CPU, how long the candidate's process ran on processors."""
        self.more_us: list[float] = []
        self.graph = self.copies = False

    def prepare(self, reference_us: float) -> None:
        """Make both arms ready: as CUDA graphs, or call by call where an arm cannot be captured.

        The reference is a graph whatever the candidate is. Where it cannot be one, no more than the time of its kernels
        counts, so that its launches are no advantage for the candidate. Its inputs are the same in every batch.
        """
        values = self._draw(self.large)
        self.candidate.fill(values)
        self.reference.fill(values)
        self.candidate.forget()
        is_graph = self.reference.runner.prepare(self.sizes)
        self._most_us = math.inf if is_graph or self.device.type == "cpu" else reference_us
        reply = self.candidate.process.ask("prepare", batches=self.sizes)
        self.graph, self.copies = reply.graph, reply.copies
        for run in (self._run_reference, self._run):  # the first batches take longer
            for size in self.sizes:
                run(size)

    def take(self, orders: Orders) -> None:
        """Time a batch of each size for each arm, in these orders."""
        for arm in chain.from_iterable(orders):
            for size in self.sizes:
                run = self._run_reference if arm == "reference" else self._run
                self.times_us[arm][size].append(run(size))
                if arm == "candidate":
                    self.worked_us[size].append(self.candidate.worked_us)

    def _run(self, size: int) -> float:
        values = self._draw(size)
        elapsed_us = self.candidate.run(values)
        for number in {secrets.randbelow(size), size - 1}:
            self.reference.require(self.candidate.output(number), values[number], "in a batch")
        self.candidate.check_samples()
        return elapsed_us

    def _run_reference(self, size: int) -> float:
        self.candidate.flush()
        self.device.synchronize()
        time.sleep(PAUSE_S)
        started_s, worked_s = time.perf_counter(), time.process_time()
        self.reference.runner.run(size)
        elapsed_s = time.perf_counter() - started_s
        if self.device.type == "cpu":  # time that it waited for a processor is no advantage for the candidate
            elapsed_s = min(elapsed_s, time.process_time() - worked_s)
        return 1e6 * elapsed_s

    def each_us(self, arm: str) -> list[float]:
        """Return the time of one more call, by each larger batch."""
        alone_us, larger_us = self.times_us[arm].values()
        if arm == "reference":
            return [min(each_us, self._most_us) for each_us in per_call(alone_us, larger_us, self.large)]
        fixed_us = self.candidate.fixed_us
        if self.device.type == "cuda":
            return per_call(alone_us, larger_us, self.large, fixed_us.high + WAKING_SLACK_US)
        waited_us = per_call(alone_us, larger_us, self.large, fixed_us.low + WAKING_SLACK_US)
        return [*map(max, waited_us, self.worked_each_us())]

    def worked_each_us(self) -> list[float]:
        """Return how long a call of each larger batch ran on processors, without waiting for one."""
        alone_us, larger_us = self.worked_us.values()
        return per_call(alone_us, larger_us, self.large)

    @property
    def latency_us(self) -> float:
        """The shortest call alone, less the shortest call of a function of ours that takes hardly any time."""
        return max(min(*self.times_us["candidate"][1], *self.more_us) - self.candidate.fixed_us.low, 0.0)

    @property
    def overlap(self) -> str:
        """The sentence that the candidate's calls in a batch may overlap; empty where they do not."""
        each_us = statistics.median(self.each_us("candidate"))
        return overlap(self.latency_us, each_us, self.device.type, self.graph)

    def time_more_calls(self) -> None:
        """Time more calls alone while calls may overlap, for the shortest: for a second or so all may be late."""
        for pause_s in MORE_PAUSES_S:
            if not self.overlap:
                return
            time.sleep(pause_s)
            calls = math.ceil(min(MORE_CALLS, MORE_CALLS_US / self.latency_us))
            self.more_us += [self._run(1) for _ in range(calls)]
