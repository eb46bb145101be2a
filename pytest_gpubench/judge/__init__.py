"""Judge an untrusted candidate in a process of its own.

The referee's process owns the inputs, the reference and its outputs, the limits and the verdict. The candidate's
process is started and warmed beforehand, limits itself as far as the kernel allows, and serves one candidate. It is
stopped (SIGSTOP) while the referee works: while inputs of a single call are written to memory that both share, while
outputs are compared and while the reference is timed. Its messages are plain data.

A candidate is timed twice, each time in turn with the reference and on new inputs. *Claimed*: single calls with a cold
cache, by the timer of `compare`, which runs inside the candidate's process and may lie. *Attested*: batches of calls on
different inputs, by the referee's clock. On a GPU it starts before inputs are written, and stops when samples of the
outputs have been read; on a CPU it runs while the process does. The difference between a small and a large batch takes
off the cost of a message and a launch. On a GPU both arms run their batches as CUDA graphs where they can. A PASS holds
for both times.

`judging` judges a candidate case by case: `ready_case` and `reference`, then `trial`, with `reps` and `batches` that
`looks` adds until their speedup is decided, and `conclusion`. By `confirmation` a close FAIL is judged again, in new
processes.
`process_pool`, `process` and `candidate` are the referee's side of the candidate's process, `worker` and `isolation`
its own. Both sides exchange messages (`channel`) and memory (`layout`, `memory`), and make calls by `runner`.

`from pytest_gpubench import judge` is this module, and `judge(candidate, spec=...)` calls `judge_candidate`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_gpubench.judge.judgement import Judgement
    from pytest_gpubench.judge.judging import judge_candidate

__all__ = ["Judgement", "judge_candidate"]


class _Callable(ModuleType):
    """A module that is called like the function it is named after."""

    def __call__(self, *args: Any, **kwargs: Any) -> "Judgement":
        return self.judge_candidate(*args, **kwargs)  # type: ignore[no-any-return]


sys.modules[__name__].__class__ = _Callable


def __getattr__(name: str) -> Any:
    homes = {"Judgement": "judgement", "judge_candidate": "judging"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
