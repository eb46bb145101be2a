"""The GPU memory that a call takes.

torch's caching allocator counts what is taken from it, on one device. Memory that other libraries take does not show in
it; nor does what a CUDA graph of torch.compile's uses in its own pool.
"""

import gc

import torch

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.observed import AllocatedMemory
from pytest_gpubench.timing.base import Call, Prepared


class Meter:
    """Read torch's allocation counters before and after what is called while this is entered.

    It is made when the call has been prepared: what is in use then belongs to no call.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.prepared = self._counters().get("allocated_bytes.all.current")
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}

    def __enter__(self) -> "Meter":
        if self.prepared is not None:
            torch.cuda.reset_peak_memory_stats(self.device.torch_device)
        self.before = self._counters()
        return self

    def __exit__(self, *error: object) -> None:
        self.after = self._counters()

    def memory(self, call: Call) -> AllocatedMemory | None:
        """Return the memory taken; None if the allocator does not count it."""
        if self.prepared is None or "allocation.all.allocated" not in self.after:
            return None
        grown = {name: self.after[name] - self.before.get(name, 0) for name in self.after}
        return AllocatedMemory(
            allocations=grown["allocation.all.allocated"],
            allocated_bytes=grown["allocated_bytes.all.allocated"],
            peak_bytes=max(0, self.after["allocated_bytes.all.peak"] - self.before["allocated_bytes.all.current"]),
            kept_bytes=self._kept(call, self.prepared),
        )

    def _kept(self, call: Call, before: int) -> int:
        """Return by how much a call adds to what is in use, at the same point of each: before it, prepared.

        A first call may add something once and for all: the second one tells.
        """
        first = self._when_prepared(call, before)
        if first <= before:
            return 0
        call.prepare()()
        return max(0, self._when_prepared(call, first) - first)

    def _when_prepared(self, call: Call, expected: int) -> int:
        """Return what is in use when the next call is prepared; without garbage, where it is more than expected."""
        timed: Prepared | None = call.prepare()
        if self._in_use() > expected:
            timed = None
            gc.collect()
            timed = call.prepare()
        found = self._in_use()
        del timed
        return found

    def _in_use(self) -> int:
        return self._counters()["allocated_bytes.all.current"]

    def _counters(self) -> dict[str, int]:
        try:
            return torch.cuda.memory_stats(self.device.torch_device)
        except RuntimeError:  # an allocator from outside, which does not count
            return {}
