import signal

from hypothesis import settings

pytest_plugins = ["pytester"]

settings.register_profile("gpubench", deadline=None)  # no test of ours asserts a wall time
settings.load_profile("gpubench")


def pytest_configure() -> None:
    """Let no signal be ignored that the shell ignores for what runs in its background: our tests' processes would."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
