"""Limits given by the mark in tests of real kernels: each planted defect fails its test, in words, and nothing else."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_gpubench import Verdict
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.results.store import read_run

TESTS = Path(__file__).with_name("limits_tests.py")
OPTIONS = ["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:benchmark", "--gpu-bench-quiet"]

BROKEN = {
    "max_kernels_with_an_extra_kernel": "launches 2 kernels, wanted at most 1",
    "kernels_with_another": "launches no kernel named *double*, only 1 x ",
    "forbid_memcpy_with_a_contiguous": "copies memory 1 time, wanted none: 1 x elementwise_kernel<direct_",
    "forbid_memset_with_a_fill": "fills memory 1 time",
    "forbid_sync_with_an_item": "x[0, 0].item()",
    "forbid_alloc_with_one": "1 allocation of torch's, 4 MiB together",
    "max_memory_with_a_temporary": "takes 8 MiB of GPU memory",
    "max_memory_with_a_leak": "keeps 4 KiB of GPU memory",
    "deterministic_with_atomics": "does not repeat itself bit by bit: out differs from call to call",
    "max_registers_of_one": "registers a thread, wanted at most 1",
    "max_local_bytes_with_a_spill": "softmax_kernel takes ",
    "max_tail_with_one_block": "of the GPU idle in its only wave (1 of ",
    "forbid_kernels_with_one": "wanted no kernel named *double*",
    "max_registers_with_an_item": "cannot be judged: it cannot be captured as a CUDA graph: it waits for the GPU",
    "max_registers_misspelled": "it launches no kernel named *duoble*, only 1 x ",
    "min_gbps_with_five_kernels": "GB/s",
    "min_tflops_in_fp32": "TFLOP/s",
    "min_peak_fraction_with_two_kernels": "%",
}
INVALID = ("min_gbps_beyond_physics", "max_registers_with_an_item", "max_registers_misspelled")
KEPT = (
    *("max_kernels", "kernels", "forbid", "forbid_alloc", "max_memory", "deterministic", "max_registers"),
    *("min_gbps", "min_tflops", "min_peak_fraction"),
    "timers",
)


@dataclass(frozen=True)
class Run:
    """All of them, run in one process of their own, with traces."""

    folder: Path
    verdicts: dict[str, list[Verdict]]
    failed: dict[str, bool]
    output: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("limits")
    places = {"json": folder / "run.json", "trace": folder / "traces"}
    options = [f"--junitxml={folder / 'run.xml'}", *(f"--gpu-bench-{name}={place}" for name, place in places.items())]
    command = [sys.executable, "-m", "pytest", str(TESTS), *OPTIONS, *options]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    print(done.stdout[-6000:], done.stderr[-2000:])  # shown where a test fails
    assert done.returncode == 1
    cases = ElementTree.parse(folder / "run.xml").iter("testcase")
    return Run(
        folder,
        {
            name_of(record.nodeid): [verdict for item in record.measurements for verdict in item.verdicts]
            for record in read_run(places["json"]).records
        },
        {name_of(f"::{case.get('name')}"): case.find("failure") is not None for case in cases},
        done.stdout,
    )


def name_of(nodeid: str) -> str:
    return nodeid.rpartition("::test_")[2]


@pytest.mark.parametrize("name", sorted({*BROKEN, *INVALID}))
def test_a_planted_defect_fails_its_test(run: Run, name: str) -> None:
    worst = [one for one in run.verdicts[name] if one.outcome is not Outcome.PASS]
    assert run.failed[name], worst
    assert {one.outcome for one in worst} == {Outcome.INVALID if name in INVALID else Outcome.FAIL}, worst
    assert BROKEN.get(name, "") in worst[0].sentence


@pytest.mark.parametrize("name", KEPT)
def test_without_a_defect_it_passes(run: Run, name: str) -> None:
    assert not run.failed[name], run.verdicts[name]
    assert {one.outcome for one in run.verdicts[name]} <= {Outcome.PASS}, run.verdicts[name]


def test_every_call_that_was_timed_has_a_trace(run: Run) -> None:
    traces = list((run.folder / "traces").glob("*.json.gz"))
    summary = (run.folder / "traces" / "summary.md").read_text()
    assert len(traces) == summary.count("[trace](") == summary.count("### ") > len(KEPT) + len(BROKEN)
    assert "| the call |" in summary


def test_nothing_else_failed(run: Run) -> None:
    assert f"{len({*BROKEN, *INVALID})} failed, {len(KEPT)} passed" in run.output
