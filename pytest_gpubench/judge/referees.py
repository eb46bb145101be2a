"""Several referees at once, each in a process of its own: each takes the next candidate when it is free."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from threading import BoundedSemaphore

from pytest_gpubench.child_process import how_ended
from pytest_gpubench.errors import MeasurementError

QUEUED = 16
"""The candidates that are read before they can be judged."""
Respond = Callable[[str], object]
"""Takes a line: a judgement, or an object with an `"error"`."""


class Referee:
    """A process that reads a candidate a line and writes a judgement a line; gpu: None for the one that it chooses."""

    def __init__(self, command: Sequence[str], gpu: str | None) -> None:
        self.name, self._said = gpu or "the only device", ""
        self.process = subprocess.Popen(
            command,
            env=os.environ | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            bufsize=1,
            start_new_session=True,  # a signal to the server's group is the server's to handle
        )

    def answer(self, line: str) -> str:
        """Return its answer to a line; empty if it has ended, as it has to after any other line: the next were late."""
        assert self.process.stdin is not None, "it was asked for"
        assert self.process.stdout is not None, "it was asked for"
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n")
        answer = self.process.stdout.readline()
        if answer and not _is_answer(answer):
            self._said = f" after it wrote {answer!r}, which is no judgement"
            self.process.kill()
            answer = ""
        if not answer:
            self.process.wait()
        return answer.rstrip("\n")

    @property
    def end(self) -> str:
        """The way in which its process has ended; empty while it has not."""
        code = self.process.poll()
        return "" if code is None else f"the referee on {self.name} ended with {how_ended(code)}{self._said}"


def _is_answer(line: str) -> bool:
    """Tell whether a line is a judgement, or says why there is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and not found.keys().isdisjoint({"status", "error"})


class Referees:
    """A referee for each GPU, and a thread for each that hands it the candidates."""

    def __init__(self, command: Sequence[str], gpus: Sequence[str | None]) -> None:
        self._all = [Referee(command, gpu) for gpu in gpus]
        self._free: SimpleQueue[Referee | None] = SimpleQueue()
        """Those that judge nothing; None once all have ended."""
        for each in self._all:
            self._free.put(each)
        self._threads = ThreadPoolExecutor(len(self._all))
        self._room = BoundedSemaphore(QUEUED + len(self._all))
        self._is_stopped = False
        self._failed: Exception | None = None
        """The error that a reply raised."""

    @property
    def are_alive(self) -> bool:
        """False once none judges any more."""
        return self._failed is None and not all(each.end for each in self._all)

    def judge(self, line: str, reply: Respond) -> None:
        """Have a candidate judged, as soon as there is room for it; raise MeasurementError where no referee is left."""
        if self._failed is not None:
            raise self._failed
        if not self.are_alive:
            raise MeasurementError(self._ends)
        self._room.acquire()
        self._threads.submit(self._judge, line, reply)

    def _judge(self, line: str, reply: Respond) -> None:
        try:
            referee = self._free.get()
            answer = referee.answer(line) if referee else ""
            if answer:
                self._free.put(referee)
            elif not self.are_alive:
                self._free.put(None)
            problem = f"{referee.end if referee else 'no referee is left'}, and {line} is not judged"
            if not self._is_stopped:
                reply(answer or json.dumps({"error": problem}))
        except Exception as error:
            self._failed = error
            self._free.put(None)  # for what waits
        finally:
            self._room.release()

    @property
    def _ends(self) -> str:
        return "; ".join(each.end for each in self._all if each.end)

    def finish(self) -> None:
        """Wait until all candidates are judged; raise MeasurementError where a referee ended."""
        self._threads.shutdown()
        if self._failed is not None:
            raise self._failed
        if self._ends:
            raise MeasurementError(self._ends)

    def __enter__(self) -> "Referees":
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        """End all; what they judge is not answered."""
        self._is_stopped = True
        for each in self._all:
            each.process.terminate()
        self._threads.shutdown(cancel_futures=True)
        for each in self._all:
            each.process.communicate()
