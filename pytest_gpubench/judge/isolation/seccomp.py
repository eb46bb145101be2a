"""Seccomp: forbid system calls to all threads of the candidate's process."""

import ctypes
import os
import platform
import struct

from pytest_gpubench.judge.isolation.libc import PR_SET_NO_NEW_PRIVS, libc, syscall

ALLOW, ERRNO_0, ERRNO_EPERM, ERRNO_ENOSYS = 0x7FFF0000, 0x00050000, 0x00050001, 0x00050026
LOAD, AND, JUMP_EQUAL, JUMP_FROM, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER_AT, ARCH_AT, FIRST_AT, SECOND_AT, THIRD_AT, FOURTH_AT = 0, 4, 16, 24, 32, 40
"""Offsets in struct seccomp_data; of an argument the low half, on a little-endian machine."""
FIRST_UNKNOWN = 450
"""Later calls, and those of x32, seem not to exist, as on Linux 5.16: libraries do without them."""
NEW_NAMESPACES = 0x7E020000
F_SETOWN, F_SETSIG, F_SETOWN_EX, FIOSETOWN, SIOCSPGRP = 8, 10, 15, 0x8901, 0x8902
"""These make a file send any signal to any process."""
F_SETPIPE_SZ, SO_SNDBUF, SO_SNDBUFFORCE = 1031, 7, 32
"""These let a pipe or a socket hold more."""
MAP_SHARED_ANONYMOUS = 0x21

MACHINES = ("x86_64", "aarch64")
"""Each row below has the numbers of both; None for a call that one of them lacks."""
FORBIDDEN = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "setsid": (112, 157),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "tkill": (200, 130), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "io_uring_setup": (425, 425), "mount": (165, 40),
    "umount2": (166, 39), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "userfaultfd": (323, 282),
    "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273), "chroot": (161, 51),
    "reboot": (169, 142), "setpriority": (141, 140), "socket": (41, 198), "ioprio_set": (251, 30),
    # memory, semaphores and queues that are named by a number or outlive a process, to make, use or remove
    "shmget": (29, 194), "shmctl": (31, 195), "shmat": (30, 196), "semget": (64, 190), "semctl": (66, 191),
    "semtimedop": (220, 192), "semop": (65, 193), "msgget": (68, 186), "msgctl": (71, 187), "msgrcv": (70, 188),
    "msgsnd": (69, 189), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "sendmsg": (46, 211), "sendmmsg": (307, 269),  # files that are sent belong to no process until they are received
}  # fmt: skip
ABSENT = {
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "splice": (275, 76), "tee": (276, 77),
    "vmsplice": (278, 75), "clone3": (435, 435),
}  # fmt: skip
"""Calls that seem not to exist, so that libraries do without them.

Files in memory have no folder, and pages that a pipe refers to no process. A filter cannot read the flags of `clone3`:
the C library calls `clone` instead.
"""
IGNORED = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setpgid": (109, 154),
}  # fmt: skip
"""Calls that do nothing and return success, as tools such as ninja fail otherwise.

Landlock does not keep a process from changing what a file is but for its contents: mode, owner, times and attributes of
any file of its user. And all processes have to stay in one group.
"""
OWN_PROCESS_ONLY = {
    "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
}  # fmt: skip
"""Calls whose first argument is a process: the candidate's own, or 0, which means itself (of `kill`: its group)."""
ARGUMENTS = {
    "fcntl": (SECOND_AT, (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETPIPE_SZ)),
    "ioctl": (SECOND_AT, (FIOSETOWN, SIOCSPGRP)),
    "setsockopt": (THIRD_AT, (SO_SNDBUF, SO_SNDBUFFORCE)),
}
"""Arguments that are forbidden, and their places."""
CONNECTED = (1, 5)
"""Kinds of a pair of sockets that stays one: a datagram of any other can be sent to each service of the machine."""
OTHERS = {
    "fcntl": (72, 25), "ioctl": (16, 29), "clone": (56, 220), "seccomp": (317, 277), "socketpair": (53, 199),
    "setsockopt": (54, 208), "mmap": (9, 222),
}  # fmt: skip
ARCHITECTURES = (0xC000003E, 0xC00000B7)
SET_MODE_FILTER, ALL_THREADS = 1, 1


def program(machine: str, pid: int, shares_memory: bool) -> bytes:
    """Return the filter: forbidden calls fail with EPERM.

    shares_memory: allow memory that is shared without a file, which CUDA needs: it is left when no process maps it.
    """
    at = MACHINES.index(machine)
    rows = [
        _row(LOAD, ARCH_AT),
        _row(JUMP_EQUAL, ARCHITECTURES[at], 1, 0),
        _row(RETURN, ERRNO_EPERM),
        _row(LOAD, NUMBER_AT),
        _row(JUMP_FROM, FIRST_UNKNOWN, 0, 1),
        _row(RETURN, ERRNO_ENOSYS),
    ]
    for table, answer in ((FORBIDDEN, ERRNO_EPERM), (ABSENT, ERRNO_ENOSYS), (IGNORED, ERRNO_0)):
        rows += _answer(answer, *(each[at] for each in table.values()))
    for numbers in OWN_PROCESS_ONLY.values():
        rows += _call(numbers[at], [_row(LOAD, FIRST_AT), *_answer(ALLOW, 0, pid), _row(RETURN, ERRNO_EPERM)])
    for name, (place, forbidden) in ARGUMENTS.items():
        rows += _call(OTHERS[name][at], [_row(LOAD, place), *_answer(ERRNO_EPERM, *forbidden), _row(RETURN, ALLOW)])
    kind = [_row(LOAD, SECOND_AT), _row(AND, 0xF), *_answer(ALLOW, *CONNECTED), _row(RETURN, ERRNO_EPERM)]
    rows += _call(OTHERS["socketpair"][at], kind)
    flags = [_row(LOAD, FIRST_AT), _row(AND, NEW_NAMESPACES), *_answer(ALLOW, 0), _row(RETURN, ERRNO_EPERM)]
    rows += _call(OTHERS["clone"][at], flags)
    if not shares_memory:
        flags = [_row(LOAD, FOURTH_AT), _row(AND, MAP_SHARED_ANONYMOUS), *_answer(ERRNO_EPERM, MAP_SHARED_ANONYMOUS)]
        rows += _call(OTHERS["mmap"][at], [*flags, _row(RETURN, ALLOW)])
    return b"".join([*rows, _row(RETURN, ALLOW)])


def _call(number: int, rows: list[bytes]) -> list[bytes]:
    """Return rows for one system call; those after them find its number loaded again."""
    return [_row(JUMP_EQUAL, number, 0, len(rows) + 1), *rows, _row(LOAD, NUMBER_AT)]


def _answer(answer: int, *values: int | None) -> list[bytes]:
    """Return rows that answer so where one of these values is loaded."""
    known = [each for each in values if each is not None]
    return [row for each in known for row in (_row(JUMP_EQUAL, each, 0, 1), _row(RETURN, answer))]


def _row(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, true, false, value)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict(shares_memory: bool) -> str:
    """Forbid all threads of this process what no candidate needs; raise OSError where that cannot be done."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(f"no list of system calls for {machine}")
    rows = program(machine, os.getpid(), shares_memory)
    given = _Program(len(rows) // 8, rows)
    libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if syscall(OTHERS["seccomp"][MACHINES.index(machine)], SET_MODE_FILTER, ALL_THREADS, ctypes.byref(given)) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return "network, other processes, new namespaces"
