"""Judge by request over a socket: JSON lines, one candidate at a time on each GPU, with the processes kept warm.

A request is `{"candidate": path}`, perhaps with `"spec": path` and an `"id"` of any kind. Its answer has the same id
and either a `"judgement"` or an `"error"`, and is sent when it is ready. A connection is read only while there is room
for what waits, so those who ask for more wait in their own `send`.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pytest_gpubench.errors import BadRequest, MeasurementError
from pytest_gpubench.judge.referees import Referees
from pytest_gpubench.results.files import UNREADABLE

LONGEST_LINE = 2**20
POLL_S = 0.1
SEND_S = 10
"""The longest time that an answer waits for a client to read it; after that its connection is closed."""


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
        with suppress(OSError), self._socket.makefile("rb") as lines:
            while rest := (line := lines.readline(LONGEST_LINE)):
                while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):  # what is left is no other request
                    rest = lines.readline(LONGEST_LINE)
                if line.strip():
                    self._ask(line)
                    asked += 1
        for _ in range(asked):
            self._answered.acquire()
        self._close()
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
                self._close()
        self._answered.release()

    def stop_reading(self) -> None:
        """Read no more requests than were sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def _close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


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

    def serve(self) -> None:
        """Answer requests until `stop` is called; raise MeasurementError where a referee ended."""
        with listening(self.path) as listener:
            listener.settimeout(POLL_S)
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
            each.stop_reading()
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
