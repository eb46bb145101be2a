import pytest

from pytest_gpubench import GpuBench
from tests.plugin.conftest import BenchRun, RecordRun


def test_what_is_passed_on_and_returned(bench_run: BenchRun) -> None:
    source = """
def test_every_sample(gpu_bench):
    timing = gpu_bench.measure(fast, reps=6)
    assert timing.samples_us == (10.0, 10.1, 9.9, 10.0, 10.1, 9.9)
    assert (timing.median_us, timing.min_us, timing.max_us, timing.reps) == (10.0, 9.9, 10.1, 6)
    assert (timing.label, timing.timer, timing.cache) == ("fast", "scripted", "cold")
    assert gpu_bench.measure(slow, label="other", cache="hot").label == "other"

def test_arguments(gpu_bench):
    seen = set()
    @scripted([1.0])
    def spy(*args, **kwargs): seen.add((args, *kwargs.items()))
    gpu_bench(spy, 1, label=2)
    gpu_bench.measure(spy, (3,), {"reps": 4}, reps=2)
    gpu_bench.measure(spy, setup=lambda: (5, 6), reps=2)
    gpu_bench.measure(spy, setup=lambda: ((7,), {"k": 8}), reps=2)
    gpu_bench.measure(spy, setup=lambda: {"k": 9}, reps=2)
    gpu_bench.measure(spy, (10,), setup=lambda: None, reps=2)
    assert seen == {(((1,)), ("label", 2)), ((3,), ("reps", 4)), ((5, 6),), ((7,), ("k", 8)), ((), ("k", 9)), ((10,),)}

def test_labels_are_printable_text(gpu_bench):
    assert [gpu_bench.measure(fast, label=label).label for label in (3, "")] == ["3", "fast"]
    assert gpu_bench.measure(fast, label="a\\x1b[31m\\nb").label == "a\\\\x1b[31m\\\\nb"
"""
    bench_run(source).assert_outcomes(passed=3)


def test_where_it_may_be_used(bench_run: BenchRun) -> None:
    """In classes and in fixtures of a test, not in those of several tests nor in a teardown."""
    source = """
import torch

@pytest.fixture
def measured(gpu_bench): return gpu_bench(fast)
class TestClass:
    def test_it(self, gpu_bench): assert gpu_bench(fast).measured
    def test_in_a_fixture(self, measured): assert measured.median_us == 10.0
@pytest.mark.perf(max_time_us=5)
def test_limit_in_a_fixture(measured): pass

@pytest.fixture(scope="module")
def inputs(gpu_bench_device): return torch.ones(3, device=gpu_bench_device)
@pytest.fixture(scope="module")
def shared(gpu_bench): return gpu_bench(fast)
def test_inputs(gpu_bench, inputs): assert inputs.device == gpu_bench.device and gpu_bench(fast, inputs).measured
def test_shared(shared): pass
def test_of_another_kind(inputs, request): assert not request.node.get_closest_marker("perf")

@pytest.fixture
def late(gpu_bench):
    yield
    gpu_bench(fast)
def test_late(late): pass
"""
    result = bench_run(source)
    result.assert_outcomes(passed=5, errors=3)
    result.stdout.fnmatch_lines_random(
        [
            "*fast is too slow: median 10.00 us*",
            "*gpu_bench was used by the fixture 'shared' (module scope), which *the fixture gpu_bench_device returns",
            "*gpu_bench was used in a teardown*",
        ]
    )


def test_outside_of_a_test_it_is_refused(pytester: pytest.Pytester, bench_run: BenchRun) -> None:
    pytester.makeconftest(
        """
def pytest_sessionfinish(session):
    from pytest_gpubench.plugin.registration import RUN
    try:
        session.config.stash[RUN].bench()(print)
    except Exception as error:
        print("REFUSED", error)
"""
    )
    result = bench_run("def test_it(gpu_bench): pass", "-s")
    result.stdout.fnmatch_lines(["*REFUSED gpu_bench was used outside of a test: a measurement belongs to the test*"])


def test_extra_info_reaches_the_record(record_run: RecordRun) -> None:
    recorder = record_run(
        """
class Odd:
    def __str__(self): return "odd"

def test_first(gpu_bench):
    gpu_bench(fast)
    gpu_bench.extra_info["gb_per_s"] = 1.5
    gpu_bench.extra_info["odd"] = Odd()

@pytest.mark.parametrize("size", [3])
def test_second(gpu_bench, size):
    gpu_bench(fast)
    gpu_bench(slow)
"""
    )
    first, second = recorder.records
    assert first.extra_info == {"gb_per_s": 1.5, "odd": "odd"}
    assert second.extra_info == {}
    assert second.params == {"size": "3"}
    assert [item.timing.label for item in second.measurements] == ["fast", "slow"]


def test_the_own_error_of_a_property_is_kept() -> None:
    class Careless(GpuBench):
        @property
        def broken(self) -> int:
            return None.real  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'real'"):
        _ = Careless.__new__(Careless).broken
