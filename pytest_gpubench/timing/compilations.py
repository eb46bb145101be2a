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


class Graphs(NamedTuple):
    """The graphs that torch.compile has compiled in this process."""

    number: int
    elapsed_s: float


class Place(NamedTuple):
    """The place of Triton's hooks, called before and after it compiles a kernel."""

    owner: Any
    before: str
    after: str


@dataclass
class Compilations:
    """The compilations since counting began; they are counted until `counting_compilations` ends."""

    kernels: int = 0
    """Kernels that Triton made ready, compiled or read from its cache on disk."""
    kernels_s: float = 0.0
    began: Graphs = field(default_factory=lambda: graphs_so_far())
    ended: Graphs | None = None
    """None while counting goes on."""
    _hooks: "_Hooks | None" = None

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
        place = hook_place() if self._hooks is None and self.ended is None else None
        if place is not None:
            self._hooks = _Hooks(self, place)

    def stop(self) -> None:
        """Count no more, and put Triton's hooks back."""
        self.ended = self.ended or graphs_so_far()
        if self._hooks is not None:
            self._hooks.put_back()

    def __str__(self) -> str:
        return f"{count(self.number, 'compilation')} ({self.elapsed_s:.{0 if self.elapsed_s >= 10 else 1}f} s)"


@contextmanager
def counting_compilations() -> Iterator[Compilations]:
    """Count what is compiled while the context lasts; hooks that others gave Triton are called as ever."""
    found = Compilations()
    found.watch()
    try:
        yield found
    finally:
        found.stop()


def hook_place() -> Place | None:
    """Return the place of Triton's hooks: `triton.knobs` from 3.4 on, `JITFunction` before; None without Triton."""
    runtime = getattr(sys.modules.get("triton.knobs"), "runtime", None)
    if hasattr(runtime, "jit_post_compile_hook"):
        return Place(runtime, "jit_cache_hook", "jit_post_compile_hook")
    function = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    if hasattr(function, "compiled_hook"):
        return Place(function, "cache_hook", "compiled_hook")
    return None


def graphs_so_far() -> Graphs:
    """Return the graphs that torch.compile has compiled in this process, by its own counters."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters: Any = getattr(utils, "counters", {})
    times: Any = getattr(utils, "compilation_time_metrics", {})
    number = counters.get("stats", {}).get("unique_graphs", 0)
    return Graphs(number, sum(times.get("_compile.compile_inner", ())))


class _Hooks:
    """Functions of ours in Triton's hooks, each calling whoever was there before."""

    def __init__(self, found: Compilations, place: Place) -> None:
        self.found, self.place = found, place
        self.counting = True
        self.begun_s: dict[object, float] = {}
        self.covered_s = 0.0
        """Until when time has been counted: kernels that are compiled at once are not counted twice."""
        self.earlier = getattr(place.owner, place.before), getattr(place.owner, place.after)
        self.ours = _calling_last(self.earlier[0], self.begin), _calling_first(self.end, self.earlier[1])
        for name, ours in zip(place[1:], self.ours, strict=True):
            setattr(place.owner, name, ours)

    def put_back(self) -> None:
        """Count no more; who has put a function in front of ours since keeps it, and calls ours in vain."""
        self.counting = False
        for name, ours, earlier in zip(self.place[1:], self.ours, self.earlier, strict=True):
            if getattr(self.place.owner, name) is ours:
                setattr(self.place.owner, name, earlier)

    def begin(self, **about: Any) -> None:
        """Note that a kernel is about to be compiled; one that an earlier hook has Triton skip does not end."""
        if self.counting:
            self.begun_s[kernel_of(about)] = time.perf_counter()

    def end(self, **about: Any) -> None:
        """Count a kernel that has been compiled; those of torch.compile are not begun here, and part of a graph."""
        began_s = self.begun_s.pop(kernel_of(about), None)
        if began_s is None or not self.counting:
            return
        now_s = time.perf_counter()
        self.found.kernels += 1
        self.found.kernels_s += now_s - max(began_s, self.covered_s)
        self.covered_s = now_s


def kernel_of(about: dict[str, Any]) -> object:
    """Return the kernel that a hook is called for."""
    return getattr(about.get("fn"), "name", None), str(about.get("key"))


def _calling_last(earlier: TritonHook | None, then: TritonHook) -> TritonHook:
    """Return a hook that calls an earlier one, whose answer stays Triton's to follow, then ours."""

    def hook(*args: Any, **about: Any) -> Any:
        answer = earlier(*args, **about) if earlier is not None else None
        then(**about)
        return answer

    return functools.wraps(earlier)(hook) if earlier is not None else hook  # inductor looks at its signature


def _calling_first(first: TritonHook, earlier: TritonHook | None) -> TritonHook:
    """Return a hook that calls ours, then an earlier one."""

    def hook(*args: Any, **about: Any) -> Any:
        first(**about)
        return earlier(*args, **about) if earlier is not None else None

    return functools.wraps(earlier)(hook) if earlier is not None else hook
