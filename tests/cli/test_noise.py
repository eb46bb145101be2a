"""`doctor --noise`: its processes, its statistics and its table."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import DeviceFacts, Measurement
from pytest_gpubench.cli import main, noise
from pytest_gpubench.results.model import SavedRun, TestRecord
from pytest_gpubench.results.store import read_run, write_run
from tests.results import measured
from tests.results.measured import timing_of

BAD_USAGE = 2

H200 = DeviceFacts(type="cuda", name="NVIDIA H200", host="here")
CPU = DeviceFacts(type="cpu", name="a CPU", host="here")


def record(
    median_us: float, low: float = 0.991, high: float = 1.01, device: DeviceFacts = H200, **timing: Any
) -> TestRecord:
    """Return what a process measured of a call, whose samples are 1 % apart."""
    samples = (0.99 * median_us, median_us, 1.01 * median_us)
    arm = timing_of(samples, "neg", device=device.name, **timing)
    speedup = measured.speedup_over(median_us, 1.0, (low, high) if high < math.inf else None, reference="once")
    return measured.record(
        Measurement(timing=arm),
        Measurement(timing=arm, role="reference"),
        Measurement(timing=arm, role="candidate", speedup=speedup),
        nodeid=f"test_against_itself[{round(math.log10(median_us))}]",
        device=device,
    )


def runs(*processes: Sequence[TestRecord]) -> list[SavedRun]:
    return [SavedRun(records=tuple(records), datetime="") for records in processes]


def call(median_us: float, margin: float = 0.004, tolerance: float = 0.025, seen: float = 0.01) -> noise.CallNoise:
    return noise.CallNoise(median_us, (median_us,), 40, 0.01, 0.002, seen, margin, tolerance)


# what the processes measured


def test_the_noise_of_a_call_is_that_of_all_processes() -> None:
    found = noise.call_noises(
        runs([record(100, 0.992, 1.005)], [record(101, 0.995, 1.009)], [record(102, 0.996, 1.004)])
    )
    assert [(each.median_us, each.medians_us, each.reps) for each in found] == [(101, (100, 101, 102), 3)]
    assert found[0].within == pytest.approx(0.01)
    assert found[0].between == pytest.approx(0.0099, rel=0.01)
    assert found[0].slowdown_seen == pytest.approx(0.009)
    assert found[0].least_margin == pytest.approx(0.008)


@pytest.mark.parametrize(
    ("medians_us", "least", "most"), [((100, 100, 100, 100, 100), 0.025, 0.026), ((100, 102, 98, 101, 99), 0.07, 0.2)]
)
def test_a_tolerance_holds_what_processes_differ_by(medians_us: list[float], least: float, most: float) -> None:
    """Where they hardly differ it is what a comparison with a saved run assumes."""
    (found,) = noise.call_noises(runs(*([record(each)] for each in medians_us)))
    assert least < found.least_tolerance < most


def test_calls_that_a_process_did_not_measure_are_left_out() -> None:
    """Too few reps of one see nothing."""
    whole = record(2000)
    lost = TestRecord(nodeid=whole.nodeid, device=H200, measurements=whole.measurements[:1])
    found = noise.call_noises(runs([record(200), record(2), whole], [record(2, 0.0, math.inf), record(201), lost]))
    assert [round(each.median_us) for each in found] == [2, 200]
    assert (found[0].slowdown_seen, found[0].least_margin) == (math.inf, 1.0)
    assert noise.safe_limits(found).min_speedup is None


# the limits that are safe


@pytest.mark.parametrize(
    ("margin", "tolerance", "limits"),
    [
        (0.005, 0.02, (0.995, 0.02)),
        (0.0051, 0.0201, (0.99, 0.03)),
        (-0.001, 0.001, (0.995, 0.005)),
        (0.5, 0.5, (0.5, 0.5)),
        (0.51, 0.51, (None, None)),
    ],
)
def test_limits_are_rounded_to_the_safe_side(
    margin: float, tolerance: float, limits: tuple[float | None, float | None]
) -> None:
    assert noise.safe_limits([call(20, margin, tolerance), call(200, 0.0, 0.0)]) == limits


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        (
            [call(2, 0.03, 0.04), call(20.5), call(200, 0.01)],
            "Safe here: min_speedup=0.99 or less and max_regression=0.03 or more for calls of 20.50 us and more, "
            "min_speedup=0.97 or less and max_regression=0.05 or more for shorter ones.",
        ),
        ([call(2), call(20)], "Safe here: min_speedup=0.995 or less and max_regression=0.03 or more."),
        ([call(20, 0.03), call(200)], "Safe here: min_speedup=0.97 or less and max_regression=0.03 or more."),
        ([call(20, 0.9, math.inf)], "Safe here: no min_speedup and no max_regression."),
    ],
)
def test_what_is_advised(calls: list[noise.CallNoise], sentence: str) -> None:
    assert noise.advice(calls) == sentence


def test_the_table_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    made = runs([record(2000, throttle_reasons=("software thermal slowdown",), flags=("throttled",))])
    calls = [call(1.234, seen=0.123), call(2000, 0.9, math.inf, seen=math.inf)]
    lines = "\n".join(noise.noise_lines(made, calls)).split("\n")
    assert max(map(len, lines)) <= 80
    assert lines[0] == "NVIDIA H200: profiler timer, cold cache"
    assert [line.split() for line in lines[3:5]] == [
        ["1.234", "us", "40", "1.0", "%", "0.20", "%", "12", "%", "0.995", "0.03"],
        ["2.000", "ms", "40", "1.0", "%", "0.20", "%", "-", "-", "-"],
    ]
    assert "the GPU was throttled in" in "\n".join(lines)
    on_cpu = noise.noise_lines(runs([record(20, device=CPU)]), calls)
    assert on_cpu[0] == "no GPU is found, this is the CPU, a CPU: profiler timer, cold cache"


# the processes


class FakePytest:
    """Stand for pytest in a fresh process: write the results of one call, slower by 1 % each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.environments: list[Mapping[str, str]] = []
        self.interrupt_at = self.lost_at = 0
        monkeypatch.setattr(noise, "run_logged", self.run)

    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> int:
        self.environments.append(environment)
        number = len(self.environments)
        if number == self.interrupt_at:
            raise KeyboardInterrupt
        log.write_text("E   out of memory\n")
        records = () if number == self.lost_at else (record(100 + number), record(2))
        results = next(word.partition("=")[2] for word in command if word.startswith("--gpu-bench-json="))
        write_run(SavedRun(records=records, datetime="2026-03-01T12:30:45+00:00"), Path(results))
        return 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePytest:
    return FakePytest(monkeypatch)


def test_five_processes_with_default_settings(
    fake: FakePytest, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GPU_BENCH_REPS", "GPU_BENCH_LOCK_FOLDER", "PYTEST_ADDOPTS"):
        monkeypatch.setenv(name, "1")
    path = tmp_path / "noise.json"
    assert main(["doctor", "--noise", "--json", str(path)]) == 0
    out, err = capsys.readouterr()
    first, *others = err.splitlines()
    assert first == "gpu_bench: 5 processes measure calls against themselves, which takes about 60 s"
    assert [line.split(":")[1] for line in others] == [f" process {n} of 5" for n in range(1, 6)]
    assert ("103.0 us" in out, len(fake.environments)) == (True, 5)
    assert fake.environments[0]["GPU_BENCH_LOCK_FOLDER"] == "1"
    assert not {"GPU_BENCH_REPS", "PYTEST_ADDOPTS"} & fake.environments[0].keys()
    found = json.loads(path.read_text())
    assert (found["device"], found["processes"], found["budget_s"], found["alpha"]) == ("NVIDIA H200", 5, 1.0, 0.001)
    assert found["calls"][1]["medians_us"] == [101, 102, 103, 104, 105]
    assert found["calls"][1]["min_speedup"] == 0.99


def test_ctrl_c_and_a_process_that_measures_nothing_end_it(
    fake: FakePytest, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.interrupt_at = 2
    assert main(["doctor", "--noise"]) == 130
    fake.lost_at = 5
    assert main(["doctor", "--noise"]) == BAD_USAGE
    out, err = capsys.readouterr()
    assert (out, len(fake.environments)) == ("", 5)
    assert "a process measured nothing (exit status 1); it ended with:\n    E   out of memory" in err
    assert main(["doctor", "--json", "noise.json"]) == BAD_USAGE
    assert "--json is for what --noise finds: give --noise too" in capsys.readouterr().err


def test_what_a_process_measures(pytester: pytest.Pytester) -> None:
    """The tests of a process run here, on the CPU, with hardly any time."""
    results = pytester.path / "results.json"
    options = ["--gpu-bench-budget-s=0.01", f"--gpu-bench-json={results}", "--noconftest", "-k", "200.0"]
    pytester.runpytest_inprocess("-p", "no:benchmark", *options, f"{noise.TESTS}::test_against_itself")
    (found,) = noise.call_noises([read_run(results)] * 2)
    assert len(found.medians_us) == 2
    assert found.reps >= 24
    assert found.median_us > 0
