"""Several referees at once, each in a process of its own: each takes the next candidate when it is free."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Thread

from pytest_gpubench.child_process import how_ended
from pytest_gpubench.errors import MeasurementError

PUT_S = 0.1
QUEUED = 16
"""The candidates that are read before they can be judged."""
Respond = Callable[[str], object]
"""Takes a line: a judgement, or an object with an `"error"`."""
Waiting = Queue[tuple[str, Respond] | None]


class Referee(Thread):
    """A process that reads a candidate a line and writes a judgement a line, and the thread that serves it."""

    def __init__(self, command: Sequence[str], gpu: str | None, waiting: Waiting) -> None:
        super().__init__(daemon=True)
        self.name = gpu or "the only device"
        self.waiting, self.problem, self.is_stopped = waiting, "", False
        environment = os.environ | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,  # a signal to the server's group is the server's to handle
        )

    def run(self) -> None:
        """Give the process candidates until there are no more, or it ends."""
        assert self.process.stdin is not None, "it was asked for"
        assert self.process.stdout is not None, "it was asked for"
        while (next_one := self.waiting.get()) is not None:
            line, reply = next_one
            with suppress(BrokenPipeError):
                self.process.stdin.write(f"{line}\n")
            judgement = self.process.stdout.readline()
            if not judgement:
                self.process.wait()
                self.problem = f"{self.end}, and {line} is not judged"
                if not self.is_stopped:
                    reply(json.dumps({"error": self.problem}))
                return
            reply(judgement.rstrip("\n"))

    @property
    def end(self) -> str:
        """The way in which its process has ended; empty while it has not."""
        code = self.process.poll()
        return "" if code is None else f"the referee on {self.name} ended with {how_ended(code)}"

    def stop(self) -> None:
        """End its process; what it judges is not answered."""
        self.is_stopped = not self.end
        self.process.terminate()


class Referees:
    """A referee for each GPU (None: for the device that its command chooses), and the candidates that wait for one."""

    def __init__(self, command: Sequence[str], gpus: Sequence[str | None]) -> None:
        self._waiting: Waiting = Queue(maxsize=QUEUED)
        self._all = [Referee(command, gpu, self._waiting) for gpu in gpus]
        for each in self._all:
            each.start()

    @property
    def are_alive(self) -> bool:
        """False once none judges any more."""
        return any(each.is_alive() and not each.end for each in self._all)

    def judge(self, line: str, reply: Respond) -> None:
        """Have a candidate judged, as soon as there is room for it; raise MeasurementError where no referee is left."""
        self._put((line, reply))

    def _put(self, item: tuple[str, Respond] | None) -> None:
        while self.are_alive:
            with suppress(Full):
                return self._waiting.put(item, timeout=PUT_S)
        self._answer_waiting()
        raise MeasurementError(self._problems)

    def _answer_waiting(self) -> None:
        """Answer what nobody judges any more."""
        with suppress(Empty):
            while True:
                if (waiting := self._waiting.get_nowait()) is not None:
                    line, reply = waiting
                    reply(json.dumps({"error": f"no referee is left, and {line} is not judged"}))

    @property
    def _problems(self) -> str:
        return "; ".join(problem for each in self._all if (problem := each.problem or each.end))

    def finish(self) -> None:
        """Wait until all candidates are judged; raise MeasurementError where a referee ended."""
        for _ in self._all:
            self._put(None)
        for each in self._all:
            each.join()
        self._answer_waiting()
        if self._problems:
            raise MeasurementError(self._problems)

    def __enter__(self) -> "Referees":
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        for each in self._all:
            each.stop()
        for each in self._all:
            each.process.communicate()
