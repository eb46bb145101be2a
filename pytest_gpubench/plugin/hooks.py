"""The plugin's entry: options, marks, the fixture, and the registration of all other hooks.

PYTEST_DONT_REWRITE: it asserts nothing, and pytest before 9.2 warns where it is loaded by name and from an editable
installation.
"""

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.errors import BadRequest, DeviceUnavailable
from pytest_gpubench.plugin import markers
from pytest_gpubench.plugin.baseline import ComparedRun
from pytest_gpubench.plugin.collection import Collection, narrow_to_listed
from pytest_gpubench.plugin.containment import Containment
from pytest_gpubench.plugin.end_signals import EndSignals
from pytest_gpubench.plugin.exit_status import ExitStatus
from pytest_gpubench.plugin.failures import Failures
from pytest_gpubench.plugin.fresh_process import as_fresh_process
from pytest_gpubench.plugin.gpu_turn import GpuTurns
from pytest_gpubench.plugin.lifecycle import Lifecycle
from pytest_gpubench.plugin.missing import LeftOut, MissingTests
from pytest_gpubench.plugin.options import add_options, resolve, usage_error
from pytest_gpubench.plugin.pin import pin_worker
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.save import OutputFiles
from pytest_gpubench.plugin.sessions import EarlierSessions
from pytest_gpubench.plugin.started_ahead import StartedAhead
from pytest_gpubench.plugin.sticky_error import JUnitFile, StickyErrors
from pytest_gpubench.plugin.unfinished import UnfinishedRuns
from pytest_gpubench.plugin.workers import Workers, is_worker
from pytest_gpubench.settings import Settings, flag_name, refuse_misspelled

if TYPE_CHECKING:
    import torch

    from pytest_gpubench.fixture import GpuBench

INTERPRETER_VARIABLE = "TRITON_INTERPRET"
RUN = pytest.StashKey[Lifecycle]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every setting."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Before conftests import CUDA or Triton: pin a worker to its GPU, or let Triton interpret on a CPU."""
    from pytest_gpubench.gpu.visible import has_gpu_driver

    try:
        refuse_misspelled((each.partition("=")[0] for each in args), flag_name)
    except BadRequest as error:
        raise usage_error(error) from None
    try:
        settings = resolve(early_config, early_config.known_args_namespace).run
    except BadRequest:  # reported when pytest is configured
        settings = Settings()
    # a pytest that a test of a worker starts has other arguments
    becomes_worker = "PYTEST_XDIST_WORKER" in os.environ and sys.argv[:1] == ["-c"]
    if becomes_worker and has_gpu_driver():
        with suppress(BadRequest, DeviceUnavailable):  # raised again when pytest is configured
            pin_worker(settings)
    on_cpu = settings.device == "cpu" or (settings.device == "auto" and not has_gpu_driver())
    if on_cpu and INTERPRETER_VARIABLE not in os.environ:
        os.environ[INTERPRETER_VARIABLE] = "1"
        early_config.add_cleanup(_stop_interpreting)


def _stop_interpreting() -> None:
    os.environ.pop(INTERPRETER_VARIABLE, None)


def pytest_configure(config: pytest.Config) -> None:
    """Read the settings and register the hooks of each subject."""
    for line in markers.help_lines() if config.getoption("markers") else (markers.SUMMARY, markers.ON_TURN):
        config.addinivalue_line("markers", line)
    try:
        resolver = as_fresh_process(config) or resolve(config)
        status = ExitStatus()
        results = Results(config, resolver.run, status)
        earlier = EarlierSessions(config, resolver, status)
        compared = ComparedRun(config, resolver.run, results, earlier)
    except BadRequest as error:
        raise usage_error(error) from None
    settings = resolver.run
    workers = Workers(config, settings)
    turns = GpuTurns(config, settings, workers.pin)
    failures = Failures(config, results)
    left_out = LeftOut(config)
    missing = MissingTests(config, settings, compared, results, left_out, status)
    files = OutputFiles(config, settings, results, compared, failures, earlier, missing, status)
    config.stash[RUN] = lifecycle = Lifecycle(config, resolver, turns, compared, results)
    plugins: dict[str, object] = {  # the hooks of the later are called first, and wrap those of the earlier
        "workers": workers,
        "turns": turns,
        "collection": Collection(settings, turns, narrow_to_listed(config)),
        "lifecycle": lifecycle,
        "counting": lifecycle.counting,
        "failures": failures,
        "files": files,
        "sessions": earlier,
        "baseline": compared,
        "missing": missing,
        "left_out": left_out,
        "results": results,
        "sticky_errors": StickyErrors(is_worker(config)),
        "junit": JUnitFile(config),
        "unfinished": UnfinishedRuns(config, settings),
        "started_ahead": StartedAhead(config, turns),
        "end_signals": EndSignals(config, results, files),
        **_adopted(config, settings, lifecycle),
    }
    containment = Containment(config, status)
    for name, plugin in plugins.items():
        containment.contain(plugin)
        config.pluginmanager.register(plugin, f"gpu_bench_{name}")
    config.pluginmanager.register(status, "gpu_bench_exit_status")


def _adopted(config: pytest.Config, settings: Settings, lifecycle: Lifecycle) -> dict[str, object]:
    """Return the hooks for benchmarks that people already have, where an option asks for them."""
    if not (settings.scripts or settings.limits or settings.adopt):
        return {}
    from pytest_gpubench.plugin.adopted import hooks_of

    try:
        return hooks_of(config, settings, lifecycle)
    except BadRequest as error:
        raise usage_error(error) from None


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Let `-n auto` start one worker for each visible GPU; None, without GPUs or perf tests, leaves it to xdist."""
    try:
        settings = resolve(config).run
    except BadRequest as error:
        raise usage_error(error) from None
    asked_for_cpus = config.option.numprocesses == "logical" or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    without_perf = settings.skip or re.search(r"\bnot\s+perf\b", config.option.markexpr or "")
    if asked_for_cpus or without_perf or settings.device == "cpu":
        return None
    from pytest_gpubench.gpu import visible

    return len(visible.find_visible()) or None


@pytest.fixture(scope="session")
def gpu_bench(pytestconfig: pytest.Config) -> "GpuBench":
    """Measure GPU kernel time: ``gpu_bench(fn, *args, **kwargs)`` returns a ``Timing``.

    ``gpu_bench.measure(fn, args=, setup=, backward=, ...)`` takes everything else, ``gpu_bench.device`` is where to
    make the tensors. ``gpu_bench.compare(candidate, reference, args=)`` checks outputs and returns a ``Comparison``.
    Each measurement of the test is judged by the limits of its ``perf`` marker.
    """
    return pytestconfig.stash[RUN].bench()


@pytest.fixture(scope="session")
def gpu_bench_device(pytestconfig: pytest.Config) -> "torch.device":
    """Return ``gpu_bench.device``, also to fixtures of wider scopes, which make inputs for several tests."""
    return pytestconfig.stash[RUN].device()
