"""Right spellings: what to write instead of a name that does not exist, as from the habits of other tools."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

NOT_THE_RESULT = "gpu_bench(f, x) returns a Timing, not what f returns: call f(x) for that"
HABITS: Mapping[str, Mapping[str, str]] = {
    "gpu_bench": {
        "stats": "read the Timing that gpu_bench(f, x) returns: timing.median_us",
        "pedantic": "write gpu_bench.measure(f, args, kwargs, setup=..., reps=..., warmup=...)",
        "group": "--gpu-bench-group-by groups the table",
        "name": "write gpu_bench.measure(f, args, label=...)",
        **{
            name: f"write gpu_bench.measure(f, args, {name}=...)"
            for name in ("reps", "warmup", "timer", "cache", "setup")
        },
        "extra_info": 'write gpu_bench.extra_info["key"] = value',
        "disabled": "it is for the whole run: --gpu-bench-disable",
        "weave": "measure the inner function, or mark a part of a call with gpu_bench.region(...)",
        "patch": "measure the inner function, or mark a part of a call with gpu_bench.region(...)",
    },
    "timing": {
        **dict.fromkeys(("shape", "dtype", "ndim", "grad", "size", "numel", "to", "cpu", "float"), NOT_THE_RESULT),
        **dict.fromkeys(("sum", "item", "tolist", "numpy", "clone", "detach", "backward", "allclose"), NOT_THE_RESULT),
        **dict.fromkeys(("stddev", "stdev"), "did you mean std_us?"),
        **dict.fromkeys(("q1", "q3", "iqr", "quartiles"), "did you mean quartiles_us?"),
        **dict.fromkeys(("data", "sorted_data", "times", "raw_times"), "did you mean samples_us?"),
        **dict.fromkeys(("rounds", "iterations"), "did you mean reps?"),
        "stats": "the Timing holds them itself: timing.median_us",
        "ops": "calls a second are 1e6 / timing.median_us",
        "total": "did you mean elapsed_s?",
        "speedup": "gpu_bench.compare(candidate, reference) measures one",
    },
    "comparison": dict.fromkeys(
        ("median_us", "samples_us", "mean_us", "reps", "kernels"),
        "read that of comparison.timing, or of comparison.reference",
    ),
    "mark": {
        **dict.fromkeys(("rounds", "iterations", "min_rounds"), "did you mean reps=?"),
        "max_time": "did you mean max_time_us=? (the time that a test may measure is budget_s=)",
        "group": "--gpu-bench-group-by groups the table",
    },
    "keyword": {
        **dict.fromkeys(("rounds", "iterations", "n_repeat", "min_rounds"), "did you mean reps=?"),
        **dict.fromkeys(("warmup_rounds", "warmup_iterations", "n_warmup"), "did you mean warmup=?"),
        **dict.fromkeys(("max_time", "timeout"), "did you mean budget_s=?"),
        **dict.fromkeys(("name", "desc"), "did you mean label=?"),
        **dict.fromkeys(("tolerance", "tol", "eps"), "gpu_bench.compare takes rtol= and atol="),
        "grad_to_none": "backward= drops gradients by itself",
        "group": "--gpu-bench-group-by groups the table",
    },
}
"""The answers, by owner and by the name that does not exist."""


def hint(owner: str, name: str, legal: Iterable[str], mark: str = "") -> str:
    """Return the right spelling, after a colon; empty if nothing is alike.

    mark: what a proposal ends with, `=` for keywords.
    """
    if name in HABITS.get(owner, {}):
        return f": {HABITS[owner][name]}"
    close = get_close_matches(name, list(legal), 1)
    return f": did you mean {close[0]}{mark}?" if close else ""


class Spelled:
    """A base that answers a name that its objects lack with the right one."""

    __slots__ = ()

    if not TYPE_CHECKING:  # which would believe that every name exists

        def __getattr__(self, name: str) -> object:
            if hasattr(type(self), name):  # a property, whose own error this is
                return object.__getattribute__(self, name)
            owner = "gpu_bench" if type(self).__name__ == "GpuBench" else type(self).__name__.lower()
            legal = [each for each in dir(type(self)) if not each.startswith("_")]
            said = "" if name.startswith("_") else hint(owner, name, legal)
            raise AttributeError(f"there is no {owner}.{name}{said}", name=name)  # with obj, Python would suggest too
