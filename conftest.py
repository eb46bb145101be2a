import compileall
import functools
import gc
import importlib.metadata
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import _pytest.pytester
import hypothesis.core
import pytest
from hypothesis import HealthCheck, settings

from tests import fork_server

pytest_plugins = ["pytester"]

EXAMPLES = 50 if "CI" in os.environ else 25
settings.register_profile(  # no test of ours asserts a wall time
    "gpubench", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=EXAMPLES
)
settings.load_profile("gpubench")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # pytest rewrites the package and our tests once, not in each process
sys.dont_write_bytecode = False
os.environ.setdefault("OMP_NUM_THREADS", "1")  # our tensors are small: threads of torch's would wait for each other


IMPORTABLE = tuple(path for path in sys.path if path)
"""Where packages lie that stay imported when an inner run ends: torch and sympy cannot be imported twice."""


def pytest_configure() -> None:
    """Compile the package once for every process of the tests; ignore no signal that the background of a shell does."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        compileall.compile_dir(Path(__file__).parent / "pytest_gpubench", quiet=2)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Keep no bytecode of what tests write, and let the garbage collector pass over what is imported."""
    # a test file that is written twice in a second would be read from the bytecode of the first
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    gc.collect()  # with torch in memory each later collection would take a third of a second
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let Triton's bindings be collected at the end: they report as leaked what is not."""
    gc.unfreeze()


def is_importable_without_the_inner_run(name: str) -> bool:
    """Tell whether a module is of a package that lies elsewhere than the tests of an inner run."""
    package = sys.modules.get(name.partition(".")[0])
    return (getattr(package, "__file__", None) or "").startswith(IMPORTABLE)


class Snapshot(_pytest.pytester.SysModulesSnapshot):
    def __init__(self, preserve: Callable[[str], bool] | None = None) -> None:
        super().__init__(is_importable_without_the_inner_run)


@functools.cache
def distributions_of_plugins() -> list[importlib.metadata.Distribution]:
    """Return what an inner run looks through for pytest's plugins: there are many more without one."""
    found = importlib.metadata.distributions()
    return [each for each in found if any(point.group == "pytest11" for point in each.entry_points)]


@pytest.fixture(autouse=True)
def imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pytest.pytester, "SysModulesSnapshot", Snapshot)
    plugins = distributions_of_plugins()
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: plugins)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork Python's processes, xdist workers too, from one in which torch and our plugin are imported."""
    monkeypatch.setattr("subprocess.Popen", fork_server.PopenWithTorch)


@pytest.fixture
def name_cpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give the CPU another name: where lines are broken, and how wide columns are, depends on it."""
    from pytest_gpubench.gpu.device import cpu_device

    def name_it(name: str) -> None:
        monkeypatch.setattr("pytest_gpubench.gpu.device.cpu_info", lambda: {"brand_raw": name})
        monkeypatch.setattr("pytest_gpubench.gpu.device.cpu_device", cpu_device.__wrapped__)  # which is kept

    return name_it


@pytest.fixture
def quick_collection() -> None:
    """Let each collection of garbage that the test asks for pass over what there is by now."""
    gc.freeze()


@pytest.fixture(autouse=True)
def hypothesis_as_it_was() -> Iterator[None]:
    """Take back what an inner run leaves behind: its profile, and the seed of --hypothesis-seed."""
    seed = hypothesis.core.global_force_seed
    yield
    settings.load_profile("gpubench")
    hypothesis.core.global_force_seed = seed


@pytest.fixture(autouse=True)
def same_output_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let nothing hang on where the tests run: our settings and storage, what pytest says on CI, colours and width.

    Each process of the tests has a temp folder of its own, and so the locks of devices in it.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr(tempfile, "tempdir", None)
    told = {"BUILD_NUMBER", "CI", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "PYTEST_ADDOPTS", "PY_COLORS"}
    for name in os.environ:
        if name in told or name.startswith(("GITHUB_", "GPU_BENCH_")):
            monkeypatch.delenv(name)
