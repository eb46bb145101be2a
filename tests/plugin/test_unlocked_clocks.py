"""--gpu-bench-lock-clocks without a GPU: one sentence says that nothing is locked."""

from pathlib import Path

import pytest
import torch

from tests.plugin.conftest import BenchRun
from tests.plugin.hosts import Host

LOCK = "--gpu-bench-lock-clocks=1410"
SENTENCE = "--gpu-bench-lock-clocks=1410 locks the clocks of a GPU, but the device is the CPU: "
REMEDY = "; run where there is a GPU, or leave the option out"
TEST = "@pytest.mark.perf(timer='scripted')\ndef test_it(gpu_bench): gpu_bench(fast)\n"
PLAIN = "def test_plain(): pass\n"
TURN = "@pytest.mark.gpu_turn\ndef test_turn(): pass\n"

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")


@pytest.mark.parametrize(("arguments", "why"), [([], "*"), (["--gpu-bench-device=cpu"], "--gpu-bench-device=cpu")])
def test_asked_for_on_the_command_line_it_is_a_usage_error(bench_run: BenchRun, arguments: list[str], why: str) -> None:
    result = bench_run(TEST + PLAIN, LOCK, *arguments, timer="profiler")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {SENTENCE}{why}{REMEDY}"])
    assert result.stderr.str().count("clocks of a GPU") == 1
    assert "passed" not in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        (PLAIN, [LOCK]),
        (TEST, [LOCK, "--collect-only"]),
        (TEST, [LOCK, "--gpu-bench-disable"]),
        (TEST, [LOCK, "--gpu-bench-timer=scripted"]),
        (TEST, []),
    ],
)
def test_nothing_is_said_where_nothing_would_be_measured(
    bench_run: BenchRun, source: str, arguments: list[str]
) -> None:
    result = bench_run(source, *arguments, timer="profiler")
    assert result.ret == pytest.ExitCode.OK
    assert "clocks" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("where", ["ini", "environment"])
def test_what_is_asked_for_on_all_machines_is_said_once_and_the_run_goes_on(
    bench_run: BenchRun, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A laptop runs what the ini file says for the machine with the GPU."""
    if where == "ini":
        pytester.makeini("[pytest]\ngpu_bench_lock_clocks = 1410")
    else:
        monkeypatch.setenv("GPU_BENCH_LOCK_CLOCKS", "1410")
    result = bench_run(TEST + TEST.replace("test_it", "test_again") + PLAIN, timer="profiler")
    result.assert_outcomes(passed=3)
    lines = [line for line in result.stdout.lines if "clocks" in line]
    assert len(lines) == 2, lines  # when it happens, and among the warnings at the end
    assert lines[0].startswith(f"gpu_bench: {SENTENCE}")
    assert lines[1].startswith("gpu_bench: warning: ")
    assert all(line.endswith(REMEDY) for line in lines)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path, [])
    found.write(TEST + TEST.replace("test_it", "test_again"))
    (tmp_path / "test_plain.py").write_text(PLAIN)
    return found


def test_a_worker_fails_its_perf_tests_and_no_other(host: Host) -> None:
    status, output = host.run(LOCK, "-n1")
    assert status == 1
    assert "1 passed, 2 errors in" in output
    assert output.count(f"\n{SENTENCE}") == 2, output
    assert "INTERNALERROR" not in output


def test_a_turn_without_the_fixture_is_refused_too(host: Host) -> None:
    host.write(TURN)
    status, output = host.run(LOCK)
    assert (status, "1 passed, 1 error in" in output) == (1, True), output
    assert f"\n{SENTENCE}" in output
