"""Judge many candidates: a referee for each GPU takes the next one when it is free; by request over a socket, too.

A request is `{"candidate": path}`, perhaps with `"spec": path` and an `"id"` of any kind. Its answer has the same id
and either a `"judgement"` or an `"error"`, and is sent when it is ready. A connection is read only while there is room
for what waits, so those who ask for more wait in their own `send`.
"""

import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from pytest_gpubench.child_process import how_ended
from pytest_gpubench.errors import BadRequest, MeasurementError
from pytest_gpubench.results.files import UNREADABLE

QUEUED = 16
"""The candidates that are read before they can be judged."""
LONGEST_LINE = 2**20
POLL_S = 0.1
SEND_S = 10
"""The longest time that an answer waits for a client to read it; after that its connection is closed."""
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
        if _is_answer(answer):
            return answer.rstrip("\n")
        if answer:
            self._said = f" after it wrote {answer!r}, which is no judgement"
            self.process.kill()
        self.process.wait()
        return ""

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
        self._room = threading.BoundedSemaphore(QUEUED + len(self._all))
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


# requests


class ServedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a client."""

    candidate: str
    spec: str | None = None
    """The file of another spec than the server's own."""
    id: Any = None


class Connection(threading.Thread):
    """A client, and the thread that reads its requests; the threads of referees answer them."""

    def __init__(self, end: socket.socket, server: "Server") -> None:
        super().__init__(daemon=True)
        self._socket, self._server = end, server
        self._sending, self._answered = threading.Lock(), threading.Semaphore(0)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))

    def run(self) -> None:
        """Have a request after the other judged, until the client ends or the server stops reading; await answers."""
        asked = 0
        with self._socket:
            with suppress(OSError), self._socket.makefile("rb") as lines:
                while rest := (line := lines.readline(LONGEST_LINE)):
                    while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):  # what is left is no other request
                        rest = lines.readline(LONGEST_LINE)
                    if line.strip():
                        self._ask(line)
                        asked += 1
            for _ in range(asked):
                self._answered.acquire()
        self._server.connections.discard(self)

    def _ask(self, line: bytes) -> None:
        number = None
        try:
            number = (given := msgspec.json.decode(line, type=dict[str, Any])).get("id")
            request = msgspec.convert(given, ServedRequest)
        except UNREADABLE as error:
            return self._send({"id": number, "error": f'a request is {{"candidate": path}} in a line: {error}'})
        spec = request.spec or str(self._server.spec)
        asked = msgspec.json.encode({"candidate": request.candidate, "spec": spec}).decode()
        try:
            self._server.referees.judge(asked, partial(self._answer, request.id))
        except MeasurementError:
            self._send({"id": request.id, "error": f"no referee is left, and {asked} is not judged"})

    def _answer(self, number: Any, line: str) -> None:
        """Answer with a referee's line."""
        error = msgspec.json.decode(line).get("error")
        found = {"error": error} if error else {"judgement": msgspec.Raw(line.encode())}
        self._send({"id": number, **found})

    def _send(self, answer: dict[str, Any]) -> None:
        """Send a line; a client that is gone, or does not read, loses its connection."""
        with self._sending:
            try:
                self._socket.sendall(msgspec.json.encode(answer) + b"\n")
            except OSError:
                self.shut(socket.SHUT_RDWR)
        self._answered.release()

    def shut(self, how: int) -> None:
        """Read no more requests than were sent (SHUT_RD), or send no more answers either (SHUT_RDWR)."""
        with suppress(OSError):
            self._socket.shutdown(how)


class Server:
    """Answers requests with the judgements of referees; spec: of the requests that name none."""

    def __init__(self, referees: Referees, spec: Path, path: Path) -> None:
        self.referees, self.spec, self.path = referees, spec, path
        self.connections: set[Connection] = set()
        """Those whose last line is not answered yet."""
        self.stopping = threading.Event()

    def stop(self, *signalled: object) -> None:
        """Take no more requests; `serve` returns when those that were sent are answered."""
        self.stopping.set()

    def serve(self, listens: Callable[[], object] = lambda: None) -> None:
        """Answer requests until `stop` is called; raise MeasurementError where a referee ended.

        listens: is called once clients can connect.
        """
        with listening(self.path) as listener:
            listener.settimeout(POLL_S)
            listens()
            while self.referees.are_alive and not self.stopping.is_set():
                try:
                    connection = Connection(listener.accept()[0], self)
                except TimeoutError:
                    continue
                except OSError:  # as many files are open as may be, until a client goes
                    self.stopping.wait(POLL_S)
                    continue
                self.connections.add(connection)
                connection.start()
        for each in [*self.connections]:
            each.shut(socket.SHUT_RD)
        for each in [*self.connections]:
            each.join()
        self.referees.finish()


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listen on a socket that only this user may connect to; raise BadRequest where another process listens there."""
    with socket.socket(socket.AF_UNIX) as listener:
        if path.is_socket() and not is_answered(path):
            path.unlink()
        try:
            listener.bind(str(path))
        except OSError as error:
            raise BadRequest(f"--serve {path} cannot be used ({error.strerror or error}): give another path") from None
        try:
            path.chmod(0o600)
            listener.listen()
            yield listener
        finally:
            path.unlink(missing_ok=True)


def is_answered(path: Path) -> bool:
    """Tell whether a server listens on a socket."""
    with socket.socket(socket.AF_UNIX) as other:
        return other.connect_ex(str(path)) == 0
