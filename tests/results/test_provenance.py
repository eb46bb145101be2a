"""Facts about machine and commit; missing ones are reported, and no error is raised."""

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpubench.results.model import CommitInfo
from pytest_gpubench.results.provenance import commit_info, machine_info

ALONE = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": "2026-03-01T10:59:00+01:00",
    "GIT_COMMITTER_DATE": "2026-03-01T11:00:00+01:00",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(folder: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env={**clean, **ALONE}, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, on the branch `fast/softmax`."""
    folder = tmp_path / "my-kernels"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "checkout", "-q", "-b", "fast/softmax")
    (folder / "kernel.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Begin")
    return folder


def program(path: Path, script: str) -> str:
    """Write a program of the shell, and return its folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path.parent)


# the machine


def test_machine_info_is_that_of_pytest_benchmark_and_more() -> None:
    plugin = pytest.importorskip("pytest_benchmark.plugin")
    real, ours = plugin.pytest_benchmark_generate_machine_info(), machine_info()
    assert ours.keys() == {*real, "torch", "triton", "ptxas"}
    assert json.loads(json.dumps(ours)) == ours
    same = real.keys() - {"cpu", "python_build"}
    assert {name: ours[name] for name in same} == {name: real[name] for name in same}
    assert ours["cpu"].keys() <= {*real["cpu"], "brand_raw", "vendor_id_raw"}
    assert (ours["torch"], ours["cpu"]["count"]) == (metadata.version("torch"), os.cpu_count())


def test_machine_info_imports_nothing_heavy() -> None:
    code = "import sys; from pytest_gpubench.results.provenance import *; machine_info(); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"torch", "triton", "cpuinfo", "pytest"} & set(loaded)


def replace_cpuinfo(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    real = Path.read_text

    def read_text(self: Path, *args: Any, **options: Any) -> str:
        return real(path if self == Path("/proc/cpuinfo") else self, *args, **options)

    monkeypatch.setattr(Path, "read_text", read_text)


def test_what_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    replace_cpuinfo(monkeypatch, tmp_path / "cpuinfo")
    info = machine_info()
    assert (info["torch"], info["triton"], info["cpu"]["brand_raw"]) == (None, None, None)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'Cuda compilation tools, release 12.9, V12.9.86'", "12.9.86"),
        ("echo nothing", None),
        ("exit 3", None),
        (None, None),
    ],
)
def test_the_version_of_ptxas_is_what_it_says(
    script: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if script is not None:
        program(tmp_path / "ptxas", script)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "ptxas"))
    assert machine_info()["ptxas"] == found


def test_the_cpu_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_bytes(
        b"processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 85\nmodel name\t: Xeon \xff 8 \n\nprocessor: 1"
    )
    replace_cpuinfo(monkeypatch, path)
    cpu = machine_info()["cpu"]
    assert (cpu["brand_raw"], cpu["vendor_id_raw"]) == ("Xeon \N{REPLACEMENT CHARACTER} 8", "GenuineIntel")


# the commit


def test_a_commit(repository: Path) -> None:
    assert commit_info(repository) == CommitInfo(
        id=git(repository, "rev-parse", "HEAD"),
        time="2026-03-01T11:00:00+01:00",
        author_time="2026-03-01T10:59:00+01:00",
        dirty=False,
        project="my-kernels",
        branch="fast/softmax",
    )
    (repository / "tests").mkdir()
    assert commit_info(repository / "tests") == commit_info(repository)
    (repository / "notes.txt").write_text("new")
    assert commit_info(repository).dirty is False
    (repository / "kernel.py").write_text("x = 2\n")
    git(repository, "checkout", "-q", "--detach")
    found = commit_info(repository)
    assert (found.dirty, found.branch) == (True, "(detached head)")


@pytest.mark.parametrize(
    ("url", "project"),
    [
        ("https://user:secret@example.org/team/softmax.git", "softmax"),
        ("git@example.org:softmax.git", "softmax"),
        ("/srv/git/softmax/", "softmax"),
        ("https://example.org/team/git.tools", "git.tools"),
    ],
)
def test_the_project_is_named_by_its_remote(repository: Path, url: str, project: str) -> None:
    git(repository, "remote", "add", "origin", url)
    assert commit_info(repository).project == project


def test_a_hook_of_another_repository_does_not_mislead(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git tells its hooks, and pytest run by one, which repository they belong to."""
    expected = commit_info(repository)
    git(tmp_path, "init", "-q")
    for name, path in {"DIR": ".git", "WORK_TREE": "", "INDEX_FILE": ".git/index"}.items():
        monkeypatch.setenv(f"GIT_{name}", str(tmp_path / path))
    assert commit_info(repository) == expected


def test_a_signature_that_is_shown_does_not_mislead(repository: Path, tmp_path: Path) -> None:
    """With log.showSignature git puts what gpg says before everything else."""
    program(tmp_path / "gpg", "echo 'gpg: Good signature' >&2")
    head, _, message = git(repository, "cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n AAAA\n -----END PGP SIGNATURE-----"
    signed = tmp_path / "signed"
    signed.write_text(f"{head}\n{signature}\n\n{message}\n")
    commit = git(repository, "hash-object", "-t", "commit", "-w", str(signed))
    git(repository, "reset", "-q", "--hard", commit)
    for name, value in {"gpg.program": f"{tmp_path}/gpg", "log.showSignature": "true", "color.ui": "always"}.items():
        git(repository, "config", name, value)
    assert "gpg" in git(repository, "log", "-1")
    assert commit_info(repository).id == commit


# no commit


@pytest.mark.parametrize(
    ("has_repository", "why"), [(False, "not a git repository"), (True, "does not have any commits yet")]
)
def test_no_commit(has_repository: bool, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    if has_repository:
        git(tmp_path, "init", "-q")
    info = commit_info(tmp_path)
    assert info == CommitInfo(project=tmp_path.name, error=info.error)
    assert why in str(info.error)
    assert "\n" not in str(info.error)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("", "git cannot be run: [Errno 2] No such file or directory: 'git'"),
        ("exit 3", "git log failed with status 3"),
        ("printf '\\033[31mred\\nsecond' >&2; exit 1", "\\x1b[31mred"),
        ("printf '\\377\\376' >&2; exit 1", "\\xff\\xfe"),
    ],
)
def test_git_is_strange_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, error: str) -> None:
    monkeypatch.setenv("PATH", program(tmp_path / "bin" / "git", script) if script else str(tmp_path))
    assert commit_info(tmp_path) == CommitInfo(project=tmp_path.name, error=error)


def test_git_takes_too_long(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten seconds here hardly any pass."""
    run = subprocess.run

    def run_for_a_moment(*args: Any, timeout: float, **options: Any) -> object:
        assert timeout == 10
        return run(["/bin/sleep", "60"], timeout=0.01, **options)

    monkeypatch.setattr(subprocess, "run", run_for_a_moment)
    assert str(commit_info(repository).error).endswith("timed out after 0.01 seconds")


def test_a_status_that_fails_leaves_the_rest(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = commit_info(repository)
    script = f'case "$*" in *status*) exit 1;; esac; exec {shutil.which("git")} "$@"'
    monkeypatch.setenv("PATH", program(tmp_path / "bin" / "git", script))
    assert commit_info(repository) == msgspec.structs.replace(expected, dirty=None)
