"""Errors in our own hooks: each costs its test at most, and never ends the run.

pytest itself fails a test for what is raised in its phases. Everywhere else an error ends the run with INTERNALERROR.
"""

import functools
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import pytest

from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.exit_status import ExitStatus

IN_A_PHASE = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")
Hook = Callable[..., object]


@contextmanager
def failing(report: pytest.TestReport) -> Iterator[None]:
    """Turn an error of ours into the failure of the test that is reported."""
    try:
        yield
    except Exception as error:
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr or ''}\ngpu_bench: an error of its own: {_error_words(error)}".lstrip()


class Containment:
    """Run the hooks of our other plugins so that their errors are said, fail the run, and end nothing."""

    def __init__(self, config: pytest.Config, status: ExitStatus) -> None:
        self.config = config
        self.status = status

    def register(self, plugins: Mapping[str, object]) -> None:
        """Register plugins by their names, with contained hooks."""
        for name, plugin in plugins.items():
            self._contain(plugin)
            self.config.pluginmanager.register(plugin, f"gpu_bench_{name}")

    def _contain(self, plugin: object) -> None:
        """Contain the hooks of a plugin; wrappers contain themselves."""
        names = [name for name in dir(plugin) if name.startswith("pytest_") and name not in IN_A_PHASE]
        for name in names:
            hook = getattr(plugin, name)
            if not inspect.isgeneratorfunction(hook):
                setattr(plugin, name, self._contained(hook))

    def _contained(self, hook: Hook) -> Hook:
        @functools.wraps(hook)
        def contained(*arguments: object) -> object:
            try:
                return hook(*arguments)
            except (pytest.UsageError, pytest.exit.Exception):
                raise
            except Exception as error:
                tests = [each.nodeid for each in arguments if isinstance(each, (pytest.Item, pytest.TestReport))]
                self._say(f"an error of its own in {' of '.join([hook.__name__, *tests])}: {_error_words(error)}")
                return None

        return contained

    def _say(self, sentence: str) -> None:
        if sentence not in self.status.reasons:
            self.status.fail(sentence)
            with suppress(Exception):  # there may be no terminal
                terminal.announce(self.config, sentence)


def _error_words(error: Exception) -> str:
    """Return an error and where it was raised in a line; `traceback` copes with a `__str__` that raises."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = traceback.format_exception_only(type(error), error)[-1].strip()
    return f"{what} ({os.path.basename(frame.filename)}, line {frame.lineno})"
