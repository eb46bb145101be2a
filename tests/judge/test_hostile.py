"""Candidates that end, hang, take memory or forge a verdict: each costs only itself, on the CPU."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.judge.worker import Worker
from tests import fork_server
from tests.judge import candidates
from tests.judge.hostile import HONEST, hostile, spec_text
from tests.on_gpu import judged_attacks, judged_honest

ALL = hostile(on_gpu=False)
FEW = (
    *("ends: segfault, first", "takes: memory, first", "forges: replies to come, loaded"),
    *("forges: verdict in all files, first", "returns: a deep list", "returns: two tensors", "text: bad syntax"),
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge whose limit an honest candidate keeps."""
    spec = tmp_path_factory.mktemp("hostile") / "spec.py"
    spec.write_text(spec_text((64, 256), 0.01))
    with Judge(spec, "cpu", timeout_s=300, memory_bytes=2**30, budget_s=0.01, ahead=1) as judge:
        yield judge


@pytest.mark.parametrize("name", [each if each in FEW else pytest.param(each, marks=pytest.mark.slow) for each in ALL])
def test_hostile_candidates_cost_only_themselves(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if "timeout" in ALL[name].statuses:
        monkeypatch.setattr(judge, "rules", replace(judge.rules, timeout_s=20))
    path = tmp_path / "candidate.py"
    path.write_text(ALL[name].text)
    found = judge(path)
    assert found.status in ALL[name].statuses, found
    assert found.reason
    assert "pytest_gpubench/" not in found.detail, "frames of ours"


def test_the_next_is_judged_right(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(HONEST)
    assert judge(path).passed


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_verdicts_and_nothing_else(tmp_path: Path, number: signal.Signals) -> None:
    """The process of the candidate that hangs is gone, as are those that wait, and their folders."""
    (tmp_path / "spec.py").write_text(spec_text((64, 256), 0.01))
    (tmp_path / "hangs.py").write_text(ALL["hangs: sleeps, first"].text)
    folder = tmp_path / "folder"
    folder.mkdir()
    words = ["judge", "--jsonl", "--device=cpu", "--spec=spec.py", "--ahead=1", f"--lock-folder={tmp_path / 'locks'}"]
    with fork_server.RealPopen(
        [sys.executable, "-m", "pytest_gpubench", *words],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as judging:
        assert judging.stdin is not None
        assert judging.stdout is not None
        judging.stdin.write("nothing.py\nhangs.py\n")
        judging.stdin.flush()
        assert '"refused"' in judging.stdout.readline()
        while not list(folder.glob("gpu_bench_judge_*/*/hangs.py")):
            pass
        judging.send_signal(number)
        assert judging.stdout.read() == ""
        assert judging.wait() == 130
    assert not list(folder.iterdir())
    assert not [each for each in Path("/proc").glob("[0-9]*/cmdline") if str(folder) in _text_of(each)]


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


OWNERS = {"Runner": Runner, "Worker": Worker, "Device": Device}
PATCHED = re.compile(rf"(?<![\w.])({'|'.join(OWNERS)})\.(\w+)")
TEXTS = [
    *(each.text for each in hostile(on_gpu=True).values()),
    *(body for _, body in judged_attacks.ATTACKS.values()),
    *[candidates.CLAIMS, *judged_attacks.SLOW_ATTACKS.values(), *judged_honest.REPLAYED.values()],
]


def test_what_an_attack_patches_is_there() -> None:
    """Attacks are made of texts: what they patch has to be there, or they attack nothing and pass for ever."""
    used = {found for text in TEXTS for found in PATCHED.findall(text)}
    assert ("Runner", "end") in used
    assert not [(owner, name) for owner, name in used if not hasattr(OWNERS[owner], name)]
