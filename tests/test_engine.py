"""The engine without pytest: `bench.measure`, `bench.compare` and `bench.do_bench` on the CPU."""

import ctypes
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_gpubench import (
    BadRequest,
    DeviceFacts,
    LimitBroken,
    NotMeasured,
    ProfilerBusy,
    WrongResult,
    bench,
    scripted,
)
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.gpu.lock import claimants
from pytest_gpubench.gpu.lock_file import LockFile
from pytest_gpubench.gpu.turn import turn_at
from pytest_gpubench.settings import Settings

SAMPLES_US = (10.0, 30.0, 20.0, 40.0)


@pytest.fixture(autouse=True)
def scripted_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"TIMER": "scripted", "DEVICE": "cpu"}.items():
        monkeypatch.setenv(f"GPU_BENCH_{name}", text)


def played(*samples_us: float, result: object = 1.0) -> Callable[..., object]:
    """Return a function that takes these times in turn."""
    return scripted(samples_us)(lambda *args: result)


def test_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import sys; from pytest_gpubench import bench; assert not {'torch', 'triton', 'msgspec'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_keywords_are_limits_settings_and_those_of_the_fixture() -> None:
    assert bench.measure(played(*SAMPLES_US), reps=4).samples_us == SAMPLES_US
    made: list[int] = []
    timing = bench.measure(
        played(10), reps=20, label="mine", setup=lambda: made.append(1), max_time_us=10, bytes=10**6, min_gbps=100
    )
    assert (timing.label, timing.reps, timing.gbps, len(made)) == ("mine", 20, 100.0, 20)


@pytest.mark.parametrize(
    ("is_past", "said"), [(True, r"writes past args\[0\]"), (False, r"is wrong: args\[1\]: .* overwrites it")]
)
def test_what_is_written_past_an_argument_is_named_where_another_one_lies_there(is_past: bool, said: str) -> None:
    buffer = bytearray(512)
    x, y = (torch.frombuffer(buffer, dtype=torch.float32, count=64, offset=at).fill_(at + 1) for at in (0, 256))

    @scripted(SAMPLES_US)
    def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    @scripted(SAMPLES_US)
    def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = x + y
        ctypes.memset(x.data_ptr() + x.nbytes if is_past else y.data_ptr(), 5, 4)
        return out

    with pytest.raises(WrongResult, match=f"^mine {said}"):
        bench.compare({"mine": writes}, adds, (x, y))


def test_a_limit_and_outputs_are_judged_as_in_a_test() -> None:
    with pytest.raises(LimitBroken, match=r"wanted at most 9\.99 us"):
        bench.measure(played(10), reps=20, max_time_us=9.99)
    assert bench.compare(played(10), played(20), min_speedup=1.99).speedup == pytest.approx(2)
    with pytest.raises(LimitBroken, match=r"wanted at least 2\.01x"):
        bench.compare(played(10), played(20), min_speedup=2.01)
    with pytest.raises(WrongResult):
        bench.compare(played(10, result=1.0), played(20, result=2.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda f: bench.measure(f, save="main"),
            r"bench.measure\(save=...\) is not known: save is for runs of pytest",
        ),
        (lambda f: bench.compare(f, f, max_regression=0.1), "max_regression is for runs of pytest"),
        (lambda f: bench.measure(f, max_instructions=9), "max_instructions is for runs of pytest"),
        (lambda f: bench.measure(f, counters="all"), "counters is for runs of pytest"),
        (lambda f: bench.measure(f, min_speedup=1.0), r"compares nothing: call bench.compare"),
        (lambda f: bench.measure(f, reps=0), r"bench.measure\(reps=...\): 0 is not valid, it must be at least 1"),
        (lambda f: bench.measure(f, max_time_us=-1), r"perf\(max_time_us=-1\): it must be above 0"),
        (lambda f: bench.do_bench(f, return_mode="avg"), "it must be min, max, mean, median, all"),
        *(
            (lambda f, given=given: bench.do_bench(f, quantiles=given), "a list of numbers from 0 to 1, as in")
            for given in ([50], 0.5, "0.5", [None])
        ),
        (
            lambda f: bench.do_bench(f, rep=-1),
            r"do_bench\(rep=-1\) is not valid: it must be a finite number of at least 0",
        ),
        (lambda f: bench.do_bench(f, rep=10**400), "must be a finite number"),
    ],
)
def test_invalid_arguments_are_refused(call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        call(played(10))


@pytest.mark.parametrize(
    ("unknown", "meant"), [("rep", "reps"), ("min_sped", "min_speedup"), ("devise", "device"), ("rtool", "rtol")]
)
def test_an_unknown_keyword_is_refused_with_the_right_one(unknown: str, meant: str) -> None:
    wrong: dict[str, Any] = {unknown: 3}
    with pytest.raises(TypeError, match=rf"^bench.compare\(\) takes no {unknown}=: did you mean {meant}=\?$"):
        bench.compare(played(10), played(20), **wrong)


def test_limits_are_not_enforced_on_a_cpu_that_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_BENCH_TIMER", "wall")
    monkeypatch.setenv("GPU_BENCH_DEVICE", "auto")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(
        UserWarning, match="limits are not enforced on a CPU .*: for max_time_us=1e-06, give device='cpu'"
    ):
        assert bench.measure(torch.add, torch.ones(2), 1, max_time_us=1e-6, reps=3).reps == 3


# do_bench


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, 0.025),
        ({"return_mode": "min"}, 0.01),
        ({"return_mode": "all"}, [0.01, 0.03, 0.02, 0.04]),
        ({"quantiles": [0.5, 0.0, 1.0]}, [0.025, 0.01, 0.04]),
        ({"quantiles": (0.25,)}, 0.0175),
        ({"quantiles": []}, []),
        ({"quantiles": (0.25,), "return_mode": "all"}, 0.0175),
        ({"rep": 0}, 0.025),
    ],
)
def test_do_bench_returns_what_tritons_does(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], found: object
) -> None:
    """In milliseconds, quantiles interpolated, a single one without its list."""
    monkeypatch.setenv("GPU_BENCH_REPS", "4")
    assert bench.do_bench(played(*SAMPLES_US), **asked) == pytest.approx(found)


def test_do_bench_has_the_signature_of_tritons() -> None:
    theirs = inspect.signature(pytest.importorskip("triton.testing").do_bench).parameters.values()
    ours = inspect.signature(bench.do_bench).parameters.values()
    assert [(each.name, each.default) for each in ours] == [(each.name, each.default) for each in theirs]


def test_do_bench_drops_gradients_before_each_rep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_BENCH_REPS", "3")
    x = torch.ones(2, requires_grad=True)
    seen: list[object] = []

    @scripted([10.0])
    def backward() -> None:
        seen.append(x.grad)
        x.grad = torch.ones(2)

    bench.do_bench(backward, grad_to_none=[x])
    assert seen == [None] * 3


def test_an_autotuner_may_measure_in_the_first_call_of_what_is_measured() -> None:
    found: list[float] = []

    @scripted([10.0])
    def tuned() -> None:
        if not found:
            found.append(bench.do_bench(played(20)))

    assert bench.measure(tuned, reps=3).median_us == 10
    assert found == [0.02]


def test_another_thread_may_not_measure_meanwhile() -> None:
    errors: list[BaseException] = []

    def beside() -> None:
        try:
            bench.do_bench(played(20))
        except ProfilerBusy as error:
            errors.append(error)

    @scripted([10.0])
    def busy() -> None:
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()

    bench.measure(busy, reps=1)
    assert len(errors) == 1


def test_what_runs_in_tritons_interpreter_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_BENCH_DISABLE", "1")
    with pytest.raises(NotMeasured, match="do_bench has no number for '<lambda>': switched off"):
        bench.do_bench(played(10))


# turns

GPU = Device(cpu_device().torch_device, DeviceFacts(type="cuda", name="H200", host="here", uuid="GPU-of-a-script"))


def test_a_script_claims_its_gpu(tmp_path: Path) -> None:
    settings = Settings(lock_folder=str(tmp_path))
    with turn_at(GPU, settings, "judge softmax.py", claims=False):
        assert not claimants("GPU-of-a-script", tmp_path)
    with turn_at(GPU, settings, "bench.do_bench"):
        assert claimants("GPU-of-a-script", tmp_path) == {os.getpid()}


@pytest.mark.parametrize(("device", "name"), [(GPU, "GPU-of-a-script.turn"), (cpu_device(), "CPU-*.turn")])
def test_a_device_is_held_by_the_locks_of_tests(tmp_path: Path, device: Device, name: str) -> None:
    settings = Settings(lock_folder=str(tmp_path))
    with turn_at(device, settings, "bench.do_bench"), turn_at(device, settings, "bench.measure"):
        turn = LockFile(tmp_path, next(tmp_path.glob(name)).name)
        assert "bench.do_bench" in str(turn.holder())
        assert not turn.try_acquire()
    assert turn.try_acquire()
    turn.release()


def test_a_call_takes_its_turn_only_where_it_takes_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_BENCH_LOCK_FOLDER", str(tmp_path / "locks"))
    bench.measure(played(10), reps=1)
    assert not (tmp_path / "locks").exists()
    bench.measure(torch.add, 1, 1, reps=1, warmup=1, timer="wall", cache="hot")
    assert len([*(tmp_path / "locks").glob("CPU-*.turn")]) == 1
