"""The counters of a call: a name for each here, and the metrics of ncu's whose sum it is.

Counters are taken in groups, each in a process of its own. The first is what an H200 counts in one pass: each kernel
runs once, as in a timed call. For others ncu runs it several times, with the memory that it writes put back in
between, which takes longer, and leaves other data in the cache: reads from memory were up to 5 % more so. In groups,
what is counted does not depend on what else a run asks for.

It lies below limits and tolerances, which take their names from here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

RAW = re.compile(r"[a-z][a-z0-9]*__\w+\.sum")
"""A metric of ncu's that can be added over the kernels of a call."""
EXECUTED = re.compile(r"(sm(sp)?__(inst|sass|thread_inst)|l1tex__t_(requests|sectors))(?!.*_lookup_)")
"""The beginnings of ncu's metrics that count what a call executes, whatever takes how long or lies in a cache."""
Passes = Literal["one pass", "several", "alone"]


@dataclass(frozen=True)
class Counter:
    """One counter: the sum of metrics of ncu's over the kernels of a call."""

    name: str
    raw: tuple[tuple[str, ...], ...]
    """Each metric by its names, of which a GPU knows one."""
    help: str
    group: Passes
    in_bytes: bool = False
    changed_by_others: bool = False
    """True if it may be higher beside another process on the GPU, whose data is in the cache too."""


def _on(*operations: str) -> tuple[tuple[str, ...], ...]:
    return tuple((f"l1tex__t_requests_pipe_lsu_mem_{each}.sum",) for each in operations)


COUNTERS = (
    Counter("instructions", (("smsp__inst_executed.sum",),), "instructions executed, by warps", "one pass"),
    Counter(
        "dram_read_bytes",
        (("dram__bytes_read.sum", "dram__bytes_op_read.sum"),),
        "bytes read from the GPU's memory",
        "one pass",
        in_bytes=True,
        changed_by_others=True,
    ),
    Counter(
        "l2_bytes",
        (("lts__t_bytes.sum",),),
        "bytes that pass the L2 cache",
        "one pass",
        in_bytes=True,
        changed_by_others=True,
    ),
    Counter(
        "load_sectors",
        (("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),),
        "sectors of 32 bytes that loads touch; none by TMA",
        "one pass",
    ),
    Counter("loads", _on("global_op_ld"), "loads from global memory, by warps; none by TMA", "several"),
    Counter("stores", _on("global_op_st"), "stores to global memory, by warps; none by TMA", "several"),
    Counter("local_loads", _on("local_op_ld"), "loads from local memory, as of spilled registers", "several"),
    Counter("local_stores", _on("local_op_st"), "stores to local memory", "several"),
    Counter("atomics", _on("global_op_atom", "global_op_red"), "atomic operations on global memory", "several"),
    Counter(
        "divergent_branches",
        (("smsp__sass_branch_targets_threads_divergent.sum",),),
        "branches that part a warp",
        "several",
    ),
)
COUNTER_BY_NAME: Mapping[str, Counter] = {each.name: each for each in COUNTERS}


def is_counter(name: str) -> bool:
    """Tell whether a name is that of a counter, or a metric of ncu's."""
    return name in COUNTER_BY_NAME or bool(RAW.fullmatch(name))


def counter_named(name: str) -> Counter:
    """Return the counter of a name, a metric of ncu's too; raise ValueError for any other name."""
    if name in COUNTER_BY_NAME:
        return COUNTER_BY_NAME[name]
    if RAW.fullmatch(name):
        in_bytes, is_executed = "_bytes" in name, EXECUTED.match(name)
        return Counter(name, ((name,),), "as ncu defines it", "alone", in_bytes, changed_by_others=not is_executed)
    if re.fullmatch(r"[a-z][a-z0-9]*__[\w.]+", name):
        raise ValueError(f"{name!r} is no sum over a call's kernels: of ncu's metrics, give one that ends in .sum")
    raise ValueError(
        f"{name!r} is no counter: use one of {', '.join(COUNTER_BY_NAME)}, or a metric of ncu's that ends in .sum"
    )


def is_changed_by_others(metric: str) -> bool:
    """Tell whether other processes on the GPU may change a statistic of times, or a counter."""
    return not is_counter(metric) or counter_named(metric).changed_by_others


def raw_metrics(names: Iterable[str]) -> list[str]:
    """Return the metrics of ncu's that these counters are made of, each once."""
    return list(dict.fromkeys(raw for name in names for known in counter_named(name).raw for raw in known))
