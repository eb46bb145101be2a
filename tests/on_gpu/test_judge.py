"""Judgements on a GPU: honest candidates pass, what was seen in the wild does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pytest_gpubench import GpuBench, Judgement
from pytest_gpubench.judge.judging import Judge
from tests.judge.problems import judge_by
from tests.on_gpu.judged import CHEATS, HONEST, KERNEL, SPEC, summary_of

LENIENT, STRICT = 0.8, 1.2
"""A limit that an honest candidate keeps, and one that none keeps."""
EACH = 2
"""One in so many cheats is judged; all with `-m slow`."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge: the next processes are warmed while one is used."""
    spec = tmp_path_factory.mktemp("spec") / "spec.py"
    spec.write_text(SPEC.replace("LIMIT", str(LENIENT)))
    with Judge(spec, "cuda", timeout_s=15, ahead=8) as judge:
        yield judge


def judged(judge: Judge, folder: Path, limit: float, body: str) -> Judgement:
    """Return the judgement of a candidate."""
    spec, candidate = folder / "spec.py", folder / "candidate.py"
    spec.write_text(SPEC.replace("LIMIT", str(limit)))
    candidate.write_text(f"{KERNEL}\n\n{body}\n")
    return judge_by(judge, spec, candidate)


@pytest.mark.parametrize("name", HONEST)
def test_honest_candidates_pass(judge: Judge, tmp_path: Path, name: str) -> None:
    found = judged(judge, tmp_path, LENIENT, HONEST[name])
    assert found.status == "pass", summary_of(found)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if at % EACH else ()) for at, each in enumerate(CHEATS)]
)
def test_cheats_do_not_pass(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each costs only itself."""
    if name == "hangs":
        monkeypatch.setattr(judge, "timeout_s", 3)
    found = judged(judge, tmp_path, STRICT, CHEATS[name])
    assert found.status != "pass", summary_of(found)
    assert found.reason


@pytest.mark.perf(min_speedup=0.5)
def test_a_perf_test_judges_and_measures(gpu_bench: GpuBench, tmp_path: Path) -> None:
    """It holds the GPU's lock when the judge takes it; the candidate's process is gone when it measures."""
    candidate = tmp_path / "softmax.py"
    candidate.write_text("import torch\ndef candidate(x):\n    return torch.softmax(x, -1)\n")

    def inputs(seed: int) -> tuple[torch.Tensor]:
        generator = torch.Generator("cuda").manual_seed(seed)
        return (torch.randn(4096, 4096, generator=generator, device="cuda"),)

    found = gpu_bench.judge(candidate, lambda x: torch.softmax(x, -1), inputs, trust_claims=True)
    assert found.passed, summary_of(found)
    assert gpu_bench.measure(lambda: torch.softmax(inputs(0)[0], -1)).measured
