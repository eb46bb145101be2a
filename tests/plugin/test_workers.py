"""xdist workers: their number, the GPU that each sees, and recovery when one ends."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_gpubench.plugin.workers import Workers
from pytest_gpubench.results.store import read_run
from pytest_gpubench.settings import Settings
from tests.gpu.recording_nvml import nvml_of
from tests.plugin.conftest import BenchRun
from tests.plugin.hosts import Host, overlaps

FOUR = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]

TWELVE = """
@pytest.mark.parametrize("number", range(12))
def test_it(gpu_bench, number):
    gpu_bench(fast)
    time.sleep(0.01)
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, FOUR)


def test_auto_is_one_worker_for_each_gpu(host: Host) -> None:
    host.list_processes({"GPU-a": [], "GPU-b": [], "GPU-c": []})
    host.write(f"{TWELVE}\ndef test_count(): assert os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] == '1'\n")
    output = host.output("-n", "auto")
    assert "created: 3/3 workers" in output
    assert "gpu_bench: 0.1.0, 3 x Fake GPU" in output
    records = host.records()
    assert len(records) == 12
    seen = {str(record.extra_info["pid"]): record.extra_info["seen"] for record in records}
    assert sorted(set(seen.values())) == sorted(seen.values())  # no two workers have one GPU
    for record in records:
        assert record.turn is not None
        assert (record.device.uuid,) == record.turn.gpus == (record.extra_info["seen"],)
    assert overlaps(records) == []


CORES = 77
"""The number of workers that xdist chooses."""


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, 4),
        ([], {"CUDA_VISIBLE_DEVICES": "2,0"}, 2),
        ([], {"CUDA_VISIBLE_DEVICES": "GPU-c"}, 1),
        ([], {"CUDA_VISIBLE_DEVICES": ""}, CORES),
        (["--gpu-bench-device=cpu"], {}, CORES),
        (["--gpu-bench-skip"], {}, CORES),
        (["-m", "not perf"], {}, CORES),
        (["-m", "perf and not perf_slow"], {}, 4),
        (["-n", "logical"], {}, CORES),
        ([], {"PYTEST_XDIST_AUTO_NUM_WORKERS": "3"}, 3),
    ],
)
def test_how_many_workers(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environment: dict[str, str],
    expected: int,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml_of(dict.fromkeys(FOUR, ())))
    for name in ("PYTEST_XDIST_AUTO_NUM_WORKERS", "PYTEST_XDIST_WORKER", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)  # a worker would pin itself here
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    number = [] if "-n" in arguments else ["-n", "auto"]
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(CORES))
    config = pytester.parseconfig("-p", "xdist.plugin", *number, *arguments)
    assert config.hook.pytest_xdist_auto_num_workers(config=config) == expected


def test_a_bad_setting_is_a_usage_error_for_auto_too(bench_run: BenchRun) -> None:
    result = bench_run("def test_it(): pass", "-n", "auto", "--gpu-bench-reps=0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gpu-bench-reps: '0' is not valid*"])


@pytest.mark.parametrize(
    ("workers", "listed", "seen"),
    [("0", "0", {"0"}), ("2", "3,1", {"GPU-d", "GPU-b"}), ("1", "GPU-c", {"GPU-c"}), ("1", "", {""})],
)
def test_the_list_that_was_given_is_kept_to(host: Host, workers: str, listed: str, seen: set[str]) -> None:
    host.write(TWELVE)
    host.output("-n", workers, CUDA_VISIBLE_DEVICES=listed)
    assert {record.extra_info["seen"] for record in host.records()} == seen


def test_a_worker_in_which_cuda_was_started_before_is_not_pinned(host: Host) -> None:
    host.write(TWELVE)
    _, output = host.run("-n1", FAKE_STARTED="1")
    assert re.search(r"CUDA was started .*, before this worker could be pinned to GPU-a", output)
    assert {record.extra_info["now"] for record in host.records()} <= {None}


MODES = """
@pytest.mark.parametrize("number", range(5))
def test_good(gpu_bench, number): gpu_bench(fast)
@pytest.mark.perf(max_time_us=5)
def test_slow(gpu_bench): gpu_bench(fast)
def test_plain(): pass
"""


def table_of(output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if re.match(r"(FAIL)? +test_", line)]


def junit_of(path: Path) -> dict[str, dict[str, str]]:
    cases = ElementTree.parse(path).getroot().iter("testcase")
    return {
        f"{case.get('name')}": {str(each.get("name")): str(each.get("value")) for each in case.iter("property")}
        for case in cases
    }


def test_results_are_the_same_however_they_are_distributed(host: Host) -> None:
    host.write(MODES)
    found = {}
    for mode in ("-n0", "-n2", "-n1 --dist=worksteal"):
        status, output = host.run(*mode.split(), "--junitxml=junit.xml", "--gpu-bench-require=6")
        found[mode] = (status, table_of(output), junit_of(host.folder / "junit.xml"))
        assert "6 measurements in 6 tests" in output, mode
    assert found["-n0"][0] == 1
    assert len(found["-n0"][1]) == 6
    for mode, result in found.items():
        assert result == found["-n0"], mode


def test_stopping_early_keeps_what_was_measured(host: Host) -> None:
    slow = "@pytest.mark.perf(max_time_us=5)\n@pytest.mark.parametrize('n', range(9))\n"
    host.write(f"def test_good(gpu_bench): gpu_bench(fast)\n{slow}def test_slow(gpu_bench, n): gpu_bench(fast)\n")
    status, output = host.run("--maxfail=2", "-n2", "--gpu-bench-json=kept.json")
    records = read_run(host.folder / "kept.json").records
    assert status in (1, 2)
    assert f"{len(records)} measurements in {len(records)} tests" in output
    assert len(records) >= 2


def test_each_says_what_it_does(host: Host) -> None:
    host.write(MODES)
    output = host.output("-n2", "--dist=each", status=1)
    assert "gpu_bench: --dist=each runs every test in every worker" in output
    assert "12 measurements in 6 tests" in output


SOMETHING_HAPPENS = """
@pytest.mark.parametrize("number", range(6))
def test_good(gpu_bench, number): gpu_bench(fast)

def test_culprit(gpu_bench):
    gpu_bench(fast)
    {what}

@pytest.mark.parametrize("number", range(6))
def test_good_too(gpu_bench, number): gpu_bench(fast)

def test_plain(): pass
def test_cuda_by_hand():
    if "FAKE_CONTEXT_ERROR" in os.environ: raise RuntimeError("CUDA error: an illegal memory access")
"""
BREAK = """
    os.environ["FAKE_CONTEXT_ERROR"] = "CUDA error: an illegal memory access"
    raise RuntimeError("CUDA error: an illegal memory access")
"""
BREAK_LATER = """
    os.environ["FAKE_CONTEXT_ERROR"] = "CUDA error: an illegal memory access"
"""


@pytest.mark.parametrize(
    ("what", "workers"),
    [(BREAK, "-n2"), (BREAK, "-n1 --dist=worksteal"), (BREAK, "-n1 --dist=loadfile"), (BREAK_LATER, "-n1")],
    ids=["raised", "stealing", "by file", "left running"],
)
def test_a_broken_context_costs_only_the_test_that_broke_it(host: Host, what: str, workers: str) -> None:
    host.write(SOMETHING_HAPPENS.format(what=what))
    output = host.output(*workers.split(), "--junitxml=junit.xml", status=1)
    assert "1 failed, 14 passed in" in output
    assert "the CUDA context is broken (CUDA error: an illegal memory access): this worker was ended" in output
    assert "crashed while running" not in output
    assert "13 measurements in 13 tests" in output  # the culprit's, too
    root = ElementTree.parse(host.folder / "junit.xml").getroot()
    assert len(list(root.iter("testcase"))) == 15
    assert [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None] == ["test_culprit"]
    assert overlaps(host.records()) == []


NOT_RUN = "not run: test_it.py::test_culprit broke the CUDA context of its worker"


@pytest.mark.parametrize(
    ("what", "arguments", "counts", "told"),
    [
        (BREAK, "-n1 --dist=each", "2 failed, 13 passed in", NOT_RUN),  # which cannot run a test again
        (BREAK, "-p no:xdist", "1 failed, 6 passed, 8 skipped in", "7 measurements in 7 tests"),
        (BREAK, "-n1 --max-worker-restart=0", "1 failed, 6 passed in", "worker gw0 crashed and worker restarting dis"),
        ("raise RuntimeError('CUDA out of memory')", "-n1", "1 failed, 14 passed in", "13 measurements in 13 tests"),
    ],
    ids=["each", "without xdist", "without restarts", "no broken context"],
)
def test_what_cannot_run_after_a_broken_context_is_not_green(
    host: Host, what: str, arguments: str, counts: str, told: str
) -> None:
    host.write(SOMETHING_HAPPENS.format(what=what))
    status, output = host.run(*arguments.split())
    assert status in (1, 2)
    assert counts in output
    assert told in output
    assert ("replacing" in output) == ("each" in arguments)
    skipped = re.findall(r"SKIPPED \[(\d)\] .*not run: test_it.py::test_culprit broke the CUDA context", output)
    assert sum(map(int, skipped)) == (8 if "no:xdist" in arguments else 0)


FOREIGN_XML = """
import pytest

class LogXML: pass

def pytest_configure(config): config.pluginmanager.register(LogXML())

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report): report.gpu_bench_undone = True
"""


def test_a_foreign_plugin_named_as_pytests_own_ends_no_run(bench_run: BenchRun, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FOREIGN_XML)
    result = bench_run("def test_it(gpu_bench): gpu_bench(fast)")
    assert result.ret == pytest.ExitCode.OK
    assert "INTERNALERROR" not in result.stdout.str()


@pytest.mark.parametrize(
    "what",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "__import__('ctypes').CDLL(None).sleep(600)",  # as a driver does: without the interpreter's lock
    ],
    ids=["killed", "hung"],
)
def test_a_worker_that_dies_costs_only_its_test(host: Host, what: str) -> None:
    source = SOMETHING_HAPPENS.format(what=what)
    if hung := "sleep" in what:
        pytest.importorskip("pytest_timeout")
        mark = '@pytest.mark.timeout(0.5, method="thread")'
        source = source.replace("def test_culprit", f"{mark}\ndef test_culprit")
    host.write(source)
    output = host.output("-n2", *(["-p", "pytest_timeout"] if hung else []), status=1)
    assert "1 failed, 14 passed in" in output
    assert re.search("worker 'gw[01]' crashed while running 'test_it.py::test_culprit'", output)
    assert list((host.folder / "locks").glob("run-*")) == []  # a worker notes no test
    assert "12 measurements in 12 tests" in output
    by_worker = {str(record.extra_info["pid"]): record.extra_info["seen"] for record in host.records()}
    assert set(by_worker.values()) <= {"GPU-a", "GPU-b"}  # the replacement took the place that became free
    assert overlaps(host.records()) == []


def test_loopback_gateways_are_hosts_like_any(host: Host) -> None:
    """`--tx` of other hosts: a worker claims what it finds where it runs."""
    host.write(TWELVE)
    spec = f"popen//chdir={host.folder}//env:CUDA_VISIBLE_DEVICES="
    host.output("--dist=load", "--tx", f"{spec}1", "--tx", f"{spec}GPU-d", PYTHONPATH=str(host.folder))
    assert {record.extra_info["seen"] for record in host.records()} == {"GPU-b", "GPU-d"}


@pytest.mark.parametrize(
    ("other", "listed", "order", "warned"),
    [
        ("unlike", "0,1", "", True),
        ("unlike", "0,1", "PCI_BUS_ID", False),
        ("unlike", "GPU-a", "", False),
        ("unlike", "-1", "", False),
        ("alike", "0,1", "", False),
    ],
)
def test_indices_of_unlike_gpus_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, other: str, listed: str, order: str, warned: bool
) -> None:
    """CUDA numbers the fastest first, NVML by the bus: an index may mean two GPUs."""
    gpus = [SimpleNamespace(gpu=SimpleNamespace(name=name)) for name in ("alike", other)]
    monkeypatch.setattr("pytest_gpubench.gpu.visible.read_host", lambda: gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    config: Any = SimpleNamespace(getoption=lambda name, default: ["popen"] if name == "tx" else default)
    told = f"gpu_bench: CUDA_VISIBLE_DEVICES={listed} is read in the order of the PCI bus"
    assert [line.startswith(told) for line in Workers(config, Settings()).pytest_report_header()] == [True] * warned


GROUPS = {
    "a.py::test_it@gpu": "a.py::test_it",
    "a.py::test_it[b@c]@gpu": "a.py::test_it[b@c]",
    "a.py::test_it[b@c]": "a.py::test_it[b@c]",
    "a@1/b.py::test_it": "a@1/b.py::test_it",
    "a@1/b.py::test_it@gpu_1": "a@1/b.py::test_it",
}
"""Names of tests with the groups that xdist adds, and without."""


class Named:
    """A test whose name xdist has changed, as before pytest 9.2."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self._nodeid = nodeid
        self.marks = marks

    @property
    def nodeid(self) -> str:
        return self._nodeid

    def get_closest_marker(self, name: str) -> bool | None:
        return name in self.marks or None


@pytest.mark.parametrize("is_worker", [True, False])
def test_the_tests_of_a_worker_are_named_as_in_any_run(is_worker: bool) -> None:
    config: Any = SimpleNamespace(**({"workerinput": {}} if is_worker else {}))
    items = [
        *(Named(nodeid, "perf") for nodeid in GROUPS),
        Named("a.py::test_turn@gpu", "gpu_turn"),
        Named("a.py::b@c"),
    ]
    Workers(config, Settings(device="cpu")).pytest_collection_finish(cast(Any, SimpleNamespace(items=items)))
    changed = [*GROUPS.values(), "a.py::test_turn"] if is_worker else [*GROUPS, "a.py::test_turn@gpu"]
    assert [each.nodeid for each in items] == [*changed, "a.py::b@c"]


@pytest.mark.parametrize(("nodeid", "name"), GROUPS.items())
def test_a_test_that_a_worker_died_in_is_named_so_too(nodeid: str, name: str) -> None:
    report: Any = SimpleNamespace(nodeid=nodeid)
    Workers(cast(Any, SimpleNamespace()), Settings()).pytest_handlecrashitem(report)
    assert report.nodeid == name
