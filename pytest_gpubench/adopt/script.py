"""A benchmark script: loaded for its `perf_report` objects, or run as a whole."""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

from pytest_gpubench.adopt.perf_report import cases_of, measuring, same_stream
from pytest_gpubench.adopt.timers import Timed, TimedHandler, adopting, imported, redirecting
from pytest_gpubench.errors import NotMeasured
from pytest_gpubench.fixture import GpuBench
from pytest_gpubench.units import name_of

REPORT_RUN = "triton.testing:Mark.run"
PLOTTING = ("matplotlib", "matplotlib.pyplot")


class TimesByItself(BaseException):
    """Raised through a script that times something while it is loaded: it has to be run in a test."""


def load(path: Path) -> tuple[dict[str, object], Exception | None, bool]:
    """Load a script; return its namespace, the error that ended it, and whether it times by itself.

    `Mark.run` of a `perf_report` object does nothing meanwhile.
    """

    def refuse(timed: Timed) -> list[float]:
        raise TimesByItself

    module = ModuleType(f"gpu_bench_script_{path.stem}")
    sys.modules[module.__name__] = module
    error: Exception | None = None
    try:
        _execute(path, module, refuse, lambda mark: None)
    except TimesByItself:
        return vars(module), None, True
    except SystemExit as left:
        error = RuntimeError(f"it ended by itself, with status {left.code}") if left.code else None
    except Exception as raised:
        error = raised
    return vars(module), error, False


def run_whole(path: Path, bench: GpuBench) -> None:
    """Run a script as `__main__`, and measure what it times, the providers of its `perf_report` objects too.

    Raises NotMeasured where it times nothing, and what the script raises.
    """
    measured: list[str] = []
    where: list[str] = []
    measure_each = measuring(bench)

    def measure(timed: Timed) -> Sequence[float]:
        measured.append(timed.label)
        return measure_each(replace(timed, label=where[0] if where else timed.label))

    def run(mark: Any) -> None:
        for case in cases_of(name_of(mark.fn), mark):
            for name in case.providers:
                where[:] = [f"{case.name} {name}"]
                case.call(name)
        where.clear()

    module = ModuleType("__main__")
    outer, sys.modules["__main__"] = sys.modules["__main__"], module
    try:
        _execute(path, module, measure, run)
    except SystemExit as left:
        if left.code:
            raise NotMeasured(f"{path.name} could not be taken over: it ended with status {left.code}") from None
    finally:
        sys.modules["__main__"] = outer
    if not measured:
        raise NotMeasured(f"{path.name} could not be taken over: it calls no timer that is known")


def _execute(path: Path, module: ModuleType, handler: TimedHandler, run: Callable[[Any], None]) -> None:
    """Execute a script in a module, with its folder on the path, no arguments, and no plots.

    handler: takes what is timed. run: called with a `perf_report` object in place of its `run`, which would plot.
    """

    def replacement(original: object, caller: FrameType, mark: Any, *args: object, **kwargs: object) -> None:
        run(mark)

    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    os.environ.setdefault("MPLBACKEND", "Agg")
    with ExitStack() as stack:
        stack.enter_context(adopting(handler))
        if (function := imported(REPORT_RUN)) is not None:
            stack.enter_context(redirecting(function, replacement))
        for name in () if importlib.util.find_spec(PLOTTING[0]) else PLOTTING:  # whatever is drawn is lost
            stand_in: Any = ModuleType(name)
            stand_in.__getattr__ = lambda attribute: MagicMock()
            stand_in.__spec__ = importlib.machinery.ModuleSpec(name, None)
            stand_in.__path__ = []
            sys.modules[name] = stand_in
            stack.callback(sys.modules.pop, name, None)
        stack.enter_context(patch.object(sys, "argv", [str(path)]))
        stack.enter_context(same_stream())
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
