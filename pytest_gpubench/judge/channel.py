"""Messages between the referee and the candidate's process: JSON over a socket that keeps each message whole.

No message trickles in. One that is longer than a buffer is cut, and decoded like any other.
A message of the candidate's process is decoded into `Reply`, which is plain data: decoding runs none of its code.
"""

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

LONGEST_BYTES = 200_000
"""The size of a socket's buffer, unless the system is told otherwise."""
LONGEST_TEXT = 2000
"""The longest text of a candidate in a judgement: its error, or the end of what it printed."""
LONGEST_KERNEL, MOST_KERNELS = 500, 20
"""The characters of a kernel's name and the kernels that a judgement has."""
TICK_S = 0.05
"""The time between two checks of the deadline and of memory while waiting for a message."""
Look = Callable[[], object]
"""Is called while no message comes, or none is read; it may raise."""
T = TypeVar("T")


class Closed(Exception):
    """Raised when the other side has closed the channel, mostly by ending."""


class Broken(Exception):
    """Raised for a message that is too long, no JSON, or with other fields."""


class Leaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Describe a tensor in shared memory; an output may be memory of an input."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    is_input: bool = False


class Layout(msgspec.Struct, frozen=True):
    """Hold the tensors of a set, and the number of sets; `layout.placed` says where they lie."""

    leaves: tuple[Leaf, ...]
    sets: int = 1


class Reply(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Hold a message of the candidate's process; all of it may be lies."""

    kind: str
    output: tuple[Any, list[Leaf]] | None = None
    """The structure and the tensors of what a call returned."""
    samples_us: list[float] = []
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
        """Send a message, with open files beside it.

        Raises Closed where nobody can read any more, and Broken where it is too long, or is not plain.
        """
        try:
            data = msgspec.json.encode(message)
        except (TypeError, UnicodeEncodeError) as error:  # of a number or text of another class, or a lone surrogate
            raise Broken(str(error)) from None
        if len(data) > LONGEST_BYTES:
            raise Broken(f"a message of {len(data)} bytes: {LONGEST_BYTES} are the most")
        with_files = partial(socket.send_fds, self.socket, [data], descriptors)
        self._do(with_files if descriptors else partial(self.socket.send, data), look)  # a candidate may send no files

    def receive(self, look: Look = lambda: None, files: int = 0) -> tuple[bytes, list[int]]:
        """Return the next message undecoded, and the open files beside it, so many at most."""
        data, descriptors, _, _ = self._do(lambda: socket.recv_fds(self.socket, LONGEST_BYTES, files), look)
        if not data:
            raise Closed
        return data, descriptors

    def _do(self, act: Callable[[], T], look: Look) -> T:
        while True:
            try:
                return act()
            except TimeoutError:
                look()
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    raise Broken("it is longer than a socket holds here (net.core.wmem_default)") from None
                raise Closed(str(error)) from None


def decode_reply(message: bytes) -> Reply:
    """Return what a message says, or raise Broken."""
    try:
        return msgspec.json.decode(message, type=Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(str(error)[:200]) from None
