"""Landlock (Linux 5.13): a process without privileges limits itself to some folders."""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from pytest_gpubench.judge.isolation.libc import PR_SET_NO_NEW_PRIVS, libc, syscall

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls, the same on all architectures."""
VERSION_FLAG = 1
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
READING = EXECUTE | READ_FILE | READ_DIR
FILE_ONLY = EXECUTE | WRITE_FILE | READ_FILE
ALL_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
TCP = 3
"""Binding and connecting, from version 4 on; no rule allows either."""
SCOPES = 3
"""Abstract sockets and signals, from version 6 on."""


def version() -> int:
    """Return the version of Landlock that the kernel has; 0 for none."""
    return max(0, syscall(CREATE_RULESET, None, 0, VERSION_FLAG))


def restrict(readable: Iterable[Path], writable: Iterable[Path]) -> str:
    """Limit this process to these folders; return what is limited. Raises OSError where that cannot be done."""
    abi = version()
    if not abi:
        raise OSError("the kernel has no Landlock")
    files = ALL_BY_ABI[min(abi, 3)]
    attributes = struct.pack("<QQQ", files, TCP if abi >= 4 else 0, SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = syscall(CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        for path in readable:
            _allow(ruleset, path, READING & files)
        for path in writable:
            _allow(ruleset, path, files)
        libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if syscall(RESTRICT_SELF, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    limited = ["files", *(["TCP"] if abi >= 4 else []), *(["signals"] if abi >= 6 else [])]
    return f"{', '.join(limited)} (version {abi})"


def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Allow a folder or file, if it exists."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            rights &= FILE_ONLY
        if syscall(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("<Qi", rights, descriptor), 0) != 0:
            raise OSError(ctypes.get_errno(), f"landlock_add_rule: {path}")
    finally:
        os.close(descriptor)
