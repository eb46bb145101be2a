"""Several referees at once, each in a process of its own: each takes the next candidate when it is free."""

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from queue import Full, Queue
from threading import Thread

from pytest_gpubench.child_process import how_ended
from pytest_gpubench.errors import MeasurementError

PUT_S = 0.1


class Referee(Thread):
    """A process that reads a candidate a line and writes a judgement a line, and the thread that serves it."""

    def __init__(
        self, command: Sequence[str], gpu: str | None, lines: "Queue[str | None]", show: Callable[[str], object]
    ) -> None:
        super().__init__(daemon=True)
        self.name = gpu or "the CPU"
        self.lines, self.show, self.problem = lines, show, ""
        environment = os.environ | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self) -> None:
        """Give the process candidates until there are no more, or it ends."""
        assert self.process.stdin is not None, "it was asked for"
        assert self.process.stdout is not None, "it was asked for"
        while (line := self.lines.get()) is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.write(f"{line}\n")
            judgement = self.process.stdout.readline()
            if not judgement:
                self.problem = (
                    f"the referee on {self.name} ended with {how_ended(self.process.wait())}, and {line} is not judged"
                )
                return
            self.show(judgement.rstrip("\n"))


def judge_lines(
    command: Sequence[str], gpus: Sequence[str | None], lines: Iterable[str], show: Callable[[str], object]
) -> None:
    """Distribute candidates among referees, one for each GPU, and show each judgement when it is ready.

    Raises MeasurementError, once the others are done, where a referee ended.
    """
    waiting: Queue[str | None] = Queue(maxsize=1)
    referees = [Referee(command, gpu, waiting, show) for gpu in gpus]
    try:
        for each in referees:
            each.start()
        for line in chain(lines, [None] * len(referees)):
            _put(waiting, line, referees)
        for each in referees:
            each.join()
    finally:
        for each in referees:
            each.process.terminate()
        for each in referees:
            each.process.communicate()
    problems = [each.problem for each in referees if each.problem]
    if problems:
        raise MeasurementError("; ".join(problems))


def _put(waiting: "Queue[str | None]", line: str | None, referees: Sequence[Thread]) -> None:
    """Wait until a referee takes a line, or none is left."""
    while any(each.is_alive() for each in referees):
        with suppress(Full):
            return waiting.put(line, timeout=PUT_S)
