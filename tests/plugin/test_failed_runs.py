"""What a failed run leaves, and what a part of the tests does: the baseline stays."""

from pathlib import Path

import pytest

from tests.plugin.conftest import BenchRun
from tests.plugin.saving import MEASURES, SPEEDS

COMPARED = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%", "--gpu-bench-save=main")
PAIR = f"""{SPEEDS}
FIRST, SECOND = (float(os.environ.get(name, "1")) for name in ("FIRST", "SECOND"))
@scripted([10.0 * FIRST * step for step in STEPS])
def first(*args): return 0
@scripted([10.0 * SECOND * step for step in STEPS])
def second(*args): return 0
def test_first(gpu_bench): gpu_bench(first)
def test_second(gpu_bench): gpu_bench(second)
"""


def files() -> list[str]:
    return sorted(path.name for path in Path().glob(".gpu_benchmarks/*/*.json"))


def test_a_slower_run_fails_each_time(bench_run: BenchRun) -> None:
    assert bench_run(MEASURES, "--gpu-bench-save=main").ret == pytest.ExitCode.OK
    for _ in range(2):
        result = bench_run(MEASURES, *COMPARED, FACTOR="1.2")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(
            ["gpu_bench: saved as *_main~failed.json: the run failed, and does not become the baseline 'main'"]
        )
    assert bench_run(MEASURES, *COMPARED, FACTOR="1.01").ret == pytest.ExitCode.OK
    assert files() == ["0001_main.json", "0002_main~failed.json", "0003_main~failed.json", "0004_main.json"]


AGAIN = {
    "latest, by commit and time": ("--gpu-bench-autosave", "--gpu-bench-compare"),
    "the file itself": ("--gpu-bench-json=run.json", "--gpu-bench-compare=run.json"),
    "the file in the storage": ("--gpu-bench-json=.gpu_benchmarks/{}/0001_main.json", "--gpu-bench-compare=main"),
}


@pytest.mark.parametrize("way", AGAIN)
def test_however_it_is_saved(bench_run: BenchRun, way: str) -> None:
    bench_run(MEASURES, "--gpu-bench-save=main", "--gpu-bench-json=run.json")
    (folder,) = Path().glob(".gpu_benchmarks/[!.]*")
    save, compare = AGAIN[way]
    options = (save.format(folder.name), compare, "--gpu-bench-compare-fail=median:5%")
    assert [bench_run(MEASURES, *options, FACTOR="1.2").ret for _ in range(2)] == [1, 1]


@pytest.mark.parametrize(
    ("marks", "strict", "kept"),
    [
        ("max_time_us=15", False, True),
        ("max_time_us=5", False, False),
        ("min_gbps=1", False, False),
        ("max_time_us={'H200': 5}", False, True),
        ("max_time_us={'H200': 5}", True, False),
    ],
)
def test_a_run_that_fails_its_own_limits(bench_run: BenchRun, marks: str, strict: bool, kept: bool) -> None:
    test = f"@pytest.mark.perf({marks})\ndef test_it(gpu_bench): gpu_bench(fast)"
    bench_run(test, "--gpu-bench-save=main", *(["--gpu-bench-strict", "--gpu-bench-device=cpu"] if strict else []))
    assert files() == ["0001_main.json" if kept else "0001_main~failed.json"]


def test_a_run_that_lacks_a_test_is_no_baseline_if_that_fails_it(bench_run: BenchRun) -> None:
    bench_run(PAIR, "--gpu-bench-save=main")
    without, compare = PAIR.replace("def test_second", "def second_test"), COMPARED[::2]
    options = [f"--gpu-bench-missing={value}" for value in ("fail", "fail", "warn", "fail")]
    assert [bench_run(without, *compare, option).ret for option in options] == [1, 1, 0, 0]


def test_part_of_the_tests_is_saved(bench_run: BenchRun) -> None:
    bench_run(PAIR, "--gpu-bench-save=main")
    bench_run(PAIR, "--gpu-bench-save=main", "-k", "first", FIRST="1.3")
    result = bench_run(PAIR, *COMPARED[:2], FIRST="1.3", SECOND="2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_second* is slower than in the baseline 'main': 2.0*"])
