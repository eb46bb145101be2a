"""Errors in our own hooks, which cost their test at most, and the exit status of a run that fails by our hooks.

pytest itself fails a test for what is raised in its phases. Everywhere else an error ends the run with INTERNALERROR.
"""

import functools
import inspect
import os
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress

import pytest

from pytest_gpubench.plugin import terminal

GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
IN_A_PHASE = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")
Hook = Callable[..., object]


class ExitStatus:
    """The hooks that fail a run for the reasons that the others give, and write what they say at its end."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        """Sentences; a run with one becomes nobody's baseline, whoever else has set its exit status."""
        self._lines: list[tuple[str, dict[str, bool]]] = []

    def say(self, sentence: str, **markup: bool) -> None:
        """Write a sentence at the end of the run."""
        self._lines.append((sentence, markup))

    def fail(self, sentence: str) -> None:
        """Fail the run, and say why at its end."""
        self.reasons.append(sentence)
        self.say(sentence, red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Write what was said, below the tables."""
        for sentence, markup in self._lines:
            terminal.write_sentence(terminalreporter, f"gpu_bench: {sentence}", **markup)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Set the exit status, after all others."""
        result = yield
        if self.reasons and session.exitstatus in GREEN:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result


@contextmanager
def failing(report: pytest.TestReport) -> Iterator[None]:
    """Turn an error of ours into the failure of the test that is reported."""
    try:
        yield
    except Exception as error:
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr or ''}\ngpu_bench: an error of its own: {_error_words(error)}".lstrip()


def register(config: pytest.Config, status: ExitStatus, plugins: Mapping[str, object]) -> None:
    """Register plugins by their names, and the status, with hooks whose errors are said, fail the run, and end nothing.

    Wrappers contain themselves.
    """

    def contained(hook: Hook) -> Hook:
        @functools.wraps(hook)
        def call(*arguments: object) -> object:
            try:
                return hook(*arguments)
            except (pytest.UsageError, pytest.exit.Exception):
                raise
            except Exception as error:
                tests = [each.nodeid for each in arguments if isinstance(each, (pytest.Item, pytest.TestReport))]
                place = " of ".join([hook.__name__, *tests])
                sentence = f"an error of its own in {place}: {_error_words(error)}"
                if sentence not in status.reasons:
                    status.reasons.append(sentence)
                    with suppress(Exception):  # there may be no terminal
                        terminal.announce(config, sentence)
                return None

        return call

    for name, plugin in {**plugins, "exit_status": status}.items():
        for each in dir(plugin):
            if each.startswith("pytest_") and each not in IN_A_PHASE:
                hook = getattr(plugin, each)
                if not inspect.isgeneratorfunction(hook):
                    setattr(plugin, each, contained(hook))
        config.pluginmanager.register(plugin, f"gpu_bench_{name}")


def _error_words(error: Exception) -> str:
    """Return an error and where it was raised in a line; `traceback` copes with a `__str__` that raises."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = traceback.format_exception_only(type(error), error)[-1].strip()
    return f"{what} ({os.path.basename(frame.filename)}, line {frame.lineno})"
