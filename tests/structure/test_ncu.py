"""What ncu writes: a recorded table, tables with something missing, and its refusals."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_gpubench import GpuBenchError
from pytest_gpubench.counted import counts_of
from pytest_gpubench.plugin.counting import ncu_command
from pytest_gpubench.results.model import Counts
from pytest_gpubench.structure import ncu
from pytest_gpubench.structure.ncu import NeverCounted, find_ncu, read_captures
from tests.results.measured import kernel

INSTRUCTIONS, ATOMICS = "smsp__inst_executed.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum"
REDUCTIONS = "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum"


RECORDED = Path(__file__).with_name("recorded_ncu.csv")
"""What ncu 2025.3.1 wrote on an H200, of some columns: three captures each of an eager rms_norm and one in Triton."""


def test_a_recorded_table_is_read() -> None:
    captures = read_captures(RECORDED.read_text())
    assert [len(each) for each in captures] == [4, 4, 4, 1, 1, 1]
    eager = [each.name for each in captures[0]]
    assert all(name.startswith("_ZN2at6native") for name in eager)
    timed = [kernel("row_kernel")]
    names = ["instructions", "dram_read_bytes", "l2_bytes", "load_sectors", "atomics"]
    found = counts_of(captures[3:], names, timed)
    assert found.captures["instructions"] == (12_648_448.0,) * 3
    assert found.captures["load_sectors"] == (8_388_608.0,) * 3
    assert found.captures["dram_read_bytes"] == (268_439_552.0, 268_446_720.0, 268_436_480.0)
    assert set(found.captures) == {*names} - {"atomics"}  # which were not asked for
    assert counts_of(captures[:3], names, timed).wrong
    assert counts_of(captures[:3], ["instructions"], ()).captures["instructions"] == (158_172_800.0,) * 3


def table(*rows: Sequence[str], columns: Sequence[str] = (INSTRUCTIONS,)) -> str:
    lines = [["ID", "Kernel Name", *columns], ["", "", *["inst"] * len(columns)], *rows]
    return "==PROF== Connected to process 7\n" + "\n".join(",".join(f'"{each}"' for each in line) for line in lines)


def captures_of(*calls: Sequence[Sequence[str]], columns: Sequence[str] = (INSTRUCTIONS,)) -> list[ncu.Capture]:
    """Return what ncu takes of calls, each of kernels by name with a number in each column."""
    mark = ("gpu_bench_noop", *["1"] * len(columns))
    return read_captures(table(*(("0", *row) for call in calls for row in (mark, *call)), columns=columns))


def test_a_counter_is_the_sum_of_its_metrics_over_the_kernels_of_a_call() -> None:
    call = [("a", "1,000", "1"), ("b", "10", "0")]
    found = counts_of(captures_of(call, call, columns=(ATOMICS, REDUCTIONS)), ["atomics"], [kernel("a"), kernel("b")])
    assert found == Counts(captures={"atomics": (1011.0, 1011.0)})


@pytest.mark.parametrize(
    ("text", "wrong"), [("1", ""), ("nan", "instructions of one"), ("n/a", "instructions of one"), ("", "of one")]
)
def test_what_is_no_number_is_wrong(text: str, wrong: str) -> None:
    found = counts_of(captures_of([("a", text)]), ["instructions"], [kernel("a")])
    assert wrong in found.wrong
    assert bool(found.captures) is not bool(found.wrong)


def test_what_ncu_does_not_know_is_left_out() -> None:
    """It leaves the column out, without a word; a call without a capture is not judged."""
    assert counts_of([], ["instructions"], [kernel("a")]).untaken
    found = counts_of(captures_of([("a", "5")]), ["instructions", "dram_read_bytes"], [kernel("a")])
    assert found == Counts(captures={"instructions": (5.0,)})


@pytest.mark.parametrize(
    ("captures", "kernels", "told"),
    [
        ([["a", "a"]], [("a", 2)], ""),
        ([["a"]], [("a", 2)], "under ncu it launches other kernels: 1 x a only when timed"),
        ([["a", "b"]], [("a", 1)], "under ncu it launches other kernels: 1 x b only under ncu"),
        ([["a"], ["b"]], [("a", 1)], "1 x a only when timed; 1 x b only under ncu"),
        ([["a"], ["b"]], [], "1 x a only when timed; 1 x b only under ncu"),
        ([["a"], ["a"]], [], ""),
        ([[]], [], "ncu saw no kernel of it"),
        ([["_Z1av"]], [("a()", 1)], ""),
    ],
)
def test_the_kernels_are_those_that_were_timed(
    captures: list[list[str]], kernels: Sequence[tuple[str, int]], told: str
) -> None:
    """A timer that sees none has only those of other captures to be compared with; copies are seen by none."""
    timed = [kernel("Memcpy DtoD", kind="memcpy"), *(kernel(name, launches) for name, launches in kernels)]
    taken = captures_of(*([(name, "5") for name in names] for names in captures))
    assert told in counts_of(taken, ["instructions"], timed if kernels else []).wrong


REFUSED = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
"""As in https://github.com/deepseek-ai/DeepGEMM/issues/46."""
HELD = """\
==ERROR== An error was reported by the driver

==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is \
concurrently collecting profiling data. See https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq for \
more details.
==ERROR== Failed to profile "a" in process 7508
==PROF== Trying to shutdown target application
==ERROR== An error occurred while trying to profile.
==WARNING== No kernels were profiled.
"""


def test_captures_begin_with_a_mark() -> None:
    text = table(
        ("0", "gpu_bench_noop", "1"),
        ("1", "a", "1,024"),
        ("2", "b<c, d>", "2"),
        ("3", "gpu_bench_noop", "1"),
        ("4", "a", "3"),
    )
    found = read_captures(text + "\n==PROF== Disconnected from process 7\n")
    assert [[(each.name, each.metrics[INSTRUCTIONS]) for each in capture] for capture in found] == [
        [("a", "1,024"), ("b<c, d>", "2")],
        [("a", "3")],
    ]


@pytest.mark.parametrize(
    ("text", "of_any_call", "told"),
    [
        (REFUSED, True, "the driver lets only administrators read the GPU's counters (ERR_NVGPUCTRPERM)"),
        (HELD, True, "another tool holds the GPU's counters"),
        (
            "Failed to open/create lock file /tmp/nsight-compute-lock\nInterprocessLockFailed",
            True,
            "another user's lies there: set TMPDIR",
        ),
        ("==ERROR== The application returned an error code (3).", False, "returned an error code (3)"),
        ("==WARNING== No kernels were profiled.", False, "no kernel ran while it listened"),
        ("", False, "no kernel ran while it listened"),
        ("==ERROR== \x1b[31mred", False, "\\x1b[31mred"),
    ],
)
def test_a_refusal_is_told(text: str, of_any_call: bool, told: str) -> None:
    """The first and the third are as others have quoted them; the rest were seen."""
    with pytest.raises(GpuBenchError) as raised:
        read_captures(text)
    assert isinstance(raised.value, NeverCounted) is of_any_call
    assert told in str(raised.value)


def test_ncu_is_looked_for_on_the_path_and_then_where_cuda_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(ncu, "PLACES", (f"{tmp_path}/compute/*/ncu",))
    with pytest.raises(NeverCounted) as raised:
        find_ncu()
    assert "install NVIDIA Nsight Compute" in str(raised.value)
    for place in ("compute/2024.1.0", "compute/2025.3.1", "bin"):
        script = tmp_path / place / "ncu"
        script.parent.mkdir(parents=True)
        script.touch(mode=0o755)
        assert find_ncu() == str(script)


def test_ncu_is_told_to_leave_clocks_and_caches_alone(tmp_path: Path) -> None:
    command = ncu_command("ncu", ["instructions", "dram_read_bytes"], tmp_path / "log")
    text = " ".join(command)
    assert "--clock-control none" in text
    assert "--cache-control none" in text
    assert command[-1] == "smsp__inst_executed.sum,dram__bytes_read.sum,dram__bytes_op_read.sum"
