"""Limits on what a kernel takes of a multiprocessor: registers, memory, its blocks, the last wave of them; exact."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from pytest_gpubench.bounds import real_number, whole_number
from pytest_gpubench.limits import by_gpu_or_kernel, fraction_below_one, is_pattern, limits_by_pattern, memory_size
from pytest_gpubench.results.kernels import distinct_names, is_named, listed
from pytest_gpubench.results.model import Kernel, Measurement, Outcome, Resources, Timing
from pytest_gpubench.units import count, format_bytes, with_ends
from pytest_gpubench.verdict.decision import Judged
from pytest_gpubench.verdict.limits.base import Limit, Seen, not_for_device, only
from pytest_gpubench.verdict.limits.exact import kernels_unknown, patterns_unmatched


@dataclass(frozen=True)
class Found:
    """One kind of a kernel's launches, beside the kernel's limit."""

    kernel: Kernel
    launch: Resources
    wanted: Any


class OnKernels(Limit):
    """A limit on each kernel of a call: one for all, or by pattern of their names (the longest counts), or by GPU."""

    needed = frozenset({"resources"})
    example: ClassVar[Any]
    """A value for messages."""
    field: ClassVar[str]
    """The name in `Resources` of what is limited."""
    noun: ClassVar[str]
    """The words for a value in a table."""
    phrase: ClassVar[str]
    """The words for a value in a sentence, after the kernel's name."""
    counted: ClassVar[str] = ""
    """The noun of a count; empty where a value has a unit."""
    is_least: ClassVar[bool] = False
    """True if what is found has to be at least the limit, not at most."""

    @staticmethod
    def read(asked: Any, /) -> Any:
        """Return the limit on one kernel as a number; raise ValueError saying what is wrong with it."""
        raise NotImplementedError

    @classmethod
    def words(cls, launch: Resources, wanted: Any = None) -> str:
        """Return what is limited in words that follow the kernel's name: `takes 72 registers a thread`."""
        value = getattr(launch, cls.field)
        return cls.phrase.format(count(value, cls.counted) if cls.counted else cls.text(value, wanted))

    @staticmethod
    def text(value: Any, beside: Any = None, /) -> str:
        """Return a number with its unit, which reads otherwise than another number beside it."""
        return str(value)

    @classmethod
    def parse(cls, asked: Any) -> Any:
        return by_gpu_or_kernel(asked, cls.read, cls.example)

    def judge(self, seen: Seen) -> Judged:
        timing, limits = seen.timing, limits_by_pattern(self.value, seen.timing.device)
        if unknown := kernels_unknown(timing) or self._unknown(timing, limits):
            return unknown
        found = self._found(timing, limits or {})
        if not found:
            return Outcome.PASS, f"{timing.label} launches no kernel that {self.named} is for"
        broken = [each for each in found if self._excess(each) > 0]
        names = distinct_names(kernel.name for kernel in timing.kernels)
        told = [self._sentence(names[each.kernel.name], each) for each in broken or [self._worst(found)]]
        return Outcome.FAIL if broken else Outcome.PASS, f"{timing.label}: {'; '.join(told)}"

    def cell(self, item: Measurement) -> str:
        limits = limits_by_pattern(self.value, item.timing.device)
        if limits is None:
            return only(self.asked)
        found, compared = self._found(item.timing, limits), ">=" if self.is_least else "<="
        if not found:
            return ", ".join(f"{compared} {self.text(wanted)} {self.noun}" for wanted in dict.fromkeys(limits.values()))
        worst = self._worst(found)
        value, wanted = getattr(worst.launch, self.field), worst.wanted
        return f"{self.text(value, wanted)} {compared} {self.text(wanted, value)} {self.noun}"

    def _found(self, timing: Timing, limits: Mapping[str, Any]) -> list[Found]:
        """Return the launches of each kernel that has a limit, of those of several kinds the worst."""
        found = []
        for kernel in timing.kernels:
            own = [pattern for pattern in limits if is_named(kernel.name, pattern)]
            if own and kernel.resources:
                wanted = limits[max(own, key=len)]
                found.append(self._worst([Found(kernel, each, wanted) for each in kernel.resources]))
        return found

    def _excess(self, found: Found) -> float:
        """Return how far beyond its limit something is; at most 0 where it keeps it."""
        beyond = getattr(found.launch, self.field) - found.wanted
        return float(-beyond if self.is_least else beyond)

    def _worst(self, found: Sequence[Found]) -> Found:
        return max(found, key=self._excess)

    def _sentence(self, name: str, found: Found) -> str:
        bound = "at least" if self.is_least else "at most"
        wanted = self.text(found.wanted, getattr(found.launch, self.field))
        return f"{name} {self.words(found.launch, found.wanted)}, wanted {bound} {wanted}"

    def _unknown(self, timing: Timing, limits: Mapping[str, Any] | None) -> Judged | None:
        """Return what is judged where the GPU or a kernel has no limit, or resources are not known; else None."""
        named = [name for name in self.asked if not is_pattern(name)] if isinstance(self.asked, Mapping) else []
        for name in named:  # that of a GPU
            if any(is_named(kernel.name, f"*{name}*") for kernel in timing.kernels):
                words = "is a kernel, and a name without a wildcard is that of a GPU: write"
                return self._invalid(timing, f"{name} {words} {f'*{name}*'!r}")
        if limits is None:
            return not_for_device(self, timing)
        if timing.no_resources:
            return self._invalid(timing, f"{timing.no_resources}; leave this limit out where that is meant")
        kernels = tuple(kernel for kernel in timing.kernels if kernel.kind == "kernel")
        if not all(kernel.resources for kernel in kernels):
            needs = "an NVIDIA GPU with a driver of CUDA 12.3 or later"
            return Outcome.NOT_JUDGED, f"{timing.label} was not judged by {self.named}, which needs {needs}"
        patterns = [each for each in limits if each != "*"]
        missing = patterns_unmatched(patterns, msgspec.structs.replace(timing, kernels=kernels))
        words = f"it launches no kernel named {' or '.join(missing)}, only {listed(timing.kernels)}"
        return self._invalid(timing, words) if missing else None

    def _invalid(self, timing: Timing, reason: str) -> Judged:
        return Outcome.INVALID, f"{timing.label}: {self.named} cannot be judged: {reason}"


class MaxRegisters(OnKernels):
    """A thread of a kernel has at most so many registers."""

    name = "max_registers"
    help = "registers of a thread, at most: a number, or one per kernel {'*softmax*': 64}, or per GPU name {'H200': 64}"
    example, noun = 64, "registers"
    field = "registers"
    read = staticmethod(whole_number)
    phrase, counted = "takes {} a thread", "register"


class MaxLocalBytes(OnKernels):
    """A thread of a kernel has at most so much local memory."""

    name = "max_local_bytes"
    help = (
        "local memory of a thread, which holds spilled registers and arrays on its stack, at most: 0 where nothing may "
        "spill; or as max_registers"
    )
    example, noun = 0, "local"
    field = "local_bytes"
    read = staticmethod(memory_size)
    text = staticmethod(format_bytes)
    phrase = "takes {} of local memory a thread"


class MaxShared(OnKernels):
    """A block of a kernel has at most so much shared memory, static and dynamic together."""

    name = "max_shared"
    help = "shared memory of a block, static and dynamic, at most: bytes, or a text as in '48KiB'; or as max_registers"
    example, noun = "48KiB", "shared"
    field = "shared_bytes"
    read = staticmethod(memory_size)
    text = staticmethod(format_bytes)
    phrase = "takes {} of shared memory a block"


class MinBlocksPerSm(OnKernels):
    """A multiprocessor holds at least so many blocks of a kernel at once."""

    name = "min_blocks_per_sm"
    help = "blocks that a multiprocessor holds at once, as the driver says, at least: a number, or as max_registers"
    example, noun, is_least = 2, "blocks per SM", True
    field = "blocks_per_sm"
    read = staticmethod(whole_number)
    phrase, counted = "has room for {} on a multiprocessor", "block"


class MaxTail(OnKernels):
    """The last wave of a kernel's blocks leaves at most this share of the GPU idle."""

    name = "max_tail"
    help = "share of the GPU that a kernel's last wave of blocks leaves idle, at most: 0.2 is 20 %; or as max_registers"
    example, noun = 0.2, "idle"
    field = "tail"

    @staticmethod
    def read(asked: Any) -> float:
        return 0.0 if real_number(asked) == 0 else fraction_below_one(asked)

    @classmethod
    def words(cls, launch: Resources, wanted: Any = math.nan) -> str:
        waves, capacity = math.ceil(launch.waves), launch.resident_blocks
        last = math.prod(launch.grid) - (waves - 1) * capacity
        which = "its only wave" if waves == 1 else f"the last of its {waves} waves"
        return f"leaves {cls.text(launch.tail, wanted)} of the GPU idle in {which} ({last} of {capacity} blocks)"

    @staticmethod
    def text(value: Any, beside: Any = math.nan, /) -> str:
        return with_ends(value, None, beside, lambda share, digits: f"{100 * share:.{digits}g} %")


LIMITS = (MaxRegisters, MaxLocalBytes, MaxShared, MinBlocksPerSm, MaxTail)
