"""Name a part of a measured call, and find out which part of its time that is.

On a GPU a kernel belongs to the innermost region that was open in the process when it was *launched*, whenever and on
whatever stream it runs. CUPTI numbers the launches of a process in their order. A region launches a kernel of our own,
which does nothing, where it begins and where it ends: what has a number between those two was launched in between. So
no clocks are compared, other streams are no exception, and what autograd's thread launches belongs to the region that
waits for it. All kernels of a CUDA graph have the number of its launch: they belong to the region that replays it, and
a region that is entered while a graph is captured is left out, as it never runs again. So is a region within a function
that torch.compile compiles: it may fuse what lies on its two sides.

The two extra kernels are launched in reps of their own, after the timed ones, which are as they would be without any
region. Elsewhere the parts are told by the host's clock, in reps of their own too.
"""

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pytest_gpubench.errors import BadRequest, IncompleteRecords, KernelsDiffer
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.phases import OUTSIDE, Region, ancestors_of
from pytest_gpubench.timing.attempts import until_complete
from pytest_gpubench.timing.base import Call, Prepared, Record, Rep, Timer, reps_of
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.rounds import Sample, check_same_kernels
from pytest_gpubench.timing.wall import WallTimer
from pytest_gpubench.timing.windows import BEGIN, END
from pytest_gpubench.units import count, first_few, printable

REGION_REPS = 10
"""The reps that regions are told apart in; fewer where fewer were timed."""
MARK = "gpu_bench_noop"
"""The kernel that marks where a region begins or ends."""


# in measured code


class region:  # it reads as what it is: `with region("forward"):`
    """Name a part of a measured call; around anything else it does nothing, and can stay where it is.

    Regions may be nested and entered repeatedly, and opened by autograd's threads; each has to be closed before the one
    around it. Raises BadRequest for a name that is not a text, is empty, or holds a slash.
    """

    __slots__ = ("name", "trace")

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name or "/" in name or name == OUTSIDE:
            raise BadRequest(
                f"region({name!r:.80}) is not valid: a region's name must be a text, not empty, without a slash, "
                f"and not {OUTSIDE!r}; nest regions to get 'outer/inner'"
            )
        self.name = name
        self.trace: RegionTrace | None = None

    def __enter__(self) -> None:
        global _entered
        if _is_compiling():
            return
        _entered = True
        trace = _trace
        if trace is not None:
            self.trace = trace if trace.enter(self.name) else None

    def __exit__(self, kind: object, error: object, traceback: object, /) -> None:
        if self.trace is not None:
            self.trace.leave(self.name, quietly=error is not None)


# in a rep


@dataclass
class RegionTrace:
    """The regions that one rep enters and leaves, in the order of the process.

    mark: called at every boundary; what it returns tells where the boundary is.
    """

    label: str
    device: Device
    mark: Callable[[], int]
    marks: list[int] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    """The innermost region that is open after each boundary."""
    entries: Counter[str] = field(default_factory=Counter)
    """Entries by path, in the order in which they were first entered."""
    open: list[str] = field(default_factory=list)
    over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, name: str) -> bool:
        """Note that a region begins; return whether it counts."""
        with self.lock:
            if self.over or is_capturing(self.device):
                return False
            path = f"{self.open[-1]}/{printable(name)}" if self.open else printable(name)
            self.open.append(path)
            self.entries[path] += 1
            self._note()
            return True

    def leave(self, name: str, quietly: bool = False) -> None:
        """Note that a region ends; raise BadRequest where another is open inside it, unless quietly."""
        with self.lock:
            if self.over:
                return
            innermost = self.open[-1].rpartition("/")[2] if self.open else "none"
            if innermost == printable(name):
                self.open.pop()
                self._note()
            elif not quietly:
                raise BadRequest(
                    f"region {name!r} of {self.label!r} ends while the innermost open region is {innermost!r}: close "
                    "regions in the opposite order, and let no two threads have regions open side by side"
                )

    def _note(self) -> None:
        self.states.append(self.open[-1] if self.open else OUTSIDE)
        self.marks.append(self.mark())

    def close(self) -> None:
        """End the rep; raise BadRequest for a region that is still open."""
        with self.lock:
            self.over = True
            if self.open:
                raise BadRequest(
                    f"region {self.open[-1]!r} was still open when {self.label!r} returned: enter it in a `with` "
                    "statement, and leave it within the call"
                )


_trace: RegionTrace | None = None
_entered = False


def _is_compiling() -> bool:
    """Stand for torch's function of this purpose until something is measured."""
    return False


def forget_regions() -> None:
    """Begin to look out for regions: `take_regions` has nothing to do where none is entered after this."""
    global _entered, _is_compiling
    import torch

    _is_compiling = torch.compiler.is_dynamo_compiling
    _entered = False


def noting_regions(prepared: Prepared, trace: RegionTrace) -> Prepared:
    """Return the timed part of a rep, whose regions are noted while it runs, and only then."""

    def run() -> object:
        global _trace
        _trace = trace
        try:
            output = prepared()
        finally:
            _trace = None
        trace.close()
        return output

    return replace(prepared, run=run)


# reps of their own


def take_regions(timer: Timer, device: Device, call: Call, idle_s: float, sample: Sample) -> tuple[Region, ...]:
    """Return the times of a call's regions, from a session of its own; none if it enters none.

    sample: the timed reps, whose kernels these must launch too. Timers but `profiler` and `wall` see no parts of a
    call. Raises KernelsDiffer where calls differ in their regions or kernels, IncompleteRecords where records are
    missing, BadRequest for regions that are not closed as they were opened.
    """
    if not _entered or not sample.reps:
        return ()
    reps = min(REGION_REPS, len(sample.reps))
    if isinstance(timer, ProfilerTimer):
        return until_complete(lambda: regions_by_launch(timer, call, idle_s, reps, sample), what="regions, ")
    if isinstance(timer, WallTimer):
        return regions_by_clock(timer, device, call, idle_s, reps)
    return ()


def regions_by_clock(timer: Timer, device: Device, call: Call, idle_s: float, reps: int) -> tuple[Region, ...]:
    """Return regions by the host's clock, which waits for the device at every boundary."""
    traces: list[RegionTrace] = []
    ends: list[tuple[int, int]] = []

    def now_ns() -> int:
        device.synchronize()
        return time.perf_counter_ns()

    def prepare() -> Prepared:
        prepared = call.prepare()
        traces.append(RegionTrace(call.label, device, now_ns))

        def run() -> object:
            began_ns, output = now_ns(), prepared()
            ends.append((began_ns, now_ns()))
            return output

        return noting_regions(replace(prepared, run=run), traces[-1])

    reps_of(timer.session(), replace(call, prepare=prepare), reps, idle_s)
    parts = [Counter[str]() for _ in traces]
    for own_ns, trace, (begin_ns, end_ns) in zip(parts, traces, ends, strict=True):
        stamps = [begin_ns, *trace.marks, end_ns]
        for state, start, stop in zip([OUTSIDE, *trace.states], stamps, stamps[1:], strict=False):
            own_ns[state] += stop - start
    return summarise_regions(call.label, traces, parts)


def regions_by_launch(timer: ProfilerTimer, call: Call, idle_s: float, reps: int, sample: Sample) -> tuple[Region, ...]:
    """Return regions by the numbers of their launches."""
    traces: list[RegionTrace] = []

    def mark() -> int:
        timer.sentinels.noop()
        return 0

    def prepare() -> Prepared:
        traces.append(RegionTrace(call.label, timer.device, mark))
        return noting_regions(call.prepare(), traces[-1])

    session, marked = timer.session(), replace(call, prepare=prepare)
    windows = [rep.records for rep in reps_of(session, marked, reps, idle_s)]
    check_launches(session.records, windows)
    parts = [Counter[str]() for _ in traces]
    for own_ns, trace, window in zip(parts, traces, windows, strict=True):
        marks, states = sorted(each.launch for each in window if each.name == MARK), trace.states
        if len(marks) != len(states):
            raise IncompleteRecords(f"regions have {count(len(states), 'boundary mark')}, but {len(marks)} came back")
        for record in window:
            if record.name != MARK:
                own_ns[[OUTSIDE, *states][bisect_right(marks, record.launch)]] += record.duration_ns
    rest = [Rep(0.0, tuple(each for each in window if each.name != MARK)) for window in windows]
    check_same_kernels(call, [*sample.reps[:1], *rest])
    return summarise_regions(call.label, traces, parts)


def is_capturing(device: Device) -> bool:
    """Tell whether what is launched now does not run now, but is captured into a CUDA graph."""
    import torch

    return device.type != "cpu" and torch.cuda.is_current_stream_capturing()


# time by region


def check_launches(records: Sequence[Record], windows: Sequence[Sequence[Record]]) -> None:
    """Raise IncompleteRecords unless everything in a rep was launched after its begin and before its end, by number.

    The device was idle at both: where the numbers say otherwise, they do not tell the order of the launches.
    """
    begins = [record.launch for record in records if record.name == BEGIN]
    ends = [record.launch for record in records if record.name == END]
    for begin, end, window in zip(begins, ends, windows, strict=True):
        for record in window:
            if not begin < record.launch < end:
                raise IncompleteRecords(
                    f"the profiler does not say when {record.name} was launched "
                    f"(as number {record.launch}, in a rep from {begin} to {end}), so its region is not known"
                )


def summarise_regions(
    label: str, traces: Sequence[RegionTrace], own_ns: Sequence[dict[str, int]]
) -> tuple[Region, ...]:
    """Return the regions, what is nested in one after it, and last what lies outside of all; none for none.

    traces, own_ns: by rep, what was entered, and the own time of each region. Raises KernelsDiffer where two reps
    entered other regions, or one of them more often.
    """

    def words(entries: Counter[str]) -> str:
        return first_few([f"{number} x {path}" for path, number in entries.items()], 4) or "none"

    entries = traces[0].entries
    for number, trace in enumerate(traces[1:], 2):
        if trace.entries != entries:
            raise KernelsDiffer(
                f"{label!r} does not enter the same regions in every call: {words(entries)} in rep 1, "
                f"{words(trace.entries)} in rep {number}"
            )
    if not entries:
        return ()
    entered = list(entries)  # what is nested in a region is to follow it
    paths = sorted(entries, key=lambda path: [entered.index(ancestor) for ancestor in ancestors_of(path)])
    whole_ns = sum(sum(own.values()) for own in own_ns)
    found = []
    for path in (*paths, OUTSIDE):
        inside = [OUTSIDE] if path == OUTSIDE else [inner for inner in paths if path in ancestors_of(inner)]
        totals = tuple(sum(own.get(inner, 0) for inner in inside) for own in own_ns)
        share = sum(totals) / whole_ns if whole_ns else 0.0
        own = tuple(own.get(path, 0) for own in own_ns)
        found.append(Region(path=path, calls=entries[path], total_ns=totals, own_ns=own, share=share))
    return tuple(found)
