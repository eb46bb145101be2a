"""`gpu_bench.ranks` in a test: supported and refused limits, and the error of a rank."""

import collections
import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import torch.multiprocessing

import pytest_gpubench.bench.integrity
import pytest_gpubench.bench.ranks
from pytest_gpubench import Kernel, Ranks, Timing
from tests.plugin.conftest import BenchRun, CheckRows, RecordRun
from tests.plugin.test_given import TROUBLE, limited, seconds
from tests.results.measured import kernel

__all__ = ["seconds"]  # a fixture

ON_CPU = ("--gpu-bench-device=cpu", "--gpu-bench-timer=profiler")
KERNELS = (
    kernel("ncclDevKernel_AllReduce", 2, 9.0),
    kernel("Memcpy DtoD (Device -> Device)", 1, 1.0, "memcpy"),
)
STEADY_US = (10.0,) * 40
SOURCE = """
def work(): ...

@pytest.mark.perf({marks})
def test_it(gpu_bench):
    gpu_bench.ranks(work, world_size=2, {link})
"""
LINK = 'collective="all_reduce", message_bytes=100_000'


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> None:
    take_samples(monkeypatch, STEADY_US)


def take_samples(
    monkeypatch: pytest.MonkeyPatch,
    samples_us: tuple[float, ...],
    kernels: tuple[Kernel, ...] = KERNELS,
    moved_bytes: int | None = 100_000,
    throttle_reasons: tuple[str, ...] = (),
) -> None:
    found = Timing(
        label="work",
        timer="profiler",
        cache="cold",
        device="NVIDIA H200",
        samples_us=samples_us,
        kernels=kernels,
        moved_bytes=moved_bytes,
        throttle_reasons=throttle_reasons,
    )
    replace_ranks(monkeypatch, lambda job, device, world_size: Ranks(found, (found, found)))


def replace_ranks(monkeypatch: pytest.MonkeyPatch, take: Callable[[Any, object, int], object]) -> None:
    monkeypatch.setattr(pytest_gpubench.bench.ranks, "measure_ranks", take)


def outcome(bench_run: BenchRun, marks: str, *arguments: str) -> tuple[str, str]:
    result = bench_run(SOURCE.format(marks=marks, link=LINK), *ON_CPU, *arguments)
    (kind,) = result.parseoutcomes()  # of "1 not judged" the first word
    return kind, result.stdout.str()


LIMITS = {
    "max_time_us=10": ("max_time_us=9.999", "work is too slow: median 10.00 us"),
    "max_time_us={'H200': 10}": ("max_time_us={'H200': 9.999, 'A100': 99}", "work is too slow: median 10.00 us"),
    "min_gbps=10": ("min_gbps=10.001", "work is too slow: 10.00 GB/s"),
    "max_kernels=2": ("max_kernels=1", "work launches 2 kernels, wanted at most 1"),
    "kernels='nccl*'": ("kernels='gloo*'", "work launches no kernel named gloo*"),
    "deterministic=False, forbid='memset'": ("forbid='memcpy'", "work copies memory 1 time, wanted none"),
}


@pytest.mark.usefixtures("take")
def test_a_limit_holds_just_inside_and_breaks_just_outside(check_rows: CheckRows) -> None:
    ends = dict.fromkeys(LIMITS) | {marks: f"LimitBroken: {sentence}*" for marks, sentence in LIMITS.values()}
    check_rows("", {SOURCE.format(marks=marks, link=LINK): sentence for marks, sentence in ends.items()}, *ON_CPU)


REFUSED = {
    "max_memory='1GiB'": "max_memory",
    "max_memory=0": "max_memory",
    "deterministic=True": "deterministic",
    "max_registers=64": "max_registers",
    "min_peak_fraction=0.5": "min_peak_fraction",
    "max_regression=0.05": "max_regression",
    "forbid='sync'": "forbid sync or alloc",
    "forbid=('memset', 'alloc')": "forbid sync or alloc",
    "min_tflops=1": "min_tflops",
}


@pytest.mark.usefixtures("take")
def test_a_limit_that_says_nothing_of_ranks_is_refused(check_rows: CheckRows) -> None:
    refused = {
        marks: f"BadRequest: ranks() cannot be held to {limit}: leave it out*" for marks, limit in REFUSED.items()
    }
    refused["min_speedup=1.0"] = "was never judged: the test compared nothing; call gpu_bench.compare*"
    check_rows("", {SOURCE.format(marks=marks, link=LINK): sentence for marks, sentence in refused.items()}, *ON_CPU)


@pytest.mark.usefixtures("take")
@pytest.mark.parametrize("link", ["collective='all_reduce'", "message_bytes=100_000"])
def test_a_bandwidth_needs_the_collective_and_its_bytes(check_rows: CheckRows, link: str) -> None:
    """It is said before anything is measured; without the limit neither is needed."""
    sentence = "BadRequest: ranks() under min_gbps=1 needs collective= and message_bytes=, which say what each rank's*"
    ends = {"min_gbps=1": sentence, "max_time_us=10": None}
    check_rows("", {SOURCE.format(marks=marks, link=link): sentence for marks, sentence in ends.items()}, *ON_CPU)


@pytest.mark.usefixtures("take")
def test_that_nothing_is_compared_with_a_saved_run_is_said(bench_run: BenchRun) -> None:
    warning = "work was not compared with the saved run: ranks are not"
    assert warning not in outcome(bench_run, "max_time_us=10", "--gpu-bench-save=main", "--gpu-bench-sessions=1")[1]
    kind, text = outcome(bench_run, "max_time_us=10", "--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%")
    assert (kind, warning in text) == ("passed", True), text


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[int]:
    """Have ranks be too slow the first time, where their message is above 20 bytes; return how often each is taken."""
    taken: collections.Counter[int] = collections.Counter()

    def take(job: object, device: object, world_size: int) -> Ranks:
        number: int = job.message_bytes  # type: ignore[attr-defined] # a Job
        taken[number] += 1
        elapsed_us = 100.0 if number > 20 and taken[number] == 1 else 10.0
        timing = Timing(label="work", timer="profiler", cache="cold", device="H200", samples_us=(elapsed_us,) * 60)
        return Ranks(timing, (timing, timing))

    replace_ranks(monkeypatch, take)
    return taken


def test_under_given_nothing_is_taken_twice(record_run: RecordRun, taken: collections.Counter[int]) -> None:
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
    assert "work: 100.0 us (median of" in section


@pytest.mark.usefixtures("seconds")
def test_ranks_are_called_when_it_is_spent(record_run: RecordRun, monkeypatch: pytest.MonkeyPatch) -> None:
    take_samples(monkeypatch, STEADY_US)
    module: Any = pytest_gpubench.bench.ranks
    take, timed = module.measure_ranks, []

    def noting(job: Any, device: object, world_size: int) -> object:
        timed.append(job.timed)
        return take(job, device, world_size) if job.timed else None

    replace_ranks(monkeypatch, noting)
    source = limited("gpu_bench.ranks(scripted)", marks="max_time_us=11")
    (record,) = record_run(source, *ON_CPU, "--gpu-bench-given-budget-s=2").records
    assert timed == [True] * 2 + [False] * 23
    reasons = [item.timing.unmeasured for item in record.measurements]
    assert reasons == [None] * 2 + ["--gpu-bench-given-budget-s of 2 s is spent"] * 23


STEPS = """
import torch.distributed as dist

def helper(): raise ValueError("planted")

def second_fails():
    if dist.get_rank() == 1:
        helper()
    dist.barrier()
"""


def test_an_error_of_a_rank_is_said_once(
    bench_run: BenchRun, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes, forked from one: which rank it was, where in the user's own lines, and what the other did."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["torch.distributed", "pytest_gpubench.timing.ranks.worker"])
    monkeypatch.setattr(torch.multiprocessing, "get_context", lambda method: server)
    pytester.makepyfile(steps=STEPS)
    pytester.syspathinsert()
    source = "import steps\ndef test_it(gpu_bench): gpu_bench.ranks(steps.second_fails, timeout_s=60)"
    result = bench_run(source, *ON_CPU)
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert text.count("Traceback (most recent call last)") == 1
    result.stdout.fnmatch_lines(
        [
            "E *MeasurementError: rank 1 of 2 of 'second_fails' raised ValueError: planted",
            "E * in second_fails",
            "E * in helper",
            "E *ValueError: planted",
            "E *gpu_bench: meanwhile rank 0 was calling the function for the first time*",
        ]
    )
    assert "timing/ranks" not in text
