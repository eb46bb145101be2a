"""Isolation of the candidate's process, as far as the kernel allows it without privileges."""

import ctypes
import os
import platform
import resource
import site
import sys
import sysconfig
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_gpubench.judge.isolation import landlock, seccomp
from pytest_gpubench.judge.isolation.libc import libc, syscall
from pytest_gpubench.results.provenance import INSTALLED

PACKAGE = Path(__file__).parents[2]
SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/nix", "/dev/zero"),
    *("/run/nvidia", "/run/opengl-driver", "/run/current-system"),
)
"""Of /run only what drivers and Nix have there: secrets are mounted in it too."""
WRITTEN = ("/proc/self", "/dev/null", "/dev/full", "/dev/random", "/dev/urandom", "/dev/dxg")
"""CUDA names its threads in /proc/self. No terminals, discs or shared memory of /dev: the last outlives a process."""
REQUIRED = ("msgspec", "torch")
"""Packages without which there is no referee. In a folder of `pip install --target` the others lie beside them."""
LARGEST_FILE = 2**30
MOST_FILES = 4096
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, SIGKILL = 1, 4, 9
ALLOCATION = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:False")
"""Expandable segments have no handle that CUDA IPC knows."""
CAPSET = {"x86_64": 126, "aarch64": 91}
NOT_AVAILABLE = "not available"


def limit_files(wanted: Mapping[str, Any]) -> str:
    """Let this process read and write only some files, in threads that it starts later; return what is limited.

    wanted: its own folder `box`, `folders` from which the referee's process loaded libraries, `device_files` of a GPU's
    driver.
    """
    read = [*_readable_folders(), *map(Path, wanted["folders"])]
    shared = ["/dev/zero"] if wanted["device_files"] else []  # a mapping of it is memory of no process
    written = map(Path, (wanted["box"], *WRITTEN, *wanted["device_files"], *shared))
    libc().prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel ends it first if memory runs out
    return _limited(lambda: landlock.restrict(read, written))


def limit_all(data_bytes: int | None) -> dict[str, str]:
    """Set the other limits on this process, once all is loaded that they would forbid; return what each part limits.

    data_bytes: the memory that it may take; None on a GPU, where CUDA reserves addresses for all of it.
    """
    parts: dict[str, Callable[[], str]] = {"limits": partial(_set_limits, data_bytes)}
    parts |= {"capabilities": _drop_capabilities, "seccomp": partial(seccomp.restrict, data_bytes is None)}
    return {name: _limited(limit) for name, limit in parts.items()}


def _limited(limit: Callable[[], str]) -> str:
    try:
        return limit()
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return f"{NOT_AVAILABLE}: {error}"[:200]


def _set_limits(data_bytes: int | None) -> str:
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: LARGEST_FILE, resource.RLIMIT_NOFILE: MOST_FILES}
    if data_bytes is not None:
        lines = Path("/proc/self/status").read_text().splitlines()  # what it has already, as RLIMIT_DATA counts it
        own_kib = next((int(line.split()[1]) for line in lines if line.startswith("VmData:")), 0)
        limits[resource.RLIMIT_DATA] = data_bytes + 1024 * own_kib
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    return "files, core dumps" + (", memory" if data_bytes is not None else "")


def _readable_folders() -> list[Path]:
    """Return the folders that a process needs to import and to compile; the spec's folder is none of them."""
    standard = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "include")]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    named = [*SYSTEM, *libraries, *prefixes, *filter(_holds_packages, sys.path), *standard]
    return [PACKAGE, *(Path(each) for each in dict.fromkeys(named) if each and Path(each) != Path("/"))]


def _holds_packages(folder: str) -> bool:
    """Tell whether packages are installed in a folder: by its name, or as msgspec or torch is imported from it.

    A project that only has folders of those names may have a spec too.
    """
    found = [
        os.path.realpath(Path(each.origin).parents[1]) for each in map(find_spec, REQUIRED) if each and each.origin
    ]
    return Path(folder).name in INSTALLED or os.path.realpath(folder) in found


def library_folders() -> list[str]:
    """Return the folders from which this process loaded shared libraries: drivers lie in many places."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    folders = {os.path.dirname(line.split(maxsplit=5)[5]) for line in lines if ".so" in line and "/" in line}
    own = os.getcwd()  # a spec may lie there, beside a library of its own
    return sorted(each for each in folders - {"/"} if not f"{each}/".startswith(f"{own}/"))


def _drop_capabilities() -> str:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    if syscall(CAPSET[platform.machine()], ctypes.byref(header), ctypes.byref(none)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    return "none left"


def hide_memory(hidden: bool) -> None:
    """Hide this process's memory from the user's other processes, or show it."""
    libc().prctl(PR_SET_DUMPABLE, 0 if hidden else 1, 0, 0, 0)


def environment(box: Path) -> dict[str, str]:
    """Return the environment of the candidate's process: folders of its own, and only what it needs."""
    kept = (
        *("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "VIRTUAL_ENV"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CC", "CXX"),
    )
    begun = ("CUDA", "NVIDIA", "TRITON_PTXAS", "TRITON_INTERPRET", "TORCH_CUDA")
    found = {name: value for name, value in os.environ.items() if name in kept or name.startswith(begun)}
    own = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME")
    folders = {name: str(box / name.lower().removesuffix("_dir")) for name in own}
    searched = [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    python = {
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *filter(_holds_packages, searched)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "USER": "candidate",
    }
    # the user's folder of packages by itself depends on HOME
    python |= {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {"PYTHONNOUSERSITE": "1"}
    return found | folders | python | ALLOCATION | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
