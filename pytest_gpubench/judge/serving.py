"""Judge by request over a socket: JSON lines, one candidate at a time, with the processes kept warm.

A request is `{"candidate": path}`, perhaps with `"spec": path` and an `"id"` of any kind. Its answer has the same id
and either a `"judgement"` or an `"error"`. Answers to a connection come in the order of its requests. A connection is
read only while the queue has room, so those who ask for more wait in their own `send`.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_gpubench.errors import BadRequest, GpuBenchError

if TYPE_CHECKING:
    from pytest_gpubench.judge.judging import Judge

QUEUED = 16
"""The requests that are read before they can be judged."""
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
    """A client: a thread reads its requests, the server answers."""

    def __init__(self, end: socket.socket, queue: "Queue[tuple[Connection, bytes]]") -> None:
        super().__init__(daemon=True)
        self._socket, self._queue = end, queue
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))

    def run(self) -> None:
        """Queue a line at a time, until the client ends or the server stops reading; an empty one is the last."""
        with suppress(OSError), self._socket.makefile("rb") as lines:
            while line := lines.readline(LONGEST_LINE):
                if line.strip():
                    self._queue.put((self, line))
        self._queue.put((self, b""))

    def answer(self, **answer: Any) -> None:
        """Send a line; a client that is gone, or does not read, loses its connection."""
        try:
            self._socket.sendall(msgspec.json.encode(answer) + b"\n")
        except OSError:
            self.close()

    def stop_reading(self) -> None:
        """Read no more requests than were sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Server:
    """Answers requests with the judgements of one judge."""

    def __init__(self, judge: "Judge", path: Path) -> None:
        self.judge, self.path = judge, path
        self.queue: Queue[tuple[Connection, bytes]] = Queue(maxsize=QUEUED)
        self.connections: set[Connection] = set()
        """Those whose last line is not answered yet."""
        self.stopping = threading.Event()

    def stop(self, *signalled: object) -> None:
        """Take no more requests; `serve` returns when those that were sent are answered."""
        self.stopping.set()

    def serve(self) -> None:
        """Answer requests until `stop` is called."""
        with listening(self.path) as listener:
            accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            accepting.start()
            while not self.stopping.is_set():
                self._answer_next()
            accepting.join()
        for each in self.connections:
            each.stop_reading()
        while self.connections:
            self._answer_next()

    def _accept(self, listener: socket.socket) -> None:
        listener.settimeout(POLL_S)
        while not self.stopping.is_set():
            with suppress(TimeoutError):
                connection = Connection(listener.accept()[0], self.queue)
                self.connections.add(connection)
                connection.start()

    def _answer_next(self) -> None:
        try:
            connection, line = self.queue.get(timeout=POLL_S)
        except Empty:
            return
        if line:
            connection.answer(**self._judged(line))
        else:
            connection.close()
            self.connections.discard(connection)

    def _judged(self, line: bytes) -> dict[str, Any]:
        try:
            request = msgspec.json.decode(line, type=ServedRequest)
        except (msgspec.MsgspecError, RecursionError) as error:
            return {"id": None, "error": f'a request is {{"candidate": path}} in a line: {error}'}
        try:
            self.judge.use_spec(request.spec)
            return {"id": request.id, "judgement": self.judge(Path(request.candidate))}
        except GpuBenchError as error:
            return {"id": request.id, "error": str(error)}


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
