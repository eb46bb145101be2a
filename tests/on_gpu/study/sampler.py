"""A sampling profiler of this process's main thread, which tells checks from reps by the files on the stack."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

import pytest_gpubench

PACKAGE = Path(pytest_gpubench.__file__).parent
REPS = ("timing", "gpu", "stats")
"""The rooms whose work is reps, unless a check asked for it."""
CHECKS = ("bench", "correctness")
NO_CHECKS = {"bench/comparison.py", "bench/request.py", "bench/plan.py", "bench/candidates.py"}
"""Files that lead to both."""
ASKS_FOR_CALLS = {"check", "run_reference", "check_floor", "check_work"}
"""Functions of which all that they call is a check."""


def part_of(frame: FrameType | None) -> tuple[str, str]:
    """Return `checks`, `reps`, `call` or `other` of a stack, and the function of ours that is innermost."""
    stack = list(frames_of(frame))
    if not stack:
        return "other", ""
    inner_file, inner_name = stack[0]
    ours = f"{inner_file}:{inner_name}"
    if any(name in ASKS_FOR_CALLS and file.startswith("bench/") for file, name in stack):
        return "checks", ours
    if inner_file == "study":
        return "call", ours
    room = inner_file.partition("/")[0]
    if room in CHECKS and inner_file not in NO_CHECKS:
        return "checks", ours
    return ("reps" if room in REPS else "other"), ours


def frames_of(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """Yield file and function of the frames of our package, the innermost first; a study's functions are `study`."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            yield path.relative_to(PACKAGE).as_posix(), frame.f_code.co_name
        elif frame.f_code.co_name == "measured_call":
            yield "study", frame.f_code.co_name
        frame = frame.f_back


class Sampler:
    """Count where the main thread is, while the context lasts."""

    def __init__(self, every_s: float = 0.001) -> None:
        self.every_s = every_s
        self.parts: Counter[str] = Counter()
        self.functions: Counter[tuple[str, str]] = Counter()
        self._main = threading.main_thread().ident
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Sampler":
        self._interval_s = sys.getswitchinterval()
        sys.setswitchinterval(self.every_s / 10)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        sys.setswitchinterval(self._interval_s)

    def _sample(self) -> None:
        while not self._stopped.is_set():
            part, function = part_of(sys._current_frames().get(self._main or 0))
            self.parts[part] += 1
            self.functions[part, function] += 1
            time.sleep(self.every_s)

    @property
    def shares(self) -> dict[str, float]:
        """The share of each part."""
        return {part: number / self.parts.total() for part, number in sorted(self.parts.items())}
