"""`ranks` under @given: verdicts are remembered like those of `measure`."""

import collections

import pytest

from pytest_gpubench.results.model import Timing
from pytest_gpubench.timing.ranks import Ranks
from tests.plugin.conftest import RecordRun
from tests.plugin.test_given import TROUBLE, limited
from tests.plugin.test_ranks import ON_CPU, replace_ranks


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[int]:
    """Have ranks be too slow the first time, where their message is above 20 bytes; return how often each is taken."""
    taken: collections.Counter[int] = collections.Counter()

    def take(job: object, devices: object) -> Ranks:
        number: int = job.message_bytes  # type: ignore[attr-defined] # a Job
        taken[number] += 1
        elapsed_us = 100.0 if number > 20 and taken[number] == 1 else 10.0
        timing = Timing(label="work", timer="profiler", cache="cold", device="H200", samples_us=(elapsed_us,) * 60)
        return Ranks(timing, (timing, timing))

    replace_ranks(monkeypatch, take)
    return taken


def test_nothing_is_taken_twice(record_run: RecordRun, taken: collections.Counter[int]) -> None:
    body = "gpu_bench.ranks(scripted, collective='all_reduce', message_bytes=n)"
    recorder = record_run(limited(body, marks="max_time_us=50"), *ON_CPU)
    report = recorder.call
    assert "LimitBroken: work is too slow: median 100.0 us" in report.longreprtext
    assert "n=21," in report.longreprtext
    assert not any(word in report.longreprtext for word in TROUBLE)
    assert set(taken.values()) == {1}
    measurements = recorder.records[0].measurements
    assert len(measurements) == len(taken) > 5
    assert measurements[-1].example == "n=21"
    (section,) = [text for title, text in report.sections if title == "gpu_bench"]
    assert "FAIL: work is too slow: median 100.0 us" in section


def test_two_in_one_example_are_two(record_run: RecordRun, taken: collections.Counter[int]) -> None:
    body = "found = [gpu_bench.ranks(scripted, message_bytes=7) for _ in range(2)]; assert found[0] is not found[1]"
    recorder = record_run(limited(body, given="n=st.just(1)", marks="max_time_us=50"), *ON_CPU)
    assert recorder.call.passed
    assert taken == {7: 2}
