"""Finding a test in a saved run, and the reason and remedy where there is nothing to compare."""

import random

import msgspec
import pytest

from pytest_gpubench import DeviceFacts
from pytest_gpubench.results.baseline import Baseline
from pytest_gpubench.results.counterpart import PastTest
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.results.observed import AllocatedMemory, Observed, Wait
from tests.results.measured import GPU, TEST, alone, baseline, find, kernel, missing, on, pair, record, run, verdict


def test_a_test_that_moved_is_told_as_renamed() -> None:
    old = record(alone(), nodeid="tests/old.py::test_it[a]", params={"n": "1"})
    where = baseline(old, record(alone(), nodeid="tests/old.py::test_it[b]", params={"n": "2"}))
    found = missing(find(where, "tests/new.py::test_it[a]", params={"n": "1"}))
    assert (found.kind, found.nodeids) == ("renamed", ("tests/old.py::test_it[a]",))
    assert "the same test is, as tests/old.py::test_it[a]: if it was renamed, save a new one" in found.sentence
    copied = Baseline([("main", run(old))], {"tests/old.py::test_it[a]"})
    assert missing(find(copied, "tests/new.py::test_it[a]", params={"n": "1"})).kind == "no test"
    assert missing(find(where, "tests/new.py::test_it[a]", "other", params={"n": "1"})).kind == "no test"
    assert missing(find(where, "tests/new.py::test_it[a]", params={"n": "3"})).kind == "no test"


@pytest.mark.parametrize("test", [TEST, "tests/[odd].py::TestIt::test_it"])
def test_other_parameters_are_named_up_to_three(test: str) -> None:
    where = baseline(*(record(alone(), nodeid=f"{test}[{n}::x[1]]", params={"n": str(n)}) for n in range(5)))
    found = missing(find(where, f"{test}[7]", params={"n": "7"}))
    assert found.kind == "parameters"
    assert "only " + ", ".join(f"{test}[{n}::x[1]]" for n in range(3)) + " and 2 more; save a new" in found.sentence


def test_what_another_gpu_measured_is_not_offered() -> None:
    a100 = on(name="NVIDIA A100")
    elsewhere = [record(alone(), nodeid=f"{name}[1]", source="p", device=a100) for name in (TEST, "tests/b.py::test_b")]
    where = baseline(record(alone(), nodeid="tests/c.py::test_c", source="c"), *elsewhere)
    for nodeid in (f"{TEST}[1]", f"{TEST}[2]", "tests/d.py::test_d"):
        assert missing(find(where, nodeid, "p")).kind == "no test"


def test_a_name_that_stands_for_other_parameters_is_told() -> None:
    where = baseline(record(alone(), nodeid=f"{TEST}[small]", params={"n": "128", "f": "<f at 0x7f00>"}))
    assert isinstance(find(where, f"{TEST}[small]", params={"n": "128", "f": "<f at 0x7fff>"}), PastTest)
    found = missing(find(where, f"{TEST}[small]", params={"n": "256", "f": "<f at 0x7fff>"}))
    assert found.kind == "parameters"
    assert "stood for other parameters in the baseline 'main': n=128" in found.sentence


def test_a_test_that_has_changed_itself_is_told() -> None:
    found = missing(find(baseline(record(alone())), source="other"))
    assert found.kind == "source"
    assert found.sentence == f"{TEST}: the test itself has changed since the baseline 'main'; save a new one"


@pytest.mark.parametrize("other", [on(name="NVIDIA A100"), on(type="cpu"), on(multiprocessors=66), on(mig=True)])
def test_another_gpu_is_never_compared(other: DeviceFacts) -> None:
    where = baseline(record(alone(), device=on(mig=False)))
    found = missing(find(where, device=other))
    assert found.kind == "host"
    assert "only on NVIDIA H200 with 132 multiprocessors ('main'); save one on this" in found.sentence


def test_of_several_models_the_own_is_found() -> None:
    a100 = on(name="NVIDIA A100", multiprocessors=108)
    where = Baseline([("h", run(record(alone(us=1)))), ("a", run(record(alone(us=2), device=a100)))])
    assert find(where).baseline == "h"
    assert find(where, device=a100).baseline == "a"
    assert find(where, device=a100).measurement("softmax").timing.median_us == pytest.approx(2, rel=0.01)
    assert "'h'" in missing(find(where, "tests/x.py::test_x", "x")).sentence
    assert "'a'" not in missing(find(where, "tests/x.py::test_x", "x")).sentence
    both = Baseline([("old", run(record(alone(us=1)))), ("new", run(record(alone(us=2))))])
    assert find(both).baseline == "new"


def test_a_new_test_and_an_empty_baseline_are_told() -> None:
    found = missing(find(baseline(record(alone())), "tests/test_a.py::test_new", "new"))
    assert (found.kind, found.nodeids) == ("no test", ())
    assert found.sentence.endswith("test_new is not in the baseline 'main': it is new, or was not run; save a new one")
    found = missing(find(baseline()))
    assert (found.kind, found.sentence) == ("no test", "nothing was measured in the baseline 'main'; save a new one")


def test_what_may_explain_a_change_is_told_with_it() -> None:
    now = on(driver="580.2", max_sm_clock_mhz=1980, max_memory_clock_mhz=3201, power_limit_w=700.0, cuda="13.0")
    then = on(max_sm_clock_mhz=1830, max_memory_clock_mhz=2619, power_limit_w=600.0, cuda="12.8")
    where = baseline(record(alone(), device=then))
    assert find(where, device=now, installed={"torch": "2.12"}).caveats == [
        "driver 570.1 -> 580.2, torch 2.11 -> 2.12, CUDA 12.8 -> 13.0, maximum SM clock 1830 MHz -> 1980 MHz, maximum "
        "memory clock 2619 MHz -> 3201 MHz, power limit 600 W -> 700 W since the baseline 'main'"
    ]
    assert find(where, device=then, installed={"torch": "2.11"}).caveats == []
    assert find(where, device=GPU).caveats == []  # what is not known does not differ


def test_a_baseline_survives_its_text() -> None:
    rng = random.Random(1)
    samples = tuple(rng.lognormvariate(5, 2) for _ in range(50))
    kernels = (kernel("a kernel", 1, 1),)
    rich = alone(samples_us=samples, busy_us=samples, span_us=samples, sm_clock_mhz=samples, kernels=kernels)
    observed = Observed((Wait("x.item()"),), {"cudaStreamSynchronize": 1}, AllocatedMemory(1, 2, 3, 0))
    said = (verdict("max_time_us=1", Outcome.PASS, "said"),)
    judged = msgspec.structs.replace(rich, verdicts=said, observed=observed)
    where = baseline(record(judged, *pair("mine", 3), params={"n": "1"}), record(alone(), nodeid="tests/b.py::test_b"))
    text = where.encode()
    again = Baseline.decode(text)
    assert Baseline.decode(again.encode()).encode() == again.encode()
    assert list(again.tests()) == list(where.tests())
    assert again.names == ("main",)
    found = find(again, params={"n": "1"}).measurement("softmax")
    assert found.timing.samples_us == samples
    assert find(again).measurement("mine", "candidate", "torch").speedup == pair("mine", 3)[1].speedup
    assert found.timing.kernels == kernels
    assert found.observed == observed
    assert found.timing.median_sm_clock_mhz == rich.timing.median_sm_clock_mhz
    assert not found.timing.cycles
    for left_out in ("said", "busy", "span"):
        assert left_out not in text
    assert text.count(GPU.name) == 2 + 4  # once in each test, once in each timing
