"""The count and the time of compilations: Triton's kernels, and graphs of torch.compile."""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_gpubench.units import count

TritonHook = Callable[..., Any]
HOOKS = (
    ("triton.knobs", "runtime", ("jit_cache_hook", "jit_post_compile_hook")),
    ("triton.runtime.jit", "JITFunction", ("cache_hook", "compiled_hook")),
)
"""The places of what Triton calls before and after it compiles a kernel: from 3.4 on, and in older versions."""


class Graphs(NamedTuple):
    """The graphs that torch.compile has compiled in this process."""

    number: int
    elapsed_s: float


@dataclass
class Compilations:
    """The compilations since counting began; they are counted until `counting_compilations` ends."""

    kernels: int = 0
    """Kernels that Triton made ready, compiled or read from its cache on disk."""
    kernels_s: float = 0.0
    began: Graphs = field(default_factory=lambda: graphs_so_far())
    ended: Graphs | None = None
    """None while counting goes on."""
    _begun_s: dict[object, float] = field(default_factory=dict)
    _covered_s: float = 0.0
    """Until when time has been counted: kernels that are compiled at once are not counted twice."""
    _hooked: list[tuple[Any, str, TritonHook, TritonHook | None]] = field(default_factory=list)
    """The owner and the name of each of Triton's hooks, ours there, and the earlier one."""

    @property
    def graphs(self) -> int:
        """Graphs that torch.compile compiled; 0 where somebody reset its counters."""
        return max(0, (self.ended or graphs_so_far()).number - self.began.number)

    @property
    def number(self) -> int:
        """Kernels and graphs together."""
        return self.kernels + self.graphs

    @property
    def elapsed_s(self) -> float:
        """Seconds that compiling took."""
        return self.kernels_s + max(0.0, (self.ended or graphs_so_far()).elapsed_s - self.began.elapsed_s)

    def watch(self) -> None:
        """Begin to see Triton's kernels, if Triton has been imported by now; needed once after that."""
        if self._hooked or self.ended is not None:
            return
        for module, holder, names in HOOKS:
            owner = getattr(sys.modules.get(module), holder, None)
            if hasattr(owner, names[1]):
                for name, ours in zip(names, (self._begin, self._end), strict=True):
                    earlier = getattr(owner, name)
                    setattr(owner, name, hook := _calling_first(ours, earlier))
                    self._hooked.append((owner, name, hook, earlier))
                return

    def _begin(self, **about: Any) -> None:
        """Note that a kernel is about to be compiled; one that an earlier hook has Triton skip does not end."""
        if self.ended is None:
            self._begun_s[kernel_of(about)] = time.perf_counter()

    def _end(self, **about: Any) -> None:
        """Count a kernel that has been compiled; those of torch.compile are not begun here, and part of a graph."""
        began_s = self._begun_s.pop(kernel_of(about), None)
        if began_s is None or self.ended is not None:
            return
        now_s = time.perf_counter()
        self.kernels += 1
        self.kernels_s += now_s - max(began_s, self._covered_s)
        self._covered_s = now_s

    def __str__(self) -> str:
        return f"{count(self.number, 'compilation')} ({self.elapsed_s:.{0 if self.elapsed_s >= 10 else 1}f} s)"


@contextmanager
def counting_compilations() -> Iterator[Compilations]:
    """Count what is compiled while the context lasts; hooks that others gave Triton are called as ever.

    Who has put a function in front of ours since keeps it, and calls ours in vain.
    """
    found = Compilations()
    found.watch()
    try:
        yield found
    finally:
        found.ended = graphs_so_far()
        for owner, name, ours, earlier in found._hooked:
            if getattr(owner, name) is ours:
                setattr(owner, name, earlier)


def graphs_so_far() -> Graphs:
    """Return the graphs that torch.compile has compiled in this process, by its own counters."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters: Any = getattr(utils, "counters", {})
    times: Any = getattr(utils, "compilation_time_metrics", {})
    number = counters.get("stats", {}).get("unique_graphs", 0)
    return Graphs(number, sum(times.get("_compile.compile_inner", ())))


def kernel_of(about: dict[str, Any]) -> object:
    """Return the kernel that a hook is called for."""
    return getattr(about.get("fn"), "name", None), str(about.get("key"))


def _calling_first(first: TritonHook, earlier: TritonHook | None) -> TritonHook:
    """Return a hook that calls ours, then an earlier one, whose answer stays Triton's to follow."""

    def hook(*args: Any, **about: Any) -> Any:
        first(**about)
        return earlier(*args, **about) if earlier is not None else None

    return functools.wraps(earlier)(hook) if earlier is not None else hook  # inductor looks at its signature
