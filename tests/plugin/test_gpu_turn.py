"""Turns: one test at a time on a GPU, in all processes; several GPUs at once; work of other processes."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench.gpu.lock import GpuLock
from tests.gpu.holding import another, held
from tests.plugin.hosts import Host, overlaps, turns_by_gpu

SIX = """
@pytest.mark.parametrize("number", range(6))
def test_it(gpu_bench, number):
    gpu_bench(fast)
    time.sleep(0.02)
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, ["GPU-a", "GPU-b"])


@pytest.fixture
def stranger() -> Iterator[int]:
    """The process id of a process that is not ours: init adopts it."""
    code = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\nsys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield int(process.stdout.readline())
    process.communicate()


CHANGES_FOLDER = """
@pytest.fixture(autouse=True)
def elsewhere(tmp_path): os.chdir(tmp_path)
"""


def test_two_runs_at_once_take_turns_wherever_their_tests_change_to(host: Host) -> None:
    host.write(CHANGES_FOLDER + SIX)
    locks = "--gpu-bench-lock-folder=locks"
    runs = [host.start(locks, CUDA_VISIBLE_DEVICES="0"), host.start("-n2", locks, CUDA_VISIBLE_DEVICES="0")]
    for run in runs:
        assert "6 passed" in run.communicate(timeout=120)[0]
    records = host.records()
    assert len(records) == 12
    assert set(turns_by_gpu(records)) == {"GPU-a"}
    assert overlaps(records) == []


def test_who_is_waited_for_is_said_and_not_for_ever(host: Host) -> None:
    host.write(SIX)
    (host.folder / "test_plain.py").write_text("def test_plain(): pass\n")
    with held(GpuLock("GPU-a", host.folder / "locks", another("test_of_another"))):
        output = host.output("-k", "0 or plain", "--gpu-bench-lock-timeout=1.2", status=1)
    assert "1 passed, 5 deselected, 1 error in" in output
    holder = rf"GPU-a, held by pid {os.getpid()} of .* \(pytest another, test_of_another, since \d\d:"
    assert re.search(rf"^gpu_bench: waiting for {holder}", output, re.MULTILINE)
    assert re.search(rf"waited \d+ s for {holder}.*wait longer with --gpu-bench-lock-timeout", output)
    with held(GpuLock("GPU-a", host.folder / "locks")):
        output = host.output("-k", "0", "--gpu-bench-lock-timeout=1", status=1)
    assert re.search(rf"no turn at GPU-a, held by pid {os.getpid()} .*, which started this process and would", output)


ARMS_NO_TIMER = """
def pytest_timeout_set_timer():
    open("armed", "w").close()
    return True
"""


def test_waiting_is_not_counted_by_a_timeout(host: Host) -> None:
    pytest.importorskip("pytest_timeout")
    host.write(SIX)
    conftest = host.folder / "conftest.py"
    conftest.write_text(conftest.read_text() + ARMS_NO_TIMER)
    with held(GpuLock("GPU-a", host.folder / "locks", another())):
        run = host.start("-k", "0", "-p", "pytest_timeout", "--timeout=600")
        assert run.stdout is not None
        end = threading.Timer(120, run.kill)  # a line that never comes fails the test, and does not hang it
        end.start()
        shown = iter(run.stdout.readline, "")
        assert any("waiting for GPU-a" in line for line in shown)
        end.cancel()
        assert not (host.folder / "armed").exists()
    assert "1 passed" in run.communicate(timeout=120)[0]
    assert (host.folder / "armed").exists()


@pytest.mark.parametrize("argument", ["--gpu-bench-disable", "--gpu-bench-timer=scripted", "--gpu-bench-device=cpu"])
def test_what_measures_nothing_on_a_gpu_does_not_hold_it(host: Host, argument: str) -> None:
    host.write(SIX)
    with held(GpuLock(["GPU-a", "GPU-b"], host.folder / "locks")):
        assert host.run("--gpu-bench-lock-timeout=0.1", argument)[0] == 0
    assert all((record.turn is not None) == argument.endswith("cpu") for record in host.records())


def test_tests_on_the_cpu_take_turns(host: Host) -> None:
    """In the workers of a run, which here sees no GPU, and beside another run, which asks for the CPU."""
    host.write(SIX)
    runs = [host.start("-n2", CUDA_VISIBLE_DEVICES=""), host.start("--gpu-bench-device=cpu")]
    for run in runs:
        assert "6 passed" in run.communicate(timeout=120)[0]
    (name,) = turns_by_gpu(host.records())
    assert name.startswith("CPU-")
    assert len(host.records()) == 12
    assert overlaps(host.records()) == []


def test_an_unusable_lock_folder_fails_the_perf_tests_with_a_sentence(host: Host) -> None:
    host.write(SIX)
    (host.folder / "test_plain.py").write_text("def test_plain(): pass\n")
    elsewhere = host.folder / "elsewhere"
    elsewhere.mkdir()
    (host.folder / "locks").symlink_to(elsewhere)
    output = host.output("-k", "0 or plain", status=1)
    assert "1 passed, 5 deselected, 1 error in" in output
    assert "is a symbolic link, which is not followed: remove it" in output
    status, output = host.run("-n1", "--max-worker-restart=0", "-k", "0")
    assert status != 0
    assert "is a symbolic link, which is not followed: remove it" in output


MARKED = """
pytestmark = []

@pytest.mark.gpu_turn
def test_turn(): assert held() == ["GPU-a"]

@pytest.mark.gpu_turn(gpus=2)
def test_both(): assert held() == ["GPU-a", "GPU-b"]

@pytest.mark.gpu_turn(gpus=None)
def test_default(): assert held() == ["GPU-a"]

def test_none(): assert held() == []

@pytest.mark.gpu_turn(3)
def test_wrong(): pass

def held():
    from pytest_gpubench.gpu.lock_file import LockFile
    from pathlib import Path
    found = []
    for uuid in ("GPU-a", "GPU-b"):
        file = LockFile(Path("locks"), f"{uuid}.turn")
        if not file.try_acquire():
            found.append(uuid)
        file.release()
    return found
"""


def test_a_mark_asks_for_a_turn(host: Host) -> None:
    host.write(MARKED)
    output = host.output(status=1)
    assert "4 passed, 1 error in" in output
    assert "gpu_turn() takes gpus= only, found 3" in output
    assert "@pytest.mark.gpu_turn(gpus=1): hold the GPU" in host.run("--markers")[1]


NOTE_HELD = """
def pytest_runtest_teardown(item):
    with open("held", "a") as file:
        print(item.module.held(), file=file)
"""


@pytest.mark.parametrize(("policy", "status", "gpus"), [("fail", 1, "[]"), ("accept", 0, "['GPU-a']")])
def test_a_test_that_is_refused_holds_no_gpu(host: Host, stranger: int, policy: str, status: int, gpus: str) -> None:
    host.write(MARKED)
    host.list_processes({"GPU-a": [stranger], "GPU-b": []})
    with (host.folder / "conftest.py").open("a") as file:
        file.write(NOTE_HELD)
    host.output("-k", "test_turn", f"--gpu-bench-busy={policy}", status=status)
    assert (host.folder / "held").read_text() == f"{gpus}\n"


SEVERAL = """
@pytest.mark.parametrize("number", range(4))
@pytest.mark.perf(gpus=2)
def test_two(gpu_bench, number):
    gpu_bench(fast)
    time.sleep(0.02)

@pytest.mark.parametrize("number", range(4))
def test_one(gpu_bench, number): gpu_bench(fast)

@pytest.mark.perf(gpus=3)
def test_three(gpu_bench): gpu_bench(fast)
"""


@pytest.mark.parametrize("mode", [[], ["-n2"]])
def test_several_gpus_all_or_none(host: Host, mode: list[str]) -> None:
    host.write(SEVERAL)
    output = host.output(*mode)
    assert "8 passed, 1 skipped in" in output
    assert "the test needs 3 GPUs, and this process may use 2" in output
    records = host.records()
    assert overlaps(records) == []
    for record in records:
        assert record.turn is not None
        assert len(record.turn.gpus) == (2 if "two" in record.nodeid else 1)
        assert record.turn.gpus[0] == record.device.uuid
        if mode:  # a worker's own GPU is cuda:0, the other cuda:1
            assert record.extra_info["now"].split(",")[: len(record.turn.gpus)] == list(record.turn.gpus)
            assert record.extra_info["seen"] == record.device.uuid


@pytest.mark.parametrize(
    ("uuid", "first"),
    [
        ("GPU-b", "GPU-b"),
        ("MIG-b", "GPU-b"),  # torch does not tell which it is
        ("GPU-z", "GPU-z"),  # NVML does not know it
        ("", "GPU-unknown"),
    ],
)
def test_the_current_gpu_is_held_first(host: Host, uuid: str, first: str) -> None:
    host.write("@pytest.mark.perf(gpus=2)\ndef test_two(gpu_bench): gpu_bench(fast)\n")
    assert host.run(FAKE_UUID=uuid)[0] == 0
    (record,) = host.records()
    assert record.turn is not None
    assert record.turn.gpus == (first, "GPU-a")


def test_a_worker_that_could_not_be_widened_says_why(host: Host) -> None:
    host.write(f"import fake_gpus\nfake_gpus.STARTED = True\n{SEVERAL}")
    _, output = host.run("-n1", "-k", "two or one")
    assert "4 passed, 4 skipped in" in output
    assert "the test needs 2 GPUs, but CUDA was started while tests were collected" in output
    assert {record.extra_info["now"] for record in host.records()} == {"GPU-a"}


def test_too_few_gpus_are_an_error_where_gpus_are_required(host: Host) -> None:
    host.write(SEVERAL)
    output = host.output("-k", "three", "--gpu-bench-require-gpu", status=1)
    assert "the test needs 3 GPUs, and this process may use 2" in output
    output = host.output("-k", "two", "--gpu-bench-device=cpu")
    assert "4 skipped" in output
    assert "the test needs 2 GPUs, and there is none to use" in output


COMES = """
import json

def list_processes(*pids): open("gpus.json", "w").write(json.dumps({"GPU-a": pids}))

def comes():
    list_processes(int(os.environ["STRANGER"]))
    return ()

@pytest.fixture(autouse=True)
def gone_again():
    yield
    if "STRANGER" in os.environ: list_processes()

@pytest.mark.perf(max_time_us=50)
def test_kept(gpu_bench): gpu_bench.measure(fast, setup=comes)

@pytest.mark.perf(max_time_us=5)
def test_broken(gpu_bench): gpu_bench.measure(fast, setup=comes)
"""


def outcomes(host: Host) -> list[str]:
    return [each.outcome.value for record in host.records() for each in record.measurements[0].verdicts]


@pytest.mark.parametrize(("policy", "outcome"), [("warn", "invalid"), ("accept", "fail")])
def test_what_a_stranger_that_comes_may_have_caused_is_invalid(
    host: Host, stranger: int, policy: str, outcome: str
) -> None:
    """A time that is kept beside it would be kept without it."""
    host.write(COMES)
    host.list_processes({"GPU-a": []})
    output = host.output(f"--gpu-bench-busy={policy}", STRANGER=str(stranger), status=1)
    assert "1 failed, 1 passed in" in output
    sentence = rf"1 other process: pid {stranger} .*began to compute on the GPU while it was measured on"
    assert re.search(sentence, output)
    assert outcomes(host) == ["pass", outcome]
    for record in host.records():
        assert bool(re.match(sentence, record.measurements[0].timing.neighbours)) == (policy == "warn")
        assert any(re.match(sentence, warning) for warning in record.warnings)


def test_what_a_stranger_may_have_caused_is_invalid_where_it_computed_meanwhile(host: Host, stranger: int) -> None:
    host.list_processes({"GPU-a": [stranger], "GPU-b": []})
    (host.folder / "shares.json").write_text(json.dumps({stranger: 6, os.getpid(): 90}))
    host.write(COMES.replace(", setup=comes", ""))
    output = host.output(CUDA_VISIBLE_DEVICES="0", status=1)
    assert outcomes(host) == ["pass", "invalid"], output
    assert "computed on the GPU while it was measured on, so this says more about the GPU" in output
    assert f"1 other process: pid {stranger} (" in output
    assert "what was measured meanwhile may be too slow" in output


def test_our_own_workers_are_not_strangers(host: Host) -> None:
    source = """
@pytest.fixture(scope="session", autouse=True)
def listed():
    import fcntl, json, subprocess
    child = subprocess.Popen(["sleep", "60"])
    with open("gpus.lock", "w") as lock:  # both workers add theirs, and read it at any time
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = json.loads(open("gpus.json").read())
        table["GPU-a"] += [os.getpid(), child.pid, os.getppid()]
        with open("gpus.new", "w") as file:
            json.dump(table, file)
        os.replace("gpus.new", "gpus.json")
    yield
    child.kill()
    child.wait()
"""
    host.write(source + SIX)
    host.list_processes({"GPU-a": []})
    assert "6 passed" in host.output("-n2", "--gpu-bench-busy=fail")


CLAIMS = """
import os, sys
from pathlib import Path
from pytest_gpubench.gpu.lock import claim_gpu
from pytest_gpubench.gpu.visible import VisibleGpu

if os.fork(): os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
sys.stdin.readline()
claim = claim_gpu([VisibleGpu("GPU-a", 0, "")], Path("locks"))
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_run_that_takes_turns_is_no_stranger(host: Host) -> None:
    """A process that is not of the run's family, but has a claim in the same folder."""
    host.write(SIX)
    command = [sys.executable, "-c", CLAIMS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=host.folder, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        host.list_processes({"GPU-a": [int(other.stdout.readline())]})
        assert "waited 0.3 s for the GPU to be free, but 1 other process" in host.output(
            "-k", "0", "--gpu-bench-busy=wait", "--gpu-bench-lock-timeout=0.3", status=1
        )
        print("claim", file=other.stdin, flush=True)
        assert other.stdout.readline() == "claimed\n"
        assert host.run("-k", "0", "--gpu-bench-busy=fail")[0] == 0


def test_a_run_signs_in_before_it_uses_the_gpu(host: Host) -> None:
    """The profiler starts when tests are collected: a run that measures meanwhile must not take that for a stranger."""
    host.write(SIX)
    (host.folder / "test_a.py").write_text("import os\ndef test_first(): assert 'GPU-a.seat0' in os.listdir('locks')\n")
    assert "7 passed" in host.output()
