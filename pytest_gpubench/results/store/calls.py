"""The calls of saved runs: bytes named by what they hold, compressed, each once in a storage folder."""

import hashlib
import hmac
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.files import explaining_os_errors, shown, write_file
from pytest_gpubench.results.store.storage import make_root

FOLDER = "calls"
"""In the storage folder, beside those of the GPU models."""
FOREIGN = (
    "not saved by this user on this machine, and a saved call is code: give --gpu-bench-trust-calls where you trust "
    "who saved it"
)
KEY_BYTES = 32
NEW_S = 86_400.0
"""No run takes longer than this."""
MOST_BYTES = 2**30
"""A call, or an image, has less; a file that says otherwise is not unpacked."""


class CallStore:
    """The calls in a storage folder, with the images of their kernels.

    Each file begins with a code that only who has the user's key can make: so a call that somebody else made is told.
    """

    def __init__(self, storage: Path, key: Path | None = None) -> None:
        state = os.environ.get("XDG_STATE_HOME")
        home = Path(os.path.expanduser("~"))  # which stays as it is for a user without one
        own = (Path(state) if state else home / ".local" / "state") / "pytest-gpubench" / "calls.key"
        self.folder = storage / FOLDER
        self.key = key or own
        """The file of the user's key, which never leaves this machine."""

    def add(self, data: bytes) -> str:
        """Keep bytes, unless they are there, when they count as new; return their name, which is their SHA-256."""
        name = hashlib.sha256(data).hexdigest()
        with suppress(BadFile, OSError):  # it is missing, damaged, or not this user's
            self.read(name)
            os.utime(self.path(name))
            return name
        with explaining_os_errors(self.folder, "written"):
            make_root(self.folder.parent)
        write_file(self._code(name) + zlib.compress(data), self.path(name))
        return name

    def read(self, name: str, trusted: bool = False) -> bytes:
        """Return bytes by their name.

        trusted: True also for what another user, or another machine, has saved. Raises BadFile for that without it, and
        where they are missing or damaged.
        """
        with explaining_os_errors(self.path(name), "read"):
            packed = self.path(name).read_bytes()
        if not (trusted or self.is_own(name)):
            raise BadFile(f"{shown(self.path(name))} was {FOREIGN}")
        try:
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(packed[KEY_BYTES:], MOST_BYTES)
        except zlib.error:
            data = b""
        if hashlib.sha256(data).hexdigest() != name:
            raise BadFile(f"{shown(self.path(name))} is damaged: save the run again")
        return data

    def is_own(self, name: str) -> bool:
        """Tell whether this user has saved what is kept under a name; False too where there can be no key."""
        with suppress(OSError, BadFile), open(self.path(name), "rb") as file:
            return hmac.compare_digest(file.read(KEY_BYTES), self._code(name))
        return False

    def size(self, name: str) -> int:
        """Return how many bytes are kept for a name; 0 where nothing is."""
        with suppress(OSError, BadFile):
            return self.path(name).stat().st_size
        return 0

    def is_new(self, name: str) -> bool:
        """Tell whether it was kept within NEW_S: a run that refers to it may not be saved yet."""
        with suppress(OSError):
            return time.time() - self.path(name).stat().st_mtime < NEW_S
        return False

    def names(self) -> Iterator[str]:
        """Yield the names of what is kept."""
        for path in sorted(self.folder.glob("??/*")):
            name = path.parent.name + path.name
            if is_name(name):
                yield name

    def path(self, name: str) -> Path:
        """Return the file of a name; raise BadFile for what is none."""
        if not is_name(name):
            raise BadFile(f"{name!r:.80} is no name of a saved call: save the run again")
        return self.folder / name[:2] / name[2:]

    def _code(self, name: str) -> bytes:
        return hmac.digest(self._key(), name.encode(), "sha256")

    def _key(self) -> bytes:
        """Return the user's key, which is made at the first use."""
        if not self.key.is_absolute():
            raise BadFile("calls are not saved, as this user has no home for the key to them: set XDG_STATE_HOME")
        with explaining_os_errors(self.key, "read"):
            if not self.key.exists():
                self.key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                temporary = self.key.with_name(f"{self.key.name}.{secrets.token_hex(8)}")
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(secrets.token_bytes(KEY_BYTES))
                try:
                    os.link(temporary, self.key)
                except FileExistsError:  # another process has just made it
                    pass
                finally:
                    temporary.unlink()
            return self.key.read_bytes()


def is_name(text: str) -> bool:
    """Tell whether a text is a SHA-256."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None
