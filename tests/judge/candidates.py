"""Candidates for tests, as the texts of their files; few, as each takes a process."""

WORK = """
import gc, os, signal, socket, time
import torch

def work(x):
    y = x
    for _ in range(4):
        y = torch.tanh(y) + x
    return y
"""

FORGES = (
    "from pytest_gpubench.judge.runner import Runner\nfrom pytest_gpubench.timing.base import Rep\n"
    "end = Runner.end\nRunner.end = lambda self: [Rep(each.elapsed_us / 1000) for each in end(self)]\n"
)
CHEATS = {
    "computes in two of three calls": (
        "calls = []\ndef candidate(x):\n    calls.append(0)\n"
        "    return work(x) if len(calls) < 12 or len(calls) % 3 else torch.zeros_like(x)"
    ),
    "computes in the untimed call what a timed one returns": (
        "from pytest_gpubench.judge.runner import Runner\napproach, kept = Runner.approach, {}\n"
        "def ahead(runner, index):\n    approach(runner, index)\n"
        "    (x,) = runner.sets[index]\n    kept[x.data_ptr()] = work(x)\n"
        "Runner.approach = ahead\n"
        "def candidate(x):\n    return kept.pop(x.data_ptr()) if x.data_ptr() in kept else work(x)"
    ),
}
"""Candidates that do not do their work in timed calls, and are wrong whatever the clocks say."""
LEFT_BEHIND = {
    "its first process ends, and a child answers": (
        "crash",
        "from pytest_gpubench.judge.worker import Worker\nanswer = Worker.answer\n"
        "def answering(worker, message, files):\n"
        "    if message['do'] == 'warm' and os.fork() == 0: time.sleep(0.1)\n"
        "    elif message['do'] == 'warm': os._exit(0)\n"
        "    answer(worker, message, files)\n"
        "Worker.answer = answering\ncandidate = work",
    ),
    "children of every kind": (
        "",
        "import ctypes, platform\nlibc = ctypes.CDLL(None)\n"
        "def sleep():\n    time.sleep(1000); os._exit(0)\n"
        "def clone(flags):\n    return libc.syscall(*[ctypes.c_long(each) for each in ("
        "{'x86_64': 56, 'aarch64': 220}[platform.machine()], flags, 0, 0, 0, 0)])\n"
        "for flags in (signal.SIGCHLD, 0x8000 | signal.SIGCHLD, 0):\n    clone(flags) or sleep()\n"
        "if clone(signal.SIGCHLD) == 0:\n    clone(signal.SIGCHLD) or sleep()\n    os._exit(0)\n"
        "candidate = work",
    ),
}
"""Candidates with other processes than the first, and their statuses; "" for that of an honest one."""
CLAIMS = f"{FORGES}candidate = work"
"""A candidate whose process claims times that it does not take."""

REACHES_OUT = """
import ctypes, errno, fcntl, mmap, platform, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
at = ("x86_64", "aarch64").index(platform.machine())
pipe = os.pipe()
pairs = [socket.socketpair(type=kind) for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]
os.kill(os.getpid(), 0)
ON_ANY = "ptrace process_vm_readv process_vm_writev setpriority unshare setns shmget shmat shmctl".split()
ON_ANY += "semget semop semctl semtimedop msgget msgsnd msgrcv msgctl".split()
ON_ANY += "tkill keyctl io_uring_setup pidfd_open pidfd_getfd pidfd_send_signal".split()
ON_PARENT = "kill tgkill prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr".split()
NUMBERS = {
    "clone": (56, 220), "tkill": (200, 130), "keyctl": (250, 219), "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "sched_setattr": (314, 274),
}

def call(name, *arguments):
    numbers = [NUMBERS[name][at]] if name in NUMBERS else []
    function = libc.syscall if numbers else libc[name]
    if function(*map(ctypes.c_long, (*numbers, *arguments))) < 0: raise OSError(ctypes.get_errno(), '')

def refused(attempt):
    try:
        attempt()
    except OSError as error:
        return isinstance(error, PermissionError) or error.errno == errno.ENOSYS

ATTEMPTS = {
    "kill the parent": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "stop the parent's group": lambda: os.killpg(os.getpgid(os.getppid()), signal.SIGSTOP),
    "read the parent's memory": lambda: open(f"/proc/{os.getppid()}/mem", "rb").read(1),
    "read the parent's environment": lambda: open(f"/proc/{os.getppid()}/environ").read(),
    "reach a service of this machine": lambda: socket.socket(socket.AF_UNIX),
    "write to a service of this machine": lambda: socket.socketpair(type=socket.SOCK_DGRAM),
    "write to one in another way": lambda: socket.socketpair(type=socket.SOCK_RAW),
    "leave something in shared memory": lambda: open("/dev/shm/gpu_bench_was_here", "w"),
    "open a terminal": lambda: os.open("/dev/ptmx", os.O_RDWR),
    "write elsewhere": lambda: open("/tmp/gpu_bench_was_here", "w"),
    "read elsewhere": lambda: os.listdir("/tmp"),
    "let a pipe kill the parent": lambda: fcntl.fcntl(pipe[0], fcntl.F_SETOWN, os.getppid()),
    "let a pipe send any signal": lambda: fcntl.fcntl(pipe[0], 10, signal.SIGKILL),
    "enlarge a pipe": lambda: fcntl.fcntl(pipe[0], 1031, 2**20),
    "enlarge a socket": lambda: pairs[0][0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20),
    "send files": lambda: socket.send_fds(pairs[0][0], [b"x"], [0]),
    "make a file in memory": lambda: os.memfd_create("gpu_bench"),
    "keep pages in a pipe": lambda: os.splice(0, pipe[1], 1),
    "read secrets of services": lambda: os.listdir("/run"),
    "start a process in a new namespace": lambda: call("clone", 0x10000000 | signal.SIGCHLD, 0),
    **{name: lambda each=name: call(each, os.getppid(), 0, 0, 0) for name in ON_PARENT},
    **{name: lambda each=name: call(each, -1, 0, 0, 0, 0, 0) for name in ON_ANY},
}
if not torch.cuda.is_available():
    ATTEMPTS["share memory"] = lambda: mmap.mmap(-1, 2**12)
    ATTEMPTS["share memory by a device"] = lambda: os.open("/dev/zero", os.O_RDWR)
found = [name for name, attempt in ATTEMPTS.items() if not refused(attempt)]
secret = ("Spec", "Trial", "Limits", "Reference")
found += [type(each).__name__ for each in gc.get_objects() if type(each).__name__ in secret]
open("own", "w")
os.chmod("own", 0)
os.utime("own", (5, 5))
os.setxattr("own", "user.gpu_bench", b"")
found += [] if os.stat("own").st_mode & 0o777 else ["close files"]
found += ["date files"] if os.stat("own").st_mtime == 5 else []
found += [f"name files {name}" for name in os.listxattr("own")]
group = os.getpgid(0)
child = subprocess.Popen(["sleep", "0"], process_group=0) if sys.version_info >= (3, 11) else subprocess.Popen(["true"])
found += [] if os.getpgid(child.pid) == group else ["leave the group"]
child.wait()
found += [] if subprocess.run(["true"]).returncode == 0 else ["no process of its own"]
import tempfile
places = [tempfile.gettempdir(), os.environ["HOME"], os.environ["TRITON_CACHE_DIR"]]
found += [f"know of {each}" for each in places if not each.startswith(os.getcwd())]
if found:
    raise SystemExit(f"could: {', '.join(found)}")

def candidate(x):
    out = work(x.view(100, -1)).view(-1)
    x.fill_(0)
    return out
"""
"""Attempts that have to fail; then it does its work, and overwrites its inputs."""


def text_of(body: str) -> str:
    """Return the text of a candidate's file."""
    return f"{WORK}\n{body}\n"
