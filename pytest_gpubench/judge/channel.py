"""Messages between the referee and the candidate's process: JSON of bounded length over a socket.

A message of the candidate's process is decoded into `Reply`, which is plain data: decoding runs none of its code.
"""

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

LONGEST_BYTES = 2**22
LONGEST_TEXT = 2000
"""The longest text of a candidate in a judgement: its error, or the end of what it printed."""
HEADER = struct.Struct("<I")
TICK_S = 0.05
"""The time between two checks of the deadline and of memory while waiting for a message."""
Look = Callable[[], object]
"""Is called while parts of a message are missing, or are not read; it may raise."""


class Closed(Exception):
    """Raised when the other side has closed the channel, mostly by ending."""


class Broken(Exception):
    """Raised for an invalid message: too long, no JSON, or with other fields."""


class Leaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Hold a tensor's shape and its place in shared memory."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0


class Layout(msgspec.Struct, frozen=True):
    """Hold where the tensors of a set lie; one set follows another in memory."""

    leaves: tuple[Leaf, ...]
    set_bytes: int
    sets: int

    @property
    def size(self) -> int:
        """The bytes of all sets."""
        return self.set_bytes * self.sets


class Reply(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Hold a message of the candidate's process; all of it may be lies."""

    kind: str
    output: tuple[Any, list[Leaf]] | None = None
    """The structure and the tensors of what a call returned."""
    samples_us: list[float] = []
    tax: float = 0.0
    """The share of these times that tracing added, which is taken off already."""
    kernels: list[tuple[str, int]] = []
    isolation: dict[str, str] = {}
    stage: str = ""
    error: str = ""
    text: str = ""
    trace: str = ""


class Channel:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(
        self, message: Mapping[str, Any] | Reply, descriptors: Sequence[int] = (), look: Look = lambda: None
    ) -> None:
        """Send a message, with open files beside it; raise Closed where nobody can read any more."""
        data = msgspec.json.encode(message)
        data = HEADER.pack(len(data)) + data
        try:
            sent = socket.send_fds(self.socket, [data], descriptors) if descriptors else 0
            while sent < len(data):
                try:
                    sent += self.socket.send(data[sent:])
                except TimeoutError:
                    look()
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, look: Look = lambda: None) -> bytes:
        """Return the next message undecoded."""
        (length,) = HEADER.unpack(self._read(HEADER.size, look))
        if length > LONGEST_BYTES:
            raise Broken(f"a message of {length} bytes")
        return self._read(length, look)

    def receive_files(self, number: int) -> tuple[bytes, list[int]]:
        """Return the next message, which comes with so many open files or with none."""
        head, descriptors, _, _ = socket.recv_fds(self.socket, HEADER.size, number)
        if not head:
            raise Closed
        head += self._read(HEADER.size - len(head), lambda: None)
        return self._read(HEADER.unpack(head)[0], lambda: None), list(descriptors)

    def _read(self, wanted: int, look: Look) -> bytes:
        parts = b""
        while len(parts) < wanted:
            try:
                part = self.socket.recv(wanted - len(parts))
            except TimeoutError:
                look()
                continue
            except OSError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed
            parts += part
            if len(parts) < wanted:
                look()
        return parts


def decode_reply(message: bytes) -> Reply:
    """Return what a message says, or raise Broken."""
    try:
        return msgspec.json.decode(message, type=Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(str(error)[:200]) from None
