"""Judge an untrusted candidate in a process of its own.

The referee's process owns the inputs, the reference and its outputs, the limits and the verdict. The candidate's
process is started and warmed beforehand, limits itself as far as the kernel allows, and serves one candidate. Its
messages are plain data.

A call is saved as data by the candidate's process, and replayed by another one of the referee's, once the candidate is
dead (`replayed`, `replayer`): single calls with a cold cache, by the timer of `compare`, in turn with the reference,
each on new inputs. The referee's clock is a second `witness`. What cannot be replayed is timed by the candidate's
process if the spec trusts that, and by nobody else.

`judging` judges a candidate case by case: `reference`, `trial` and `conclusion`; a close FAIL again, in new processes.
`serving` has a process that judges for each GPU, and judges by request.

`process_pool`, `process` and `candidate` are the referee's side of the candidate's process, which the `template` forks;
`worker` and `isolation` are its own. Both sides exchange messages (`channel`) and memory (`layout`, `memory`), and make
calls by `runner`.

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
    """A module that is called like the function it is named after; it imports nothing before that is used."""

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{'judgement' if name == 'Judgement' else 'judging'}"), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.judge_candidate(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
