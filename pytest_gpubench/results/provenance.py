"""The provenance of a run: the machine, the installed packages, the time, the commit."""

import importlib.util
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from pytest_gpubench.results.model import CommitInfo
from pytest_gpubench.units import printable

ANSWER_S = 10.0
"""Seconds that a program is given to answer: the status of a large repository on a cold disk takes git several."""
PACKAGES = ("torch", "triton")
TOOLS = (*PACKAGES, "ptxas")
"""The compilers of kernels, by their names in a run's `machine_info`."""

CPUINFO = Path("/proc/cpuinfo")
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""The names of the folders that packages are installed in."""

GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
"""Variables that git sets for its hooks, and that would lead it to another repository than the folder's."""


def machine_info() -> dict[str, Any]:
    """Describe this machine with pytest-benchmark's names, and what compiles kernels, None where missing."""
    return {
        "node": platform.node(),
        "processor": platform.processor(),
        "machine": platform.machine(),
        "python_compiler": platform.python_compiler(),
        "python_implementation": platform.python_implementation(),
        "python_implementation_version": platform.python_version(),
        "python_version": platform.python_version(),
        "python_build": list(platform.python_build()),
        "release": platform.release(),
        "system": platform.system(),
        "cpu": cpu_info(),
        **installed_tools(),
    }


def installed_tools() -> dict[str, str | None]:
    """Return the versions of what compiles kernels, `ptxas` that of Triton's assembler; None where one is missing."""
    from importlib import metadata

    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except Exception:  # not installed, or installed with damaged metadata
            found[name] = None
    return found | {"ptxas": _ptxas_version()}


def now() -> str:
    """Return the time, ISO 8601 with its offset from UTC."""
    return datetime.now(timezone.utc).isoformat()


def moment(text: str) -> datetime:
    """Parse an ISO 8601 time, in UTC if it has no offset; raise ValueError."""
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def minute_text(text: str) -> str:
    """Return the minute of a run's time, `2026-03-01 12:30 UTC`; of any other text its first letters."""
    try:
        return f"{moment(text).astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return text[:16]


def commit_info(folder: Path) -> CommitInfo:
    """Describe the commit that is checked out in a folder, with `error` saying why where that is not known."""
    said, error = _git(folder, "log", "-1", "--format=%H%n%cI%n%aI")
    if error:
        return CommitInfo(project=folder.name, error=error)
    commit, time, author_time = said.split()
    status, no_status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    origin = _git(folder, "config", "remote.origin.url")[0] or _git(folder, "rev-parse", "--show-toplevel")[0]
    return CommitInfo(
        id=commit,
        time=time,
        author_time=author_time,
        dirty=None if no_status else bool(status),
        project=re.split("[/:]", origin.rstrip("/"))[-1].removesuffix(".git"),
        branch=_git(folder, "symbolic-ref", "--short", "-q", "HEAD")[0] or "(detached head)",
    )


def cpu_info() -> dict[str, Any]:
    """Return facts about the CPU, named as in py-cpuinfo."""
    try:
        text = CPUINFO.read_text(errors="replace")
    except OSError:
        text = ""
    found = {}
    for name, key in {"brand_raw": "model name", "vendor_id_raw": "vendor_id"}.items():
        match = re.search(rf"^{key}\s*:\s*(.+?)\s*$", text, re.MULTILINE)
        found[name] = match[1] if match else None
    return {**found, "arch_string_raw": platform.machine(), "count": os.cpu_count()}


def _ptxas_version() -> str | None:
    """Return the version of the assembler that Triton calls: the one that it brings, or that of its variable."""
    try:
        spec = importlib.util.find_spec("triton")  # which imports nothing
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    bundled = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    return _version_of(os.environ.get("TRITON_PTXAS_PATH") or str(bundled))


@cache
def _version_of(program: str) -> str | None:
    """Return the version that a program of CUDA's says; None where it cannot be run or says none."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bV(\d[\d.]*)", done.stdout)
    return found[1] if found else None


def _git(folder: Path, *words: str) -> tuple[str, str]:
    """Return what git answers, and a sentence where it gives no answer."""
    options = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = run_git(folder, "-c", "core.fsmonitor=false", *words, variables=options, timeout_s=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"git cannot be run: {error}"
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"git {words[0]} failed with status {done.returncode}"]
        return "", printable(said[0].removeprefix("fatal: "))
    return done.stdout.strip(), ""


def run_git(
    folder: Path, *words: str, variables: Mapping[str, str] = {}, timeout_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run git in a folder, in English, without the variables that it sets for its hooks, nor what gpg would say."""
    environment = {name: value for name, value in os.environ.items() if name not in GIT_PLACES}
    return subprocess.run(
        ["git", "-c", "log.showSignature=false", *words],
        cwd=folder,
        env={**environment, "LC_ALL": "C", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        encoding="utf-8",
        errors="backslashreplace",
    )
