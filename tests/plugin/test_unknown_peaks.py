"""Peaks that cannot be measured: the test keeps its results, and its limit on them is NOT JUDGED."""

from tests.plugin.conftest import Recorder, RecordRun

MEASURE = "gpu_bench.measure(fast, bytes=10**6)"
COMPARE = "gpu_bench.compare(fast, slow, bytes=10**6)"
SOURCE = """
import warnings
import pytest_gpubench.bench.request as inspection
import torch
from dataclasses import replace
from pytest_gpubench import ProfilerBusy
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import DeviceFacts
from pytest_gpubench.timing import peaks

GPU = Device(torch.device("cpu"), DeviceFacts(type="cuda", name="Fake GPU", host="here"))

def broken(device, cache):
    raise ProfilerBusy('busy')

@pytest.fixture(autouse=True)
def a_gpu_whose_peaks_cannot_be_measured(monkeypatch):
    looked = inspection.Inspection.peaks

    def look(self, work):  # scripted times have no peaks of their own
        return looked(replace(self, settings=replace(self.settings, timer="profiler"), device=GPU), work)

    monkeypatch.setattr(inspection.Inspection, "peaks", look)
    monkeypatch.setattr(peaks, "ProfilerTimer", broken)
    monkeypatch.setattr(peaks, "flush_buffer", lambda device: None)
    monkeypatch.setattr(peaks, "SIZES_BYTES", (2**16,))
    monkeypatch.setattr("pytest_gpubench.timing.kernels.flush_of", lambda whole: whole.sum)
    monkeypatch.setattr(Device, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

@pytest.mark.perf({marks})
def test_it(gpu_bench): {call}
"""


def verdicts(recorder: Recorder) -> dict[str, tuple[str, str]]:
    (record,) = recorder.records
    found = record.measurements[-1].verdicts
    return {verdict.limit: (verdict.outcome.name, verdict.sentence) for verdict in found}


def test_the_result_is_kept_and_the_limit_is_not_judged(record_run: RecordRun) -> None:
    source = SOURCE.format(marks="min_peak_fraction=0.5, max_time_us=100", call=COMPARE)
    recorder = record_run(source, "--gpu-bench-reps=40")
    (record,) = recorder.records
    assert recorder.call.passed
    assert [item.timing.reps for item in record.measurements] == [40] * len(record.measurements)
    found = verdicts(recorder)
    assert found["max_time_us=100"][0] == "PASS"
    outcome, sentence = found["min_peak_fraction=0.5"]
    device = record.measurements[-1].timing.device
    reason = f"the peak of {device} for memory is not known (memory: not measured, busy)"
    assert (outcome, sentence) == ("NOT_JUDGED", f"fast: min_peak_fraction=0.5 says nothing here, {reason}")
    assert sentence in record.warnings


def test_another_limit_is_judged_all_the_same(record_run: RecordRun) -> None:
    """It needs no peak; that no physics stood behind it is said."""
    recorder = record_run(SOURCE.format(marks="min_gbps=98", call=MEASURE), "--gpu-bench-reps=60")
    assert verdicts(recorder)["min_gbps=98"][0] == "PASS"
    sentence = "not compared with what the GPU can do at most: memory: not measured, busy"
    assert recorder.records[0].warnings == (sentence,)
