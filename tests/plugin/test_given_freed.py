"""Memory of examples: freed when a test under @given has ended, however it ended."""

import pytest

from tests.plugin.conftest import HEAD, BenchRun
from tests.plugin.test_given import GIVEN

HELD = f"""{HEAD}{GIVEN.replace("max_examples=25", "max_examples=12")}
import gc
import weakref
from pytest_gpubench.strategies import shapes, tensors

gc.freeze()  # what is imported: the tests collect garbage dozens of times
held = []

def hold(thing):
    held.append(weakref.ref(thing))
    return thing

def work(us, plus=0, error=None):
    def work(x):
        if error is not None: raise error
        return x * 2 + plus
    return hold(scripted([us])(work))

class Opaque:
    def __init__(self, n): self.n = n
    def __mul__(self, other): return self.n * other

def opaque(n): return hold(Opaque(n))

def raise_if(n, error):
    if n > 9: raise error
"""
BODY = """
@pytest.mark.perf({marks})
@given(n={given})
def test_{index}(gpu_bench, n):
    x = hold(torch.ones(5))
    {body}

def test_{index}_is_freed():
    gc.collect()
    found = [each() for each in held]
    held.clear()
    assert len(found) > 9
    assert not [each for each in found if each is not None]
"""
PASSING = [
    ("min_speedup=1.5", "sizes", "gpu_bench.compare(work(10.0), work(20.0), (x,))"),
    ("max_time_us=20", "sizes", "gpu_bench.phases({'a': work(10.0)}, work(10.0), (x,))"),
    ("", "sizes", "raise_if(n - 50, torch.OutOfMemoryError('CUDA out of memory')); gpu_bench(work(10.0), x)"),
    (
        "max_time_us=20",
        "tensors(shapes(dims=2, max_side=64), device='cpu')",
        "gpu_bench.measure(work(10.0), (hold(n),))",
    ),
]
FAILING = [
    ("min_speedup=1.5", "sizes", "gpu_bench.compare(work(10.0 if n < 9 else 30.0), work(20.0), (x,))"),
    ("", "sizes", "gpu_bench.compare(work(1.0, error=ValueError() if n > 9 else None), work(20.0), (x,))"),
    ("max_time_us=20", "sizes", "gpu_bench.measure(work(10.0 if n < 9 else 30.0), (x,))"),
    ("max_time_us=20", "sizes", "gpu_bench.phases({'a': work(10.0 if n < 9 else 30.0)}, work(10.0), (x,))"),
    ("", "st.builds(opaque, sizes)", "gpu_bench.measure(work(10.0), (n,)); raise_if(n.n, ValueError())"),
    (
        "given_oom='fail'",
        "sizes",
        "gpu_bench(work(10.0), x); raise_if(n, torch.OutOfMemoryError('CUDA out of memory'))",
    ),
]


@pytest.mark.usefixtures("forked")
def test_nothing_is_held_after_a_test(pytester: pytest.Pytester) -> None:
    """In a process of its own: what runs pytest within a test keeps all that its hooks are given."""
    bodies = [
        BODY.format(index=index, marks=marks, given=given, body=body)
        for index, (marks, given, body) in enumerate([*PASSING, *FAILING])
    ]
    pytester.makepyfile(HELD + "".join(bodies))
    result = pytester.runpytest_subprocess("--gpu-bench-timer=scripted")
    result.assert_outcomes(passed=2 * len(PASSING) + len(FAILING), failed=len(FAILING))
    assert "_is_freed" not in result.stdout.str().partition("short test summary")[2]


KEPT = f"""{GIVEN}
from pytest_gpubench.plugin.registration import RUN

kept = []

@given(n=sizes)
def test_it(gpu_bench, request, n):
    test = request.config.stash[RUN].current_test()
    gpu_bench(fast)
    test.fresh = str  # which a scripted test has not
    kept[:] = [test, test.search, test.past, test.fresh]

def test_the_next():
    test, *found = kept
    assert [before is now for before, now in zip(found, (test.search, test.past, test.fresh))] == [False] * 3
"""


def test_a_test_that_is_over_holds_no_search_and_no_saved_run(bench_run: BenchRun) -> None:
    """Whoever holds it then, as the frames of an error do."""
    bench_run(KEPT).assert_outcomes(passed=2)
