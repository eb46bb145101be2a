"""Seccomp: forbid system calls to all threads of the candidate's process."""

import ctypes
import os
import platform
import struct

from pytest_gpubench.judge.isolation.libc import PR_SET_NO_NEW_PRIVS, libc, syscall

ALLOW, ERRNO_0, ERRNO_EPERM, ERRNO_ENOSYS = 0x7FFF0000, 0x00050000, 0x00050001, 0x00050026
LOAD, AND, JUMP_EQUAL, JUMP_ABOVE, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER_AT, ARCH_AT, FIRST_AT, SECOND_AT = 0, 4, 16, 24
"""Offsets in struct seccomp_data; of an argument the low half, on a little-endian machine."""
X32_BIT = 0x40000000
CLONE3 = 435
"""A filter cannot read its flags. It seems not to exist, so that the C library calls `clone` instead."""
NEW_NAMESPACES = 0x7E020000
F_SETOWN, F_SETSIG, F_SETOWN_EX = 8, 10, 15
FIOSETOWN, SIOCSPGRP = 0x8901, 0x8902
"""These make a file send any signal to any process."""

FORBIDDEN = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "setsid": 112,
        "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "tkill": 200, "pidfd_open": 434, "pidfd_getfd": 438,
        "pidfd_send_signal": 424, "io_uring_setup": 425, "mount": 165, "umount2": 166, "unshare": 272, "setns": 308,
        "bpf": 321, "perf_event_open": 298, "add_key": 248, "request_key": 249, "keyctl": 250, "userfaultfd": 323,
        "kexec_load": 246, "init_module": 175, "finit_module": 313, "chroot": 161, "reboot": 169, "setpriority": 141,
        "socket": 41, "ioprio_set": 251,
        "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "setsid": 157,
        "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "tkill": 130, "pidfd_open": 434, "pidfd_getfd": 438,
        "pidfd_send_signal": 424, "io_uring_setup": 425, "mount": 40, "umount2": 39, "unshare": 97, "setns": 268,
        "bpf": 280, "perf_event_open": 241, "add_key": 217, "request_key": 218, "keyctl": 219, "userfaultfd": 282,
        "kexec_load": 104, "init_module": 105, "finit_module": 273, "chroot": 51, "reboot": 142, "setpriority": 140,
        "socket": 198, "ioprio_set": 30,
        "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180,
    },
}  # fmt: skip
IGNORED = {
    "x86_64": {
        "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452,
        "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "setpgid": 109,
    },
    "aarch64": {"fchmod": 52, "fchmodat": 53, "fchmodat2": 452, "fchown": 55, "fchownat": 54, "setpgid": 154},
}  # fmt: skip
"""Calls that do nothing and return success, as tools such as ninja fail otherwise.

Landlock does not keep a process from changing the mode of any file; and all processes have to stay in one group.
"""
OWN_PROCESS_ONLY = {
    "x86_64": {
        "kill": 62, "tgkill": 234, "prlimit64": 302, "sched_setaffinity": 203, "sched_setscheduler": 144,
        "sched_setparam": 142, "sched_setattr": 314,
    },
    "aarch64": {
        "kill": 129, "tgkill": 131, "prlimit64": 261, "sched_setaffinity": 122, "sched_setscheduler": 119,
        "sched_setparam": 118, "sched_setattr": 274,
    },
}  # fmt: skip
"""Calls whose first argument is a process: the candidate's own, or 0, which means itself (of `kill`: its group)."""
SECOND_ARGUMENTS = {
    "x86_64": {72: (F_SETOWN, F_SETSIG, F_SETOWN_EX), 16: (FIOSETOWN, SIOCSPGRP)},
    "aarch64": {25: (F_SETOWN, F_SETSIG, F_SETOWN_EX), 29: (FIOSETOWN, SIOCSPGRP)},
}
"""Forbidden second arguments, by system call: those of fcntl and ioctl."""
CLONE = {"x86_64": 56, "aarch64": 220}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SET_MODE_FILTER, ALL_THREADS = 1, 1
SECCOMP = {"x86_64": 317, "aarch64": 277}


def program(machine: str, pid: int) -> bytes:
    """Return the filter: forbidden calls fail with EPERM."""
    rows = [
        _row(LOAD, ARCH_AT),
        _row(JUMP_EQUAL, ARCHITECTURES[machine], 1, 0),
        _row(RETURN, ERRNO_EPERM),
        _row(LOAD, NUMBER_AT),
    ]
    if machine == "x86_64":
        rows += [_row(JUMP_ABOVE, X32_BIT, 0, 1), _row(RETURN, ERRNO_EPERM)]
    for numbers, answer in ((FORBIDDEN, ERRNO_EPERM), (IGNORED, ERRNO_0)):
        for number in numbers[machine].values():
            rows += [_row(JUMP_EQUAL, number, 0, 1), _row(RETURN, answer)]
    for number in OWN_PROCESS_ONLY[machine].values():
        rows += _call(number, [_row(LOAD, FIRST_AT), *_allow(0, pid), _row(RETURN, ERRNO_EPERM)])
    for number, forbidden in SECOND_ARGUMENTS[machine].items():
        rows += _call(number, [_row(LOAD, SECOND_AT), *_forbid(*forbidden), _row(RETURN, ALLOW)])
    rows += _call(CLONE3, [_row(RETURN, ERRNO_ENOSYS)])
    flags = [_row(LOAD, FIRST_AT), _row(AND, NEW_NAMESPACES), _row(JUMP_EQUAL, 0, 1, 0), _row(RETURN, ERRNO_EPERM)]
    rows += _call(CLONE[machine], [*flags, _row(RETURN, ALLOW)])
    return b"".join([*rows, _row(RETURN, ALLOW)])


def _call(number: int, rows: list[bytes]) -> list[bytes]:
    """Return rows for one system call; those after them find its number loaded again."""
    return [_row(JUMP_EQUAL, number, 0, len(rows) + 1), *rows, _row(LOAD, NUMBER_AT)]


def _allow(*values: int) -> list[bytes]:
    return [row for each in values for row in (_row(JUMP_EQUAL, each, 0, 1), _row(RETURN, ALLOW))]


def _forbid(*values: int) -> list[bytes]:
    return [row for each in values for row in (_row(JUMP_EQUAL, each, 0, 1), _row(RETURN, ERRNO_EPERM))]


def _row(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, true, false, value)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict() -> str:
    """Forbid all threads of this process what no candidate needs; raise OSError where that cannot be done."""
    machine = platform.machine()
    if machine not in FORBIDDEN:
        raise OSError(f"no list of system calls for {machine}")
    rows = program(machine, os.getpid())
    given = _Program(len(rows) // 8, rows)
    libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if syscall(SECCOMP[machine], SET_MODE_FILTER, ALL_THREADS, ctypes.byref(given)) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return "network, other processes, new namespaces"
