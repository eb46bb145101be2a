"""Take the README's pictures: `python -m tests.docs.picture`; those of the page need chromium and pngquant.

Their run is what was recorded on an H200; the saved runs before it are made up from it. The picture of a sweep is what
`--gpu-bench-plot=FOLDER` writes of a recorded run.
"""

import hashlib
import math
import random
import subprocess
import tempfile
from pathlib import Path

import msgspec

from pytest_gpubench import Measurement, PastChange
from pytest_gpubench.report.html.page import html_page
from pytest_gpubench.report.plot.panels import svg_files
from pytest_gpubench.report.sweeps import sweeps_of
from pytest_gpubench.results.model import CommitInfo, SavedRun
from pytest_gpubench.results.store import read_run
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.verdict.sessions import Sessions, compare_measurements

ROOT = Path(__file__).parents[2]
RECORDED = ("gelu", "mlp", "rms_norm", "search")
RECORDED_SWEEP, SWEEP = ROOT / "tests/docs/recorded/topk.json", ROOT / ".github/sweep.svg"
RUNS = 24
CHANGED = {"fused": (9, 1.09), "by_sigmoid": (9, 1.04), "down": (17, 0.96), "mlp": (17, 0.98)}
"""By function, the run that it changed with, and how much slower it was before."""
CHROMIUM = (
    "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --hide-scrollbars --window-size=1280,1070 --virtual-time-budget=2000"
)


def run_of(day: int) -> SavedRun:
    """Return the run of a day; the last one is as it was recorded."""
    chance = random.Random(day)
    records = [each for name in RECORDED for each in read_run(ROOT / f"tests/docs/recorded/{name}.json").records]
    commit = CommitInfo(id=hashlib.sha1(f"{day}".encode()).hexdigest(), branch="main")
    measured = [[scaled(item, day, chance) for item in record.measurements] for record in records]
    return SavedRun(
        records=tuple(
            msgspec.structs.replace(record, measurements=tuple(items))
            for record, items in zip(records, measured, strict=True)
        ),
        datetime=f"2026-03-{day + 1:02}T03:00:00+00:00",
        name="nightly",
        commit_info=commit,
    )


def scaled(item: Measurement, day: int, chance: random.Random) -> Measurement:
    if day == RUNS:
        return item
    first, slower = CHANGED.get(item.timing.label, (0, 1.0))
    factor = math.exp(chance.gauss(0, 0.003)) * (slower if day < first else 1)
    samples = tuple(factor * sample for sample in item.timing.samples_us)
    timing, speedup = msgspec.structs.replace(item.timing, samples_us=samples), item.speedup
    if speedup is not None:
        logs = tuple(log - math.log(factor) for log in speedup.log_ratios)
        speedup = msgspec.structs.replace(speedup, ratio=speedup.ratio / factor, log_ratios=logs)
    return msgspec.structs.replace(item, timing=timing, speedup=speedup)


def compared(run: SavedRun, old: SavedRun) -> SavedRun:
    records = []
    for record, before in zip(run.records, old.records, strict=True):
        pairs = zip(record.measurements, before.measurements, strict=True)
        records.append(msgspec.structs.replace(record, measurements=tuple(with_change(*pair) for pair in pairs)))
    return msgspec.structs.replace(run, records=tuple(records))


def with_change(item: Measurement, old: Measurement) -> Measurement:
    found = compare_measurements(
        old, item, RegressionTolerance("speedup", margin=0.05), 0.001, "main", Sessions()
    ).estimate
    assert found is not None
    change = PastChange(
        baseline="main",
        metric=found.metric,
        ratio=found.ratio,
        interval=found.interval,
        old_us=old.timing.median_us,
    )
    return msgspec.structs.replace(item, change=change)


def sweep_picture() -> str:
    (text,) = svg_files(sweeps_of(read_run(RECORDED_SWEEP).records)).values()
    return text


if __name__ == "__main__":
    SWEEP.write_text(sweep_picture(), encoding="utf-8")
    history = [run_of(day) for day in range(RUNS)]
    baseline = msgspec.structs.replace(history[12], name="main")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(html_page(compared(run_of(RUNS), baseline), baseline, history), encoding="utf-8")
        for scheme, option in (("light", ""), ("dark", "--force-dark-mode")):
            picture = ROOT / ".github" / f"page-{scheme}.png"
            options = [f"--user-data-dir={folder}/{scheme}", f"--screenshot={picture}", option, page.as_uri()]
            subprocess.run([*CHROMIUM.split(), *filter(None, options)], check=True, capture_output=True)
            subprocess.run(["pngquant", "--force", "--output", picture, "--", picture], check=True)
