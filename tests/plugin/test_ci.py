"""The CI recipes of the pages: main saves runs, pull requests are compared with them."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from pytest_gpubench.results.store import read_run
from tests.docs.pages import TEXTS
from tests.plugin.conftest import HEAD
from tests.plugin.saving import COMPARES


def recipes(page: str) -> list[str]:
    """Return the command lines of pytest in the first recipe of a page: what main runs, and what pull requests run."""
    recipe = next(
        block for block in re.findall(r"```yaml\n(.*?)```", TEXTS[page], re.DOTALL) if "pull_request" in block
    )
    joined = re.sub(r">-\n\s+|\n\s+(?=--)", " ", recipe)
    return re.findall(r"bin/(pytest -m perf .*)", joined)


class Project:
    """A checkout that is cleaned before each job, and a storage that is not."""

    def __init__(self, pytester: pytest.Pytester, storage: Path) -> None:
        self.pytester, self.storage = pytester, storage

    def job(self, command: str) -> tuple[int, str]:
        """Return the exit status of a job, and pytest's last line, or its error; the CPU stands for a GPU."""
        for path in self.pytester.path.iterdir():
            path.unlink() if path.is_file() else shutil.rmtree(path)
        self.pytester.makepyfile(HEAD + COMPARES)
        words = shlex.split(command.replace("--gpu-bench-require-gpu", "--gpu-bench-device=cpu"))[1:]
        result = self.pytester.runpytest("-p", "no:benchmark", "--gpu-bench-timer=scripted", *words)
        return int(result.ret), result.stdout.lines[-1] if result.stdout.lines else result.stderr.lines[0]


def test_a_pull_request_is_green_only_where_it_was_judged(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / "storage"
    monkeypatch.setenv("GPU_BENCH_STORAGE", str(storage))
    main, pull_request = recipes("ci")
    project = Project(pytester, storage)

    def outcomes(command: str) -> tuple[int, str]:
        status, line = project.job(command)
        return status, re.sub(r"^=+ | in [\d.]+s.*", "", line)

    status, error = outcomes(pull_request)  # an empty storage
    assert (status, str(storage) in error, "--gpu-bench-missing-baseline=ignore" in error) == (4, True, True)
    assert outcomes(main) == (0, "1 passed")  # the first run
    assert outcomes(pull_request) == (0, "1 passed")
    monkeypatch.setenv("FACTOR", "1.2")
    assert outcomes(pull_request) == (1, "1 failed")  # a regression
    (path,) = storage.glob("*/*.json")
    monkeypatch.setenv("FACTOR", "1")
    name = read_run(path).records[0].device.name
    path.write_text(path.read_text().replace(name, "NVIDIA X1"))
    assert outcomes(pull_request) == (1, "1 failed")  # another GPU
