"""The plugin's entry: options, marks, the fixture, and the decision when all other hooks are registered.

PYTEST_DONT_REWRITE: it asserts nothing, and pytest before 9.2 warns where it is loaded by name and from an editable
installation.
"""

import copy
import os
import re
import sys
import textwrap
from collections.abc import Generator
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.errors import BadRequest, DeviceUnavailable, hide_frames
from pytest_gpubench.plugin.items import GPUS, NAME, ON_TURN, SUMMARY, UNMARKED, is_perf, takes_turns, uses_fixture
from pytest_gpubench.plugin.options import keys_of_file, resolve, usage_error
from pytest_gpubench.settings import (
    GROUPS,
    MARKER_SETTINGS,
    ROWS,
    Settings,
    environment_name,
    flag_name,
    ini_name,
    refuse_misspelled,
)
from pytest_gpubench.settings.parsers import SettingRow, switch

if TYPE_CHECKING:
    import torch

    from pytest_gpubench.fixture import GpuBench

INTERPRETER_VARIABLE = "TRITON_INTERPRET"
OURS = (environment_name(""), "PYTEST_GPUBENCH_")
"""The beginnings of our variables: those of settings, and those that our processes give each other."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the flag and the ini key of every setting."""
    for name, row in ROWS.items():
        if name in GROUPS:
            group = parser.getgroup(f"gpu_bench {name}", f"gpu_bench, {GROUPS[name]}")
        spelling: dict[str, object] = {"metavar": row.metavar}
        if row.parse is switch:
            spelling = {"action": "store_const", "const": "true"}
        elif row.optional is not None:
            spelling |= {"nargs": "?", "const": row.optional}
        help = f"{row.help} [{default}]" if (default := default_text(row)) else row.help
        group.addoption(flag_name(name), dest=ini_name(name), default=None, help=help, **spelling)
        parser.addini(ini_name(name), f"as {flag_name(name)}", default=None)


def default_text(row: SettingRow) -> str:
    """Return a default as text; empty for what is unset, or off."""
    if row.default is None or row.default is False:
        return ""
    return f"{row.default:g}" if isinstance(row.default, float) else str(row.default)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Before conftests import CUDA or Triton: pin a worker to its GPU, or let Triton interpret on a CPU."""
    from pytest_gpubench.gpu.visible import has_gpu_driver

    try:
        refuse_misspelled((each.partition("=")[0] for each in args), flag_name)
        if _complete_flags(args):
            again = parser.parse_known_args(args, copy.copy(early_config.option))
            for name in ("file_or_dir", *map(ini_name, ROWS)):
                setattr(early_config.known_args_namespace, name, getattr(again, name))
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
            from pytest_gpubench.plugin.workers import pin_worker

            pin_worker(settings)
    on_cpu = settings.device == "cpu" or (settings.device == "auto" and not has_gpu_driver())
    if on_cpu and INTERPRETER_VARIABLE not in os.environ:
        patch = pytest.MonkeyPatch()
        patch.setenv(INTERPRETER_VARIABLE, "1")
        early_config.add_cleanup(patch.undo)


def _complete_flags(args: list[str]) -> bool:
    """Give each flag whose value is optional the one that it means alone, as argparse would take the next word for it.

    Raises BadRequest where that word looks like a value. Returns whether there was such a flag.
    """
    alone = {flag_name(name): row.optional for name, row in ROWS.items() if row.optional is not None}
    for word, after in pairwise(args):
        is_test = "::" in after or after.endswith(".py") or os.path.isdir(after) or "--pyargs" in args
        if word in alone and not is_test and not after.startswith("-"):
            raise BadRequest(f"{word} takes its value after an equals sign: write {word}={after}")
    found = not alone.keys().isdisjoint(args)
    args[:] = [f"{each}={alone[each]}" if each in alone else each for each in args]
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks; register the hooks of a run whose options, or xdist, need them before tests are collected."""
    for line in _help_lines() if config.getoption("markers") else (SUMMARY, ON_TURN):
        config.addinivalue_line("markers", line)
    keys = *keys_of_file(config), *(config.getoption("override_ini", None) or ())
    is_mentioned = any(name.startswith(OURS) for name in (*os.environ, *map(str.upper, keys)))
    is_asked = any(config.getoption(ini_name(name), None) is not None for name in ROWS)
    if is_mentioned or is_asked or config.getoption("tx", None) or hasattr(config, "workerinput"):
        from pytest_gpubench.plugin.registration import register_hooks

        register_hooks(config)


def _help_lines() -> list[str]:
    """Return the lines of the marks for `pytest --markers`."""
    from pytest_gpubench.verdict.limits import BY_NAME, NAMES

    def filled(first: str, text: str, indent: int) -> str:
        return textwrap.fill(text, 100, initial_indent=first, subsequent_indent=" " * indent, break_on_hyphens=False)

    gpus = "how many GPUs the test needs at once, cuda:0 and those after it; with fewer it is skipped"
    lines = [
        SUMMARY,
        "  limits on each of its measurements:",
        *(filled(f"    {name:<22}", BY_NAME[name].help, 26) for name in NAMES),
        filled("  ", f"settings, as the options of the same names: {', '.join(MARKER_SETTINGS)}", 4),
        filled(f"    {GPUS:<22}", gpus, 26),
        "  Marks of class and module apply too; the nearest mark wins per keyword, and None removes a limit.",
        "  pytest-gpubench docs limits shows the page about them.",
    ]
    return ["\n".join(lines), ON_TURN]


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that use the fixture, so that `-m perf` and `-m "not perf"` are exact."""
    if uses_fixture(item) and not is_perf(item):
        item.add_marker(NAME)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, object, object]:
    """Register the hooks of a run that has tests for them left, once all others have selected and marked tests."""
    result = yield
    if any(map(takes_turns, items)):
        from pytest_gpubench.plugin.registration import register_hooks

        register_hooks(config)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, object, object]:
    """Let the traceback of an error end at the user's line."""
    if call.excinfo is not None:
        hide_frames()
    return (yield)


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
    from pytest_gpubench.plugin.registration import RUN

    if RUN not in pytestconfig.stash:
        pytest.fail(UNMARKED, pytrace=False)
    return pytestconfig.stash[RUN].bench()


@pytest.fixture(scope="session")
def gpu_bench_device(pytestconfig: pytest.Config) -> "torch.device":
    """Return ``gpu_bench.device``, also to fixtures of wider scopes, which make inputs for several tests."""
    from pytest_gpubench.gpu.device import required_device

    settings = resolve(pytestconfig).run
    try:
        return required_device(settings.device, settings.require_gpu).torch_device
    except DeviceUnavailable as error:
        pytest.fail(str(error), pytrace=False)
