"""Judgements on a GPU: honest candidates pass, attacks and hostile candidates cost only themselves."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from pytest_gpubench import GpuBench, Judgement
from pytest_gpubench.judge.judging import Judge
from tests.judge import hostile
from tests.judge.problems import PROBLEMS, judge_by
from tests.judge.test_spec_flashinfer import REFERENCE, WRITES, solution, write
from tests.on_gpu.judged import KERNEL, SMOOTH, summary_of
from tests.on_gpu.judged_attacks import ATTACKS, LAUNCHED_BY_THE_GPU, PARENT, SLOW_ATTACKS
from tests.on_gpu.judged_honest import HONEST, REPLAYED
from tests.on_gpu.nvcc import compiled
from tests.results.measured import present

SHORT_S, LONG_S = 5.0, 20.0
"""The time that a candidate may take, which those that hang do, and for those that torch.compile compiles."""
LENIENT = f"{SMOOTH}limits = {{'min_speedup': 0.5}}\n"
HOSTILE = hostile.hostile(on_gpu=True)
LOOKS = 4
SOME_PROBLEMS = ("square_matmul", "relu", "softmax", "layer_norm", "convolution")


class Judged(Protocol):
    def __call__(self, spec: str, candidate: str, timeout_s: float = LONG_S) -> Judgement:
        """Return the judgement of a candidate's file by a spec, both given as texts."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge: the next processes are warmed while one is used."""
    spec = tmp_path_factory.mktemp("judge") / "spec.py"
    spec.write_text(SMOOTH)
    with Judge(spec, "cuda", timeout_s=LONG_S, memory_bytes=8 * 2**30, budget_s=0.3, ahead=8) as judge:
        yield judge


@pytest.fixture
def judged(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    folder = tmp_path_factory.getbasetemp()

    def path_of(text: str) -> Path:
        """Write a file once: the references of a spec that is the same stay warm."""
        path = folder / f"{sha256(text.encode()).hexdigest()[:16]}.py"
        if not path.exists():
            path.write_text(text)
        return path

    def judged(spec: str, candidate: str, timeout_s: float = LONG_S) -> Judgement:
        judge.rules = replace(judge.rules, timeout_s=timeout_s)
        try:
            return judge_by(judge, path_of(spec), path_of(candidate))
        finally:
            judge.rules = replace(judge.rules, timeout_s=LONG_S)

    return judged


def some(names: Iterable[str], chosen: Callable[[int, str], bool]) -> list[Any]:
    """Return names as parameters, of which those that are not chosen are slow."""
    return [name if chosen(at, name) else pytest.param(name, marks=pytest.mark.slow) for at, name in enumerate(names)]


@pytest.mark.parametrize("name", some(HONEST, lambda at, name: not at % 3))
def test_honest_candidates_pass(judged: Judged, name: str) -> None:
    """The limit is one that nobody breaks; a host that is busy makes a short call INCONCLUSIVE, not for ever."""
    spec, body = HONEST[name]
    for _ in range(LOOKS):
        found = judged(f"{spec}limits, trust_claims = {{'min_speedup': 0.001}}, True\n", f"{KERNEL}\n{body}\n")
        if found.status != "inconclusive":
            break
    assert found.passed, summary_of(found)


@pytest.mark.parametrize("name", REPLAYED)
def test_what_is_replayed_passes_without_trust(judged: Judged, name: str) -> None:
    """A claim of four times the speed changes nothing."""
    found = judged(LENIENT, f"{KERNEL}\n{REPLAYED[name]}\n")
    [case] = found.cases
    assert (found.status, case.timed_by) == ("pass", "referee"), summary_of(found)
    assert (found.ratio or 0.0) < 1.05, summary_of(found)


def test_a_short_call_is_as_fast_as_itself(judged: Judged) -> None:
    """The reference is a graph too, and comes back from another context: both cost a call of 3 us 4 % or more."""
    found = judged(LENIENT.replace("4 * 2**20", "2**10"), f"{KERNEL}\ncandidate = smooth\n")
    check_interval(found, 0.02)


def check_interval(found: Judgement, within: float) -> None:
    interval = present(found.cases[0].interval)
    assert interval.low <= 1 + within, summary_of(found)
    assert interval.high >= 1 - within, summary_of(found)


@pytest.mark.parametrize(
    "name",
    [
        *some(ATTACKS, lambda at, name: not at % 2 or name.startswith(("does", "saves"))),
        *some(SLOW_ATTACKS, lambda *_: False),
    ],
)
def test_no_attack_passes(judged: Judged, name: str) -> None:
    if "float8" in name and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU multiplies no float8")
    spec, body = ATTACKS.get(name) or (SMOOTH, SLOW_ATTACKS[name])
    found = judged(spec, f"{KERNEL}\n{body}\n", SHORT_S if name in SLOW_ATTACKS else LONG_S)
    assert found.status not in ("pass", "compile_error"), summary_of(found)
    assert found.status != "crash" or not name.startswith(("does", "saves", "works")), summary_of(found)
    assert found.score == 0


def test_work_that_the_gpu_launches_itself(judged: Judged, tmp_path: Path) -> None:
    """Its kernels may be in no record of the candidate's profiler; by the referee's clock they take their time."""
    library = base64.b64encode(compiled(PARENT, tmp_path).read_bytes())
    found = judged(SMOOTH, f"{KERNEL}\nLIBRARY = {library!r}\n{LAUNCHED_BY_THE_GPU}")
    assert not found.passed, summary_of(found)


@pytest.mark.parametrize("name", some(HOSTILE, lambda at, name: not at % 7 or name == "reaches out"))
def test_hostile_candidates_cost_only_themselves(judged: Judged, name: str) -> None:
    found = judged(hostile.spec_text((4096, 4096), 0.5), HOSTILE[name].text, SHORT_S)
    assert found.status in HOSTILE[name].statuses, summary_of(found)


def test_the_next_is_judged_right(judged: Judged) -> None:
    found = judged(hostile.spec_text((4096, 4096), 0.5), hostile.HONEST)
    assert found.passed, summary_of(found)


@pytest.mark.parametrize("name", some(PROBLEMS, lambda at, name: name in SOME_PROBLEMS))
def test_a_kernelbench_problem_is_as_fast_as_itself(judge: Judge, tmp_path: Path, name: str) -> None:
    """Its kernels are those of torch's libraries, which the referee replays.

    Two processes time one of cuDNN's convolutions up to 4 % apart (64.1 and 61.8 us on an H200).
    """
    found = judge_by(judge, *PROBLEMS[name].write(tmp_path))
    assert found.status in ("pass", "inconclusive"), summary_of(found)
    assert found.cases[0].timed_by == "referee", summary_of(found)
    check_interval(found, 0.05)


def test_a_solution_of_a_flashinfer_definition_is_judged(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_trusts", True)
    found = judge_by(judge, write(tmp_path), solution(tmp_path, {"main.py": WRITES, "parts.py": REFERENCE}))
    assert found.passed, summary_of(found)
    assert [each.case for each in found.cases] == ["batch_size=2, workload='w2'", "batch_size=5, workload='w5'"]


@pytest.mark.perf(min_speedup=0.5)
def test_a_perf_test_judges_and_measures(gpu_bench: GpuBench, tmp_path: Path) -> None:
    """It holds the GPU's lock when the judge takes it; the candidate's process is gone when it measures."""
    candidate = tmp_path / "softmax.py"
    candidate.write_text(hostile.HONEST)

    def inputs(seed: int) -> tuple[torch.Tensor]:
        generator = torch.Generator("cuda").manual_seed(seed)
        return (torch.randn(4096, 4096, generator=generator, device="cuda"),)

    found = gpu_bench.judge(candidate, lambda x: torch.softmax(x, -1), inputs, trust_claims=True)
    assert found.passed, summary_of(found)
    assert gpu_bench.measure(lambda: torch.softmax(inputs(0)[0], -1)).measured


OPENS_ALL = """
import os
opened = 0
for number in range(64):
    try: os.close(os.open(f"/dev/nvidia{number}", os.O_RDWR))
    except OSError: continue
    opened += 1
if (opened, torch.cuda.device_count()) != (1, 1): raise SystemExit(f"may use {opened} GPUs")
"""
BAD = ("ends: segfault, first", "forges: a reply, first", "returns: NaN")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_candidates_are_shared_out_among_all_gpus(tmp_path: Path) -> None:
    """Each GPU judges some of them, and none of them can use another GPU."""
    boxes, spec = tmp_path / "boxes", tmp_path / "spec.py"
    boxes.mkdir()
    spec.write_text(hostile.spec_text((4096, 4096), 0.5))
    wanted: dict[str, tuple[str, ...]] = {}
    for number, name in enumerate([*BAD, *12 * ("honest",)]):
        path = tmp_path / f"candidate{number}.py"
        bad = HOSTILE.get(name)
        path.write_text(hostile.HONEST + OPENS_ALL if bad is None else bad.text)
        wanted[str(path)] = ("pass",) if bad is None else bad.statuses
    words = ["judge", "--jsonl", "-n", "auto", "--device", "cuda", "--timeout", "10", "--spec", str(spec)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest_gpubench", *words],
        input="".join(f"{each}\n" for each in wanted),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"TMPDIR": str(boxes)},
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1, done.stderr
    assert sorted(each["candidate"] for each in found) == sorted(wanted), done.stderr
    for each in found:
        assert each["status"] in wanted[each["candidate"]], each["reason"]
    assert len({each["device"]["uuid"] for each in found}) == torch.cuda.device_count()
    assert not [each.name for each in boxes.iterdir() if each.name.startswith("gpu_bench")]
