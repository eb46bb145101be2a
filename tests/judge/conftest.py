from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench.judge.judging import Judge
from tests import fork_server

SPEC = """
import torch

trust_claims = True

def reference(x):
    y = x
    for _ in range(4):
        y = torch.tanh(y) + x
    return y

def inputs(seed):
    return (torch.randn(20_000, generator=torch.Generator().manual_seed(seed)),)
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the spec's file."""
    path = tmp_path_factory.mktemp("judge") / "spec.py"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def judge(spec: Path) -> Iterator[Judge]:
    """Return a judge; the next process is warmed while a candidate is judged."""
    with Judge(spec, "cpu", timeout_s=300, memory_bytes=2**30, budget_s=0.1, ahead=1) as judge:
        yield judge


@pytest.fixture(scope="module", autouse=True)
def forked_candidates() -> Iterator[None]:
    """Fork the template, too, from a process in which torch is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subprocess.Popen", fork_server.PopenWithTorch)
        yield
