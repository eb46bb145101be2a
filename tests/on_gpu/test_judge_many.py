"""`judge --jsonl -n auto`: candidates are shared out among GPUs, each is judged once, and nothing is left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.judge.hostile import HONEST, hostile, spec_text

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
    spec.write_text(spec_text((4096, 4096), 0.5))
    wanted: dict[str, tuple[str, ...]] = {}
    for number, name in enumerate([*BAD, *12 * ("honest",)]):
        path = tmp_path / f"candidate{number}.py"
        bad = hostile(on_gpu=True).get(name)
        path.write_text(HONEST + OPENS_ALL if bad is None else bad.text)
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
