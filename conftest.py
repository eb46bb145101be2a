import os
import signal

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

settings.register_profile("gpubench", deadline=None)  # no test of ours asserts a wall time
settings.load_profile("gpubench")


os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes of ours would compile the package anew


def pytest_configure() -> None:
    """Let no signal be ignored that the shell ignores for what runs in its background: our tests' processes would."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def same_output_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is printed not hang on where the tests run: pytest says more on CI, and its colours and width differ."""
    told = {"BUILD_NUMBER", "CI", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "PYTEST_ADDOPTS", "PY_COLORS"}
    for name in os.environ:
        if name in told or name.startswith("GITHUB_"):
            monkeypatch.delenv(name)
