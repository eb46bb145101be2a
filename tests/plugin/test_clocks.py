"""Locked clocks in real runs, by an NVML that records what would be changed and changes nothing."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest
import torch

from pytest_gpubench.cli import main
from pytest_gpubench.gpu.lock_file import LockFile
from tests.gpu.holding import leave_clocks_locked
from tests.gpu.recording_nvml import RESET, RESET_MEMORY, SET, SET_MEMORY, Recording, changes
from tests.plugin.conftest import BenchRun
from tests.plugin.hosts import KEEP, Host

TURN = [SET, SET_MEMORY, "ran", RESET, RESET_MEMORY]
LOCK = "--gpu-bench-lock-clocks=1410"

RECORDING = """
import json, os, sys
from pathlib import Path
import fake_gpus
from pytest_gpubench.gpu.lock_file import LockFile

class Watching(fake_gpus.HostNvml):
    def change(self, what, gpu, *clocks):
        turn = LockFile(self.folder, f"{gpu}.turn")
        assert not turn.try_acquire(), "clocks are changed without a turn"
        super().change(what, gpu, *clocks)

sys.modules["pynvml"] = Watching(**json.loads(os.environ.get("FAKE_NVML", "{}")))
"""

TESTS = """
def ran():
    with open("locks/changes", "a") as file:
        print('["ran", "GPU-a", [], true, 0]', file=file)

def test_it(gpu_bench):
    gpu_bench(fast)
    ran()
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path, ["GPU-a", "GPU-b"])
    (tmp_path / "conftest.py").write_text(RECORDING + KEEP)
    found.write(TESTS)
    return found


def whats(host: Host, gpu: str = "GPU-a") -> list[str]:
    return [change.what for change in changes(host.folder / "locks") if change.gpu == gpu]


def records(host: Host) -> list[str]:
    return sorted(path.name for path in (host.folder / "locks").glob("*.clocks.json"))


# a turn


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        ([], TESTS),
        ([LOCK, "--gpu-bench-disable"], "def test_it(gpu_bench): gpu_bench(fast)\n"),
        ([LOCK], "pytestmark = []\ndef test_plain(): pass\n"),
    ],
)
def test_clocks_are_not_touched_unless_asked_for_and_measured(host: Host, arguments: list[str], source: str) -> None:
    host.write(source.replace("    ran()", ""))
    leave_clocks_locked(host.folder / "locks", "GPU-a")
    assert host.run(*arguments)[0] == 0
    assert whats(host) == []
    assert records(host) == ["GPU-a.clocks.json"]


def test_all_gpus_of_a_test(host: Host) -> None:
    host.write("@pytest.mark.perf(gpus=2)\ndef test_two(gpu_bench): gpu_bench(fast)\n")
    assert host.run(LOCK)[0] == 0
    both = [*TURN[:2], *TURN[3:]]
    assert (whats(host), whats(host, "GPU-b")) == (both, both)
    assert [change.gpu[-1] for change in changes(host.folder / "locks")] == list("aabbbbaa")


def test_given_back_however_a_test_ends(host: Host) -> None:
    endings = ["assert not 'so'", "sys.exit(3)", "raise KeyboardInterrupt"]
    tests = [f"def test_{number}(gpu_bench): test_it(gpu_bench); {end}\n" for number, end in enumerate(endings)]
    host.write(TESTS + "".join(tests))
    assert host.run(LOCK, "-k", "test_0 or test_1 or test_2")[0] == 2
    assert whats(host) == TURN * 3
    assert records(host) == []


@pytest.mark.parametrize(
    ("arguments", "number"), [([], signal.SIGTERM), ([], signal.SIGINT), (["-n1"], signal.SIGTERM)]
)
def test_given_back_where_a_signal_ends_the_process(host: Host, arguments: list[str], number: int) -> None:
    """Also before anything is measured."""
    host.write(f"@pytest.fixture(autouse=True)\ndef ends():\n    os.kill(os.getpid(), {number})\n{TESTS}")
    assert host.run(LOCK, *arguments)[0] != 0
    assert whats(host) == [SET, SET_MEMORY, RESET, RESET_MEMORY]
    assert records(host) == []


def test_after_a_kill_the_next_turn_with_the_option_gives_them_back_and_says_so(host: Host) -> None:
    host.write(f"{TESTS}    os.kill(os.getpid(), {int(signal.SIGKILL)})\n")
    assert host.run(LOCK)[0] == -signal.SIGKILL
    assert (whats(host), records(host)) == (TURN[:3], ["GPU-a.clocks.json"])
    host.write(TESTS)
    output = host.output(LOCK)
    assert whats(host) == [*TURN[:3], RESET, RESET_MEMORY, *TURN]
    sentence = (
        r"the clocks of GPU-a were left locked at 1410 MHz \(memory 3201 MHz\) by pid \d+ of .*; they are given back"
    )
    assert re.search(rf"^gpu_bench: {sentence}", output, re.MULTILINE)
    assert re.search(sentence, host.records()[-1].warnings[0])
    assert records(host) == []


# what cannot be


def test_a_test_whose_clocks_cannot_be_locked_fails_with_one_sentence(host: Host) -> None:
    host.write(TESTS + "def test_other(gpu_bench): test_it(gpu_bench)\n")
    (host.folder / "test_plain.py").write_text("def test_plain(): pass\n")
    status, output = host.run(LOCK, FAKE_NVML=json.dumps({"broken": {SET: "NoPermission"}}))
    assert (status, "1 passed, 2 errors in" in output) == (1, True), output
    assert output.count("\nasked to lock the clocks of GPU-a, but this user has not the rights: run as root") == 2, (
        output
    )
    assert whats(host) == []
    assert records(host) == []
    assert LockFile(host.folder / "locks", "GPU-a.turn").try_acquire(), "the turn was given back"


# the doctor


def test_the_doctor_gives_back_what_the_dead_left(
    host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is told itself, or where the runs are told to lock; it looks for no GPU."""
    locks = host.folder / "locks"
    for gpu in ("GPU-a", "GPU-b"):
        leave_clocks_locked(locks, gpu)
    fake = Recording(locks, gpus=("GPU-a", "GPU-b"), broken={RESET: "NoPermission"})
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr("pytest_gpubench.gpu.device.find_device", lambda wanted: pytest.fail("it was looked for a GPU"))
    assert main(["doctor", "--restore-clocks", f"--lock-folder={locks}"]) == 1
    assert capsys.readouterr().out.count("they could not be given back") == 2
    fake.broken.clear()
    monkeypatch.setenv("GPU_BENCH_LOCK_FOLDER", str(locks))
    assert main(["doctor", "--restore-clocks"]) == 0
    assert capsys.readouterr().out.count("which has ended; they are given back") == 2
    assert (whats(host)[-2:], whats(host, "GPU-b")[-2:]) == ([RESET, RESET_MEMORY], [RESET, RESET_MEMORY])
    assert records(host) == []
    assert main(["doctor", "--restore-clocks"]) == 0
    assert capsys.readouterr().out == "no clocks to give back\n"


# no GPU: one sentence says that nothing is locked

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
SENTENCE = "--gpu-bench-lock-clocks=1410 locks the clocks of a GPU, but the device is the CPU: "
REMEDY = "; run where there is a GPU, or leave the option out"
BENCH = "@pytest.mark.perf(timer='scripted')\ndef test_it(gpu_bench): gpu_bench(fast)\n"
PLAIN = "def test_plain(): pass\n"
PLAIN_TURN = "@pytest.mark.gpu_turn\ndef test_turn(): pass\n"


@no_gpu
@pytest.mark.parametrize(("arguments", "why"), [([], "*"), (["--gpu-bench-device=cpu"], "--gpu-bench-device=cpu")])
def test_asked_for_on_the_command_line_it_is_a_usage_error(bench_run: BenchRun, arguments: list[str], why: str) -> None:
    result = bench_run(BENCH + PLAIN, LOCK, *arguments, timer="profiler")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {SENTENCE}{why}{REMEDY}"])
    assert result.stderr.str().count("clocks of a GPU") == 1
    assert "passed" not in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


@no_gpu
@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        (PLAIN, [LOCK]),
        (BENCH, [LOCK, "--collect-only"]),
        (BENCH, [LOCK, "--gpu-bench-disable"]),
        (BENCH, [LOCK, "--gpu-bench-timer=scripted"]),
        (BENCH, []),
    ],
)
def test_nothing_is_said_where_nothing_would_be_measured(
    bench_run: BenchRun, source: str, arguments: list[str]
) -> None:
    result = bench_run(source, *arguments, timer="profiler")
    assert result.ret == pytest.ExitCode.OK
    assert "clocks" not in result.stdout.str() + result.stderr.str()


@no_gpu
def test_what_is_asked_for_on_all_machines_is_said_once_and_the_run_goes_on(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_BENCH_LOCK_CLOCKS", "1410")
    result = bench_run(BENCH + BENCH.replace("test_it", "test_again") + PLAIN, timer="profiler")
    result.assert_outcomes(passed=3)
    lines = [line for line in result.stdout.lines if "clocks" in line]
    assert len(lines) == 2, lines  # when it happens, and among the warnings at the end
    assert lines[0].startswith(f"gpu_bench: {SENTENCE}")
    assert lines[1].startswith("gpu_bench: warning: ")
    assert all(line.endswith(REMEDY) for line in lines)


@no_gpu
def test_a_worker_fails_tests_that_take_a_turn_and_no_other(tmp_path: Path) -> None:
    host = Host(tmp_path, [])
    host.write(BENCH + PLAIN_TURN)
    (tmp_path / "test_plain.py").write_text(PLAIN)
    output = host.output(LOCK, "-n1", status=1)
    assert "1 passed, 2 errors in" in output
    assert output.count(f"\n{SENTENCE}") == 2, output
    assert "INTERNALERROR" not in output
