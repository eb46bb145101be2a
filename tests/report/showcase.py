"""Runs with one of everything that a page shows, and hostile names."""

import math
import random
from typing import Any

import msgspec

from pytest_gpubench import Measurement, Timing
from pytest_gpubench.results.model import CommitInfo, Outcome, SavedRun, TestRecord
from tests.results.measured import kernel as kernel_of
from tests.results.measured import record, resources, speedup_over, timing_of
from tests.results.measured import verdict as verdict_on
from tests.results.saved import device_facts

GPU = device_facts("NVIDIA H200")
NASTY = '</script><img src=x onerror="window.hacked=1"><!--<script>window.hacked=1</script>&lt;b&gt;\u2028\'`${1}'
LIMIT = 1.2


def showcase(seed: int = 1, slower: float = 1.0) -> SavedRun:
    """Return a run with every outcome, a sweep, examples of hypothesis, and hostile names."""
    chance = random.Random(seed)
    sweep = [raced(chance, f"test_rows[{rows}]", rows / 40, 1.7, {"rows": str(rows)}) for rows in SWEEP]
    off = Measurement(timing=timing_of((), "relu", unmeasured="switched off"))
    return SavedRun(
        records=(
            raced(chance, "test_softmax[4096-float16]", 84 * slower, 1.62 / slower, SOFTMAX),
            raced(chance, "test_layer_norm", 40, 1.1, outcome=Outcome.FAIL),
            raced(chance, "test_gelu", 12, 1.2, outcome=Outcome.INCONCLUSIVE),
            raced(chance, "test_hot", 30, 1.5, outcome=Outcome.INVALID, throttle_reasons=("SW power cap",)),
            raced(chance, "test_unforced", 55, 1.05, outcome=Outcome.FAIL, enforced=False),
            *sweep,
            given_record(chance),
            timed(chance, 84 * slower),
            record(off, nodeid="tests/perf/test_a.py::test_off", device=GPU),
            record(nodeid="tests/perf/test_a.py::test_empty", device=GPU),
            hostile(chance),
        ),
        datetime="2026-03-08T12:30:45.123456+00:00",
        name="nightly",
        version="0.1.0",
        commit_info=CommitInfo(id="fedcba9876543210fedcba9876543210fedcba98", branch="main", dirty=True),
        machine_info={"node": "gpu-host-3", "torch": "2.9.0", "cpu": {"count": 16}},
        settings={"reps": "80"},
    )


SOFTMAX = {"size": "4096", "dtype": "float16"}
SWEEP = (256, 512, 1024, 2048, 4096, 8192)


def arm(chance: random.Random, label: str, median_us: float, reps: int = 80, **others: Any) -> Timing:
    """Return a timing with a tail of slow samples and two kernels."""
    samples = [median_us * math.exp(abs(chance.gauss(0, 0.008)) + chance.gauss(0, 0.003)) for _ in range(reps)]
    samples[reps // 2] *= 2.5
    clock = 1980.0
    clocks = [clock := max(1500.0, min(1980.0, clock + chance.choice([-15, 0, 0, 15]))) for _ in range(reps)]
    names = {f"void {label}_kernel<c10::Half, 4>(float const*, int)": 0.8, "reduce_kernel<512, 1>(float)": 0.15}
    taken = resources(launches=2, registers=72 if median_us > 90 else 64)
    kernels = (
        *(kernel_of(name, 2, share * median_us, resources=(taken,)) for name, share in names.items()),
        kernel_of("Memset (Device)", 1, 0.05 * median_us, "memset"),
    )
    moved, intensity = int(median_us * 3e6), chance.choice([0.5, 2, 30])
    known: dict[str, Any] = {"moved_bytes": moved, "flops": int(median_us * 3e6 * intensity)}
    known |= {"busy_us": tuple(samples), "span_us": tuple(sample + 0.5 for sample in samples)}
    known |= {"sm_clock_mhz": tuple(clocks), "kernels": kernels, "warmup_calls": 12, "elapsed_s": 0.8}
    return timing_of(samples, label, **(known | others))


def pair(
    chance: random.Random, us: float, ratio: float, outcome: Outcome = Outcome.PASS, name: str = "triton", **others: Any
) -> tuple[Measurement, Measurement]:
    """Return both arms of a comparison; others: of the candidate's timing, but for example and enforced."""
    example, enforced = others.pop("example", ""), others.pop("enforced", True)
    reference, candidate = arm(chance, "torch_eager", us * ratio), arm(chance, name, us, **others)
    logs = tuple(math.log(ratio) + chance.gauss(0, 0.01) for _ in range(40))
    ends = math.exp(sorted(logs)[10]), math.exp(sorted(logs)[29])
    found = speedup_over(reference.median_us, ratio, ends, quads=40, reference="torch_eager", seed=7, log_ratios=logs)
    words = f"{ratio:.3f}x, wanted at least {LIMIT:g}x (40 quads, 99.9 % interval)"
    verdict = verdict_on(f"min_speedup={LIMIT}", outcome, f"{name} is compared with torch_eager: {words}", enforced)
    compared = Measurement(timing=candidate, role="candidate", example=example, speedup=found, verdicts=(verdict,))
    return (
        Measurement(timing=reference, role="reference", example=example),
        msgspec.structs.replace(compared, differences=("out PASS max_diff=1.2e-07 at (3, 17)",)),
    )


def raced(chance: random.Random, name: str, us: float, ratio: float, params: Any = None, **others: Any) -> TestRecord:
    arms = pair(chance, us, ratio, **others)
    return record(*arms, nodeid=f"tests/perf/test_a.py::{name}", device=GPU, params=params or {})


def given_record(chance: random.Random) -> TestRecord:
    """Return the record of a test that hypothesis called with thirty shapes."""
    measurements: list[Measurement] = []
    for _ in range(30):
        rows, columns = chance.randint(1, 4096), chance.randint(1, 1024)
        ratio = 1.8 - 0.7 * math.exp(-rows * columns / 3e5)
        outcome = Outcome.PASS if ratio > LIMIT else Outcome.FAIL
        example = f"shape=({rows}, {columns}), dtype=torch.float16"
        work: dict[str, Any] = {"moved_bytes": 4 * rows * columns, "flops": 10 * rows * columns}
        measurements += pair(chance, 3 + rows * columns / 2e4, ratio, outcome, example=example, **work)
    return record(*measurements, nodeid="tests/perf/test_b.py::test_every_shape", device=GPU)


def timed(chance: random.Random, median_us: float) -> TestRecord:
    verdict = verdict_on("max_time_us={'H200': 90, 'H100': 120}", Outcome.PASS, "fast enough")
    std = verdict_on("max_rel_std=0.02", Outcome.NOT_JUDGED, "not judged here")
    item = Measurement(
        timing=arm(chance, "gather", median_us, flags=("one flag",), discarded=2), verdicts=(verdict, std)
    )
    return record(item, nodeid="tests/perf/test_b.py::test_gather", device=GPU)


def hostile(chance: random.Random) -> TestRecord:
    """Return a record in which every text is an attempt at injection."""
    arms = pair(chance, 20, 1.4, name=NASTY, example=f"text={NASTY!r}", flags=(NASTY,), throttle_reasons=(NASTY,))
    kernel = kernel_of(NASTY, 1, 20)
    timing = msgspec.structs.replace(arms[1].timing, kernels=(kernel,))
    verdict = msgspec.structs.replace(
        verdict_on(f"min_speedup={NASTY}", Outcome.FAIL, NASTY), reasons=(f"one more kernel: {NASTY}",)
    )
    candidate = msgspec.structs.replace(arms[1], timing=timing, verdicts=(verdict,), differences=(NASTY,))
    known = {"params": {NASTY: NASTY}, "warnings": (NASTY,), "extra_info": {NASTY: [NASTY, {"deep": NASTY}]}}
    return record(arms[0], candidate, nodeid=f"tests/{NASTY}.py::test_{NASTY}", device=GPU, **known)


def history(count: int = 12) -> list[SavedRun]:
    runs = [showcase(seed=10 + day, slower=1.06 if day < 5 else 1.0) for day in range(count)]
    return [
        msgspec.structs.replace(
            run, datetime=f"2026-02-{day + 1:02}T03:00:00+00:00", name="",
            commit_info=CommitInfo(id=f"{day:02x}ab34cd12" + "0" * 30, branch="main", dirty=day == 3),
        )
        for day, run in reversed(list(enumerate(runs)))
    ]  # fmt: skip
