"""The counters of a call: a name for each here, and the metrics of ncu's whose sum it is.

It lies below limits and tolerances, which take their names from here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__tracebackhide__ = True

RAW = re.compile(r"[a-z][a-z0-9]*__\w+\.sum")
"""A metric of ncu's that can be added over the kernels of a call."""


@dataclass(frozen=True)
class Counter:
    """One counter: the sum of metrics of ncu's over the kernels of a call."""

    name: str
    raw: tuple[str, ...]
    help: str
    in_bytes: bool = False


_INSTRUCTIONS = "smsp__inst_executed_op_{}.sum"
COUNTERS = (
    Counter("instructions", ("smsp__inst_executed.sum",), "instructions executed, by warps"),
    Counter("tensor_instructions", ("smsp__inst_executed_pipe_tensor.sum",), "of these, those of the tensor cores"),
    Counter("dram_read_bytes", ("dram__bytes_read.sum",), "bytes read from the GPU's memory", in_bytes=True),
    Counter("l2_bytes", ("lts__t_bytes.sum",), "bytes that pass the L2 cache", in_bytes=True),
    Counter("global_loads", (_INSTRUCTIONS.format("global_ld"),), "loads from global memory"),
    Counter("global_stores", (_INSTRUCTIONS.format("global_st"),), "stores to global memory"),
    Counter("load_sectors", ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",), "32-byte sectors that loads touch"),
    Counter("shared_loads", (_INSTRUCTIONS.format("shared_ld"),), "loads from shared memory"),
    Counter("shared_stores", (_INSTRUCTIONS.format("shared_st"),), "stores to shared memory"),
    Counter("local_loads", (_INSTRUCTIONS.format("local_ld"),), "loads from local memory, as of spilled registers"),
    Counter("local_stores", (_INSTRUCTIONS.format("local_st"),), "stores to local memory"),
    Counter(
        "atomics",
        (_INSTRUCTIONS.format("global_atom"), _INSTRUCTIONS.format("global_red")),
        "atomic operations and reductions on global memory",
    ),
    Counter("divergent_branches", ("smsp__sass_branch_targets_threads_divergent.sum",), "branches that part a warp"),
)
BY_NAME: Mapping[str, Counter] = {each.name: each for each in COUNTERS}


def is_counter(name: str) -> bool:
    """Tell whether a name is that of a counter, or a metric of ncu's."""
    return name in BY_NAME or bool(RAW.fullmatch(name))


def counter_named(name: str) -> Counter:
    """Return the counter of a name, a metric of ncu's too; raise ValueError for any other name."""
    if name in BY_NAME:
        return BY_NAME[name]
    if RAW.fullmatch(name):
        return Counter(name, (name,), "as ncu defines it", in_bytes="_bytes" in name)
    if re.fullmatch(r"[a-z][a-z0-9]*__[\w.]+", name):
        raise ValueError(f"{name!r} is no sum over a call's kernels: of ncu's metrics, give one that ends in .sum")
    raise ValueError(f"{name!r} is no counter: use one of {', '.join(BY_NAME)}, or a metric of ncu's that ends in .sum")


def raw_metrics(names: Iterable[str]) -> list[str]:
    """Return the metrics of ncu's that these counters are made of, each once."""
    return list(dict.fromkeys(raw for name in names for raw in counter_named(name).raw))
