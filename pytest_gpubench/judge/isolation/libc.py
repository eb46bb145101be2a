"""System calls that Python has no function for."""

import ctypes
from functools import cache
from typing import Any

PR_SET_NO_NEW_PRIVS = 38


@cache
def libc() -> Any:
    """Return the C library."""
    return ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: Any) -> int:
    """Make a system call; return -1 for a failure, whose number is ctypes.get_errno()."""
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    libc().syscall.restype = ctypes.c_long
    return int(libc().syscall(ctypes.c_long(number), *given))
