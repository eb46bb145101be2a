"""Record on this machine's GPU the runs that the pages show: `python -m tests.docs.record FOLDER [NAME]`.

Each is a saved run of a test file that stands on a page. Copy them to tests/docs/recorded, rewrite the pages by
`REWRITE=1 pytest tests/docs/test_outputs.py`, and take the pictures again by `python -m tests.docs.picture`.
"""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from pytest_gpubench import Measurement
from pytest_gpubench.results.baseline import slimmed
from pytest_gpubench.results.model import CommitInfo, Outcome, SavedRun
from pytest_gpubench.results.store import read_run, write_run
from tests.docs.console import commands
from tests.docs.pages import blocks

DRAWN = {"topk": "pytest test_topk.py"}
"""The runs that only a picture shows, and their commands."""
EDITS = {"too_slow": ("x.pow(2)", "x.double().pow(2)")}
"""What the text tells the reader to change."""
SAVING = ("--gpu-bench-save=main", "--gpu-bench-sessions=1")
"""How a run is saved before the change, which it is compared with."""


def record(name: str, command: str, out: Path) -> None:
    """Run a command of the pages in a folder with their test files, and keep its results."""
    old, new = EDITS.get(name, ("", ""))
    with tempfile.TemporaryDirectory() as folder:
        texts = {Path(folder, block.file): block.text for block in blocks("python")}
        for file, text in texts.items():
            file.write_text(text)
        words = [sys.executable, "-m", *shlex.split(command), "-p", "no:benchmark"]
        if old:
            before = [word for word in words if not word.startswith("--gpu-bench-compare")]
            subprocess.run([*before, *SAVING], cwd=folder, check=True)
            for file, text in texts.items():
                file.write_text(text.replace(old, new))
        subprocess.run([*words, f"--gpu-bench-json={out}"], cwd=folder, check=False)
    run = shortened(read_run(out))
    write_run(slimmed(run) if name in DRAWN else run, out)


def shortened(run: SavedRun) -> SavedRun:
    """Return a run without what tells which machine it was; of a search, the measurements of its last failure."""
    records = []
    for record in run.records:
        measurements = record.measurements
        if any(item.example for item in measurements):
            last = max(at for at, item in enumerate(measurements) if fails(item))
            measurements = measurements[last - 1 : last + 1]
        device = msgspec.structs.replace(record.device, host="", uuid=None)
        records.append(msgspec.structs.replace(record, device=device, measurements=measurements))
    nowhere = {"machine_info": {}, "settings": {}, "commit_info": CommitInfo()}
    return msgspec.structs.replace(run, records=tuple(records), **nowhere)


def fails(measurement: Measurement) -> bool:
    return any(verdict.outcome is Outcome.FAIL for verdict in measurement.verdicts)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    shown = {block.recorded: next(commands(block.text))[0] for block in blocks("console") if block.recorded}
    for name, command in (shown | DRAWN).items():
        if name in sys.argv[2:] or not sys.argv[2:]:
            record(name, command, Path(sys.argv[1], f"{name}.json").resolve())
