"""The exit status of a run, which fails for what no report of a test says."""

from collections.abc import Generator

import pytest

GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


class ExitStatus:
    """The hook that fails a run for the reasons that the other hooks give, whoever else has set its exit status."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        """Sentences, of which those who give them show what a user needs; a run with one becomes nobody's baseline."""

    def fail(self, reason: str) -> None:
        """Fail the run."""
        self.reasons.append(reason)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Set the exit status, after all others."""
        result = yield
        if self.reasons and session.exitstatus in GREEN:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result
