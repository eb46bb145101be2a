"""Calls of a test that are kept in the storage, read back, and refused where they cannot be used."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from pytest_gpubench import BadFile, Kernel, Measurement, MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.replay import baselines, builder, comparison
from pytest_gpubench.replay.baselines import ReplayableCalls, read_captured
from pytest_gpubench.replay.driver import DriverError
from pytest_gpubench.replay.loaded_images import LoadedImages
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.stored import StoredPair
from pytest_gpubench.results.store.calls import CallStore
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.verdict.replays import Replay
from tests.replay.on_cpu import IMAGE, OTHER, OnCpu, numbers, raising
from tests.results.measured import alone
from tests.timing.fakes import ArmsTimer, Clock, rep

ITEM = alone("scale", 10.0)


@pytest.fixture
def on_cpu(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OnCpu:
    monkeypatch.setattr(baselines, "find_builder", lambda: on_cpu.builder)
    monkeypatch.setattr(comparison, "make_timer", lambda *args: ArmsTimer(Clock(), lambda name, at: rep(10.0)))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return on_cpu


def calls_of(on_cpu: OnCpu, settings: Settings | None = None) -> ReplayableCalls:
    call = on_cpu.call(numbers(), on_cpu.y)
    return ReplayableCalls({"scale": call}, on_cpu.device, settings or Settings(storage="runs"))


def replayed(calls: ReplayableCalls, old: Measurement) -> Replay | str:
    plan = Plan("cold", None, None, 0.005, 1e9)
    return calls.replay(ITEM, old, parse_tolerance("median:2%"), plan, lambda text: None)


def saved(on_cpu: OnCpu, image: bytes = IMAGE) -> Measurement:
    on_cpu.by_image = image
    found = calls_of(on_cpu).with_call(ITEM)
    on_cpu.by_image = IMAGE
    return found


def test_a_kept_call_is_read_back_with_its_images(
    on_cpu: OnCpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(storage="runs")
    with monkeypatch.context() as test:
        test.chdir(tmp_path / "..")
        found = calls_of(on_cpu, settings).with_call(ITEM)
    captured = read_captured(found.call, CallStore(Path("runs")))
    assert captured.images == dict.fromkeys(captured.data.images, IMAGE)
    assert captured.data.label == "scale"
    assert Path("runs/.gitignore").read_text() == "*\n"
    assert saved(on_cpu) == found
    assert len(list(CallStore(Path("runs")).names())) == 2


def test_today_is_compared_with_what_was_kept(on_cpu: OnCpu) -> None:
    """Captured once for both."""
    calls, old, other = calls_of(on_cpu), saved(on_cpu), saved(on_cpu, OTHER)
    calls.with_call(ITEM)
    made = on_cpu.calls
    assert replayed(calls, old) == Replay(None)
    assert on_cpu.calls == made
    found = replayed(calls, other)
    assert isinstance(found, Replay)
    assert found.found is not None


@pytest.mark.parametrize(
    ("name", "launches", "reason"),
    [
        ("scale", 1, ""),
        ("scale", 2, "captured as a CUDA graph, it launches other kernels: "),
        ("another", 1, "captured as a CUDA graph, it launches other kernels: "),
    ],
)
def test_a_call_that_does_other_work_when_it_is_captured_is_not_replayed(
    on_cpu: OnCpu, name: str, launches: int, reason: str
) -> None:
    """A function can ask whether it is captured: what it then launches says nothing of what was timed."""
    timed = alone("scale", 10.0, kernels=(Kernel(name=name, kind="kernel", launches=launches, median_us=10.0),))
    found = calls_of(on_cpu).with_call(timed)
    assert (found.no_call or "").startswith(reason)
    assert bool(found.call) == (not reason)
    plan = Plan("cold", None, None, 0.005, 1e9)
    replay = calls_of(on_cpu).replay(timed, saved(on_cpu), parse_tolerance("median:2%"), plan, lambda text: None)
    assert isinstance(replay, str) == bool(reason)


def test_todays_call_that_cannot_be_replayed_says_why(on_cpu: OnCpu) -> None:
    old = saved(on_cpu)
    on_cpu.by_image = b""
    assert replayed(calls_of(on_cpu), old) == (
        "today's call cannot be replayed: the images of its kernels were not found in this process's memory: scale"
    )


@pytest.mark.parametrize(("kept", "is_kept"), [("triton", False), ("all", True)])
def test_a_call_of_a_library_is_kept_where_all_are(
    kept: Literal["triton", "all"], is_kept: bool, on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And replayed wherever it was kept, whatever is kept today."""
    monkeypatch.setattr(LoadedImages, "image_of", lambda self, function, symbol: IMAGE)
    on_cpu.by_image = b""
    calls = calls_of(on_cpu, Settings(storage="runs", save_calls=kept))
    found, made = calls.with_call(ITEM), on_cpu.calls
    assert (calls.with_call(ITEM), on_cpu.calls) == (found, made), "it is captured once"
    why = "it launches kernels that Triton did not compile: scale (--gpu-bench-save-calls=all keeps such calls)"
    assert (bool(found.call), found.no_call) == (is_kept, "" if is_kept else why)
    assert replayed(calls_of(on_cpu), found) == (Replay(None) if is_kept else "")


def test_a_call_of_another_user_is_replayed_only_where_it_is_trusted(
    on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = saved(on_cpu)
    assert replayed(calls_of(on_cpu, Settings(storage="elsewhere")), old) == "the saved call is not in elsewhere"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    found = replayed(calls_of(on_cpu), old)
    assert isinstance(found, str)
    assert "--gpu-bench-trust-calls" in found
    trusting = Settings(storage="runs", trust_calls=True)
    assert replayed(calls_of(on_cpu, trusting), old) == Replay(None)


def test_a_call_from_elsewhere_is_timed_in_another_process_on_todays_inputs(
    on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever it breaks there leaves the test its numbers."""
    old = saved(on_cpu, OTHER)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    asked: list[StoredPair] = []

    def compare_isolated(
        pair: StoredPair, say: object, inputs: Callable[[], Mapping[tuple[str, ...], torch.Tensor]]
    ) -> Replay:
        asked.append(replace(pair, inputs=inputs()))
        raise NotReplayable("it gave no answer")

    monkeypatch.setattr(baselines, "compare_isolated", compare_isolated)
    trusting = Settings(storage="runs", trust_calls=True)
    assert replayed(calls_of(on_cpu, trusting), old) == "it gave no answer"
    (pair,) = asked
    assert [[*each.images.values()] for each in (pair.old, pair.new)] == [[OTHER], [IMAGE]]
    assert pair.inputs is not None
    given = [each.view(torch.float32).tolist() for each in pair.inputs.values()]
    assert given == [numbers().tolist(), on_cpu.y.tolist()]
    assert on_cpu.cuda.loaded[2:] == []  # but for the proofs of both


@pytest.mark.parametrize("which", ["the call", "its image"])
def test_a_damaged_call_is_an_error(which: str, on_cpu: OnCpu) -> None:
    old, store = saved(on_cpu), CallStore(Path("runs"))
    name = old.call if which == "the call" else next(each for each in store.names() if each != old.call)
    packed = bytearray(store.path(name).read_bytes())
    packed[-1] ^= 1
    store.path(name).write_bytes(packed)
    with pytest.raises(BadFile, match="damaged: save the run again"):
        replayed(calls_of(on_cpu), old)


def test_what_times_no_replays_keeps_none(on_cpu: OnCpu) -> None:
    wall = replace(Settings(storage="runs"), timer="graph")
    assert calls_of(on_cpu, wall).with_call(ITEM).no_call == (
        "timer='graph' does not time replays: use one of profiler, events"
    )
    on_the_cpu = replace(calls_of(on_cpu), device=cpu_device())
    assert on_the_cpu.with_call(ITEM).no_call == "only calls on a GPU can be replayed"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MeasurementError("a record is missing"), "a record is missing"),
        (torch.OutOfMemoryError("full"), "there is no room for its memory beside today's"),
        (DriverError("cuGraphLaunch fails"), "cuGraphLaunch fails"),
    ],
)
def test_replays_that_cannot_be_timed_leave_it_to_the_numbers(
    error: Exception, reason: str, on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = saved(on_cpu, OTHER)
    monkeypatch.setattr(comparison, "time_in_turn", raising(error))
    assert replayed(calls_of(on_cpu), old) == reason
    assert (on_cpu.cuda.modules, on_cpu.cuda.executables) == ({}, {})


def test_an_old_driver_is_a_reason(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    old, why = saved(on_cpu), "the CUDA driver is too old to build graphs with"
    monkeypatch.setattr(baselines, "find_builder", builder.find_builder)
    monkeypatch.setattr(builder, "load_driver", lambda kind: None)
    builder.find_builder.cache_clear()
    assert calls_of(on_cpu).with_call(ITEM).no_call == why
    assert replayed(calls_of(on_cpu), old) == f"today's call cannot be replayed: {why}"


def test_a_storage_that_cannot_be_written_costs_no_measurement(on_cpu: OnCpu) -> None:
    Path("runs").write_text("a file")
    found = calls_of(on_cpu).with_call(ITEM)
    assert found.call == ""
    assert "cannot be written" in found.no_call
