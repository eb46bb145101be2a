"""The fixture's object without pytest, for studies that compare thousands of times."""

from collections.abc import Callable

from pytest_gpubench.fixture import GpuBench
from pytest_gpubench.limits import Limits
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.settings import Resolver, Settings


def study_test_with(limits: Limits, seed: int) -> CurrentTest:
    """Return a test that has these limits, and draws its orders from this seed."""
    settings = Settings(device="cuda", seed=seed, inconclusive="pass")
    return CurrentTest("study", settings, limits, phase="call")


def bench_of(test: CurrentTest) -> GpuBench:
    """Return what the test would be given."""
    return GpuBench(lambda: test, Resolver(test.settings, frozenset()))


def silent(function: Callable[[], object]) -> Callable[[], int]:
    """Return the function without its result: pairs with different work have different outputs."""

    def run() -> int:
        function()
        return 0  # a comparison wants something to compare

    return run
