"""`bisect --replay`: the search over saved runs, whose calls are replayed by a driver of tables."""

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpubench.replay import baselines, comparison, stored
from pytest_gpubench.replay.baselines import keep
from pytest_gpubench.replay.capture import capture_call
from pytest_gpubench.replay.stored import StoredPair
from pytest_gpubench.results.store import Storage
from pytest_gpubench.results.store.calls import CallStore
from pytest_gpubench.verdict.replays import Replay
from tests.cli.stored import Command, dated
from tests.replay.fake_graphs import FakeFunction
from tests.replay.on_cpu import OnCpu, make_on_cpu, numbers
from tests.results.measured import alone, kernel, record, run
from tests.timing.fake_gpu import FakeGpu, gpu, streams
from tests.timing.fakes import ArmsTimer, Clock, rep

__all__ = ["gpu", "streams"]  # fixtures

NODEID = "a.py::test_it"
Times = dict[bytes, float]
"""In us, by the image that takes so long."""


@pytest.fixture
def on_cpu(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OnCpu:
    found = make_on_cpu(streams, monkeypatch)
    monkeypatch.setattr(stored, "find_builder", lambda: found.builder)
    monkeypatch.setattr("pytest_gpubench.gpu.device.find_device", lambda wanted: {"cuda": found.device}[wanted])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return found


def timed(on_cpu: OnCpu, times_us: Times, monkeypatch: pytest.MonkeyPatch, noise: float = 0.0, seed: int = 0) -> None:
    """Let each image take its time; in times_us, the older call of a pair comes first."""
    chance = random.Random(seed)

    def make_timer(*args: object) -> ArmsTimer:
        pair = on_cpu.cuda.loaded[-2:]
        old, new = sorted(pair, key=list(times_us).index)
        by_arm = {"saved": times_us[old], "today": times_us[new]}
        return ArmsTimer(Clock(), lambda name, at: rep(by_arm[name] * (1 + noise * chance.gauss(0, 1))))

    monkeypatch.setattr(comparison, "make_timer", make_timer)


def save_runs(on_cpu: OnCpu, images: list[bytes], label: str = "scale") -> None:
    """Save a run for each image, whose test keeps a call of it; none where it is empty."""
    for number, image in enumerate(images, 1):
        item = alone(label, 10.0, kernels=(kernel("scale"), *([kernel("copy_")] if image == b"slow" else [])))
        if image:
            on_cpu.cuda.images[image] = [FakeFunction("scale", (8, 8, 8, 4))]
            on_cpu.by_image = image
            captured = capture_call(on_cpu.call(numbers(), on_cpu.y), on_cpu.device, on_cpu.builder)
            item = msgspec.structs.replace(item, call=keep(captured, CallStore(Path("runs"))))
        tools = {"torch": f"2.{11 + number // 20}", "triton": f"3.{5 + (number >= 4) + (number >= 9)}"}
        saved = dated(run(record(item, nodeid=NODEID), machine_info=tools), number % 28 + 1, f"{number:08x}")
        Storage(Path("runs")).save_each(saved, f"run{number}")


def images_of(slower_from: int, total: int = 64) -> Times:
    """Return an image for each run, which all are other code."""
    return {b"image %d" % number: 10.2 if number >= slower_from else 10.0 for number in range(1, total + 1)}


WORDS = ("bisect", "run1", "latest", "--replay", "test_it", "--fail-slower", "1%", "--storage", "runs")


def test_a_step_of_2_percent_among_64_runs_is_found_10_times_of_10(
    on_cpu: OnCpu, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 0.3 % of noise; without a checkout, by seven comparisons at most."""
    save_runs(on_cpu, list(images_of(0)))
    for seed, slower_from in enumerate([2, 3, 9, 17, 32, 33, 34, 50, 63, 64]):
        timed(on_cpu, images_of(slower_from), monkeypatch, 0.003, seed)
        status, out, err = command(*WORDS)
        *_, verdict, counts, last = out.splitlines()
        assert status == 1, err
        assert verdict.startswith(f"FAIL          {NODEID} [scale]: scale is slower than in run 0001 (2026-03-02 ")
        assert "x of its replayed time" not in verdict or "replayed in turn" in verdict
        assert counts == "gpu_bench: 1 measurement compared: 1 fail"
        assert last.startswith(f"{NODEID} [scale] is slower since run {slower_from:04} (")
        assert f", {slower_from:08x})" in last
        assert int(last.split("(")[-1].split()[0]) <= 7


@pytest.mark.parametrize(("runs", "comparisons"), [(2, 1), (3, 2), (5, 3), (6, 4)])
def test_alpha_is_of_all_comparisons_together(
    runs: int, comparisons: int, on_cpu: OnCpu, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    alphas = []

    def compare(calls: object, store: object, trusted: object, how: tuple[Any, ...], *others: object) -> Replay:
        alphas.append(how[1].alpha)
        return Replay(None)

    save_runs(on_cpu, [b"%d" % number for number in range(runs)])
    monkeypatch.setattr(baselines, "compare_kept", compare)
    assert command(*WORDS)[0] == 0
    assert alphas == [pytest.approx(0.01 / comparisons)]


def test_runs_of_the_same_code_are_not_timed(on_cpu: OnCpu, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run keeps the first call or the second: one comparison, whatever the number of runs."""
    fast, slow = b"fast", b"slow"
    save_runs(on_cpu, [fast] * 8 + [slow] * 4)
    timed(on_cpu, {fast: 10.0, slow: 10.2}, monkeypatch)
    status, out, _ = command(*WORDS)
    told = "slower since run 0009 (2026-03-10 12:30 UTC, 00000009), with triton 3.6 -> 3.7 (2 comparisons)"
    assert (status, f"{NODEID} [scale] is {told}" in out) == (1, True)
    assert "with it: one more kernel: copy_" in out
    assert len(on_cpu.cuda.loaded) == 4  # of one pair, in both orders
    timed(on_cpu, {fast: 10.0, slow: 10.05}, monkeypatch)
    status, out, _ = command(*WORDS)
    assert (status, "PASS" in out, "slower since" in out) == (0, True, False)
    loaded = len(on_cpu.cuda.loaded)
    status, out, _ = command("bisect", "run9", "latest", *WORDS[3:])
    assert (status, "scale is the same call as in run 0009" in out) == (0, True)
    assert len(on_cpu.cuda.loaded) == loaded


def test_a_run_that_cannot_be_compared_is_skipped_and_those_without_the_call_are_left_out(
    on_cpu: OnCpu, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_runs(on_cpu, [b"first", b"", b"damaged", b"slow"])
    store = CallStore(Path("runs"))
    (path,) = [store.path(name) for name in store.names() if store.read(name) == b"damaged"]
    path.write_bytes(path.read_bytes()[:40])
    timed(on_cpu, {b"first": 10.0, b"slow": 10.2}, monkeypatch)
    status, out, err = command(*WORDS)
    assert (status, "skip: run 0003" in err) == (1, True)
    assert re.search(r"is slower since one of these, of which the others were skipped: 0003 \(.*\), 0004 \(", out)


def test_inputs_that_break_a_call_leave_it_open(
    on_cpu: OnCpu, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    save_runs(on_cpu, [b"one", b"other"])
    monkeypatch.setattr(comparison, "time_in_turn", fail)
    status, out, _ = command(*WORDS)
    assert (status, "scale cannot be compared with run 0001 (" in out) == (125, True)
    assert ": CUDA error: an illegal memory access was encountered\n" in out


@pytest.mark.parametrize("trusted", [False, True])
def test_calls_from_elsewhere_are_replayed_in_another_process_where_they_are_trusted(
    trusted: bool, on_cpu: OnCpu, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save_runs(on_cpu, [b"one", b"other"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    timed(on_cpu, {b"one": 10.0, b"other": 10.2}, monkeypatch)
    asked = []

    def compare_isolated(pair: StoredPair, say: object) -> Replay:
        asked.append(pair.inputs)
        return pair.compare(on_cpu.device, lambda text: None)

    monkeypatch.setattr(baselines, "compare_isolated", compare_isolated)
    status, out, _ = command(*WORDS, *(["--trust-calls"] if trusted else []))
    assert status == (1 if trusted else 125)
    assert ("not saved by this user on this machine" in out) is not trusted
    assert asked == [None] * trusted


IN_BOTH = "no call of {!r} is in both runs: they "


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run1 --replay it", "--replay searches between two saved runs: give GOOD and BAD"),
        ("run2 run1 --replay it", "run1 is not newer than run2: GOOD comes first"),
        ("run1 run1 --replay it", "run1 is not newer than run1: GOOD comes first"),
        ("run1 run9 --replay it", "there is no saved run and no file 'run9'"),
        ("run1 run2 --replay other", IN_BOTH.format("other") + "share no test of this name"),
        ("run1 run3 --replay it", IN_BOTH.format("it") + "were saved without calls"),
        (
            "run1 run2 --replay it --setup make --rounds 2",
            "--replay searches saved runs, and runs no tests: leave out --setup, --rounds",
        ),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(words: str, sentence: str, on_cpu: OnCpu, command: Command) -> None:
    save_runs(on_cpu, [b"one", b"other", b""])
    status, out, err = command("bisect", *words.split(), "--storage", "runs")
    assert (status, out) == (125, "")
    assert err.startswith(f"pytest-gpubench bisect: {sentence}")


def test_one_call_is_timed_again_beside_its_saved_time(
    on_cpu: OnCpu, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`replay`, which compares nothing."""
    save_runs(on_cpu, [b"one"])
    monkeypatch.setattr(stored, "make_timer", lambda *args: ArmsTimer(Clock(), lambda name, at: rep(12.0)))
    status, out, _ = command("replay", "run1", "test_it", "--storage", "runs")
    first, *kernels, last = out.splitlines()
    assert (status, first.split(" (")[0]) == (0, f"{NODEID}: scale takes 12.00 us")
    assert first.endswith("), and took 10.00 us when it was saved")
    assert kernels == ["  a: 12.00 us"]
    assert last.startswith("its inputs are made up")
