"""Runs made by hand, as a session with a GPU would save them."""

import math
import random
import statistics
from collections.abc import Iterator

from pytest_gpubench import DeviceFacts, Measurement, Speedup, Timing
from pytest_gpubench.results.model import CommitInfo, Outcome, SavedRun, TestRecord, Turn
from tests.results.measured import kernel, resources, speedup_over, timing_of, verdict

LONG = "x" * 300
NAMES = [
    ("softmax", {"shape": "4096x1024", "dtype": "float16"}),
    ("path", {"file": "data/a/b.pt"}),
    ("größe", {"名前": "é☃"}),
    ("long", {"text": LONG}),
    ("plain", {}),
    ("given", {}),
    ("unmeasured", {}),
]
"""Of the tests in turn, the name and the parameters; what comes after the last begins again, with a number."""


def make_run(
    tests: int = 5, reps: int = 40, seed: int = 0, slower: float = 1.0, device: str = "NVIDIA H200"
) -> SavedRun:
    """Return a run of so many tests, the same one for the same arguments.

    reps: samples of each arm, at least 1. slower: what every candidate's time is multiplied by; reference arms stay.
    The sixth test has two examples of hypothesis, the seventh was not measured, the others compare two arms.
    """
    chance = random.Random(seed)
    facts = device_facts(device)
    return SavedRun(
        records=tuple(make_record(index, reps, chance, slower, facts) for index in range(tests)),
        datetime="2026-03-01T12:30:45.123456+00:00",
        version="0.1.0",
        commit_info=CommitInfo(
            id="0123456789abcdef0123456789abcdef01234567",
            time="2026-03-01T11:00:00+01:00",
            author_time="2026-03-01T10:59:00+01:00",
            dirty=False,
            project="kernels",
            branch="main",
        ),
        machine_info={
            "node": "gpu-host-3",
            "machine": "x86_64",
            "system": "Linux",
            "python_version": "3.12.4",
            "torch": "2.9.0",
            "cpu": {"brand_raw": "A CPU", "count": 16},
        },
        settings={"reps": str(reps)},
    )


def device_facts(name: str) -> DeviceFacts:
    return DeviceFacts(
        type="cuda",
        name=name,
        host="gpu-host-3",
        uuid="GPU-6f0ec1a2-0000-4000-8000-0123456789ab",
        compute_capability="9.0",
        multiprocessors=132,
        cache_bytes=60 << 20,
        memory_bytes=140 << 30,
        driver="570.86.15",
        cuda="12.8",
        max_sm_clock_mhz=1980,
        max_memory_clock_mhz=3201,
        power_limit_w=700.0,
        mig=False,
    )


def make_record(index: int, reps: int, chance: random.Random, slower: float, device: DeviceFacts) -> TestRecord:
    name, params = NAMES[index % len(NAMES)]
    lap = index // len(NAMES)
    ids = [*params.values(), *([str(lap)] if lap else [])]
    began_s = 1772368000.0 + 2 * index
    return TestRecord(
        nodeid=f"tests/perf/test_{name}.py::test_{name}" + (f"[{'-'.join(ids)}]" if ids else ""),
        device=device,
        worker=f"gw{index % 2}",
        params={**params, **({"lap": str(lap)} if lap else {})},
        measurements=tuple(make_measurements(name, reps, chance, slower, device)),
        extra_info={"tokens": 4096, "layout": "row"} if index % 3 == 0 else {},
        warnings=("another process ran on the GPU (pid 1234)",) if index % 5 == 4 else (),
        turn=Turn(gpus=(str(device.uuid),), began_s=began_s, ended_s=began_s + 1.5, waited_s=0.25),
        source=f"{index:016x}",
    )


def make_measurements(
    name: str, reps: int, chance: random.Random, slower: float, device: DeviceFacts
) -> Iterator[Measurement]:
    """Yield references of about 150 us and candidates of about 100 us, with speedup, verdict and differences."""
    if name == "unmeasured":
        why = "switched off by --gpu-bench-disable"
        yield Measurement(timing=timing_of((), "kernel", device=device.name, unmeasured=why))
    elif name == "plain":
        yield Measurement(timing=make_timing("kernel", 84.0 * slower, reps, chance, device))
    else:
        for example in ["shape=(128, 257), dtype=torch.float16", "shape=(4096, 33)"] if name == "given" else [""]:
            reference = make_timing(f"torch_{name}", 150.0, reps, chance, device)
            candidate = make_timing(f"triton_{name}", 100.0 * slower, reps, chance, device)
            speedup = make_speedup(reference, candidate)
            outcome = Outcome.PASS if speedup.ratio >= 1.2 else Outcome.FAIL
            sentence = f"{speedup.ratio:.3f}x, wanted at least 1.2x ({reps} reps, 99.9 % interval)"
            yield Measurement(timing=reference, role="reference", example=example)
            yield Measurement(
                timing=candidate,
                verdicts=(verdict("min_speedup=1.2", outcome, sentence),),
                speedup=speedup,
                differences=("out PASS max_diff=1.2e-07",),
                role="candidate",
                example=example,
            )


def make_speedup(reference: Timing, candidate: Timing) -> Speedup:
    """Return the speedup of pairs of neighbouring reps, a pair of each arm being a quad."""
    old, new = reference.samples_us, candidate.samples_us
    quads = [slice(2 * quad, 2 * quad + 2) for quad in range(len(old) // 2)] or [slice(0, 1)]
    log_ratios = tuple(math.log(sum(old[quad]) / sum(new[quad])) for quad in quads)
    middle = statistics.median(log_ratios)
    ends = (math.exp(middle - 0.004), math.exp(middle + 0.004)) if len(log_ratios) > 10 else None
    return speedup_over(
        reference.median_us,
        math.exp(middle),
        ends,
        quads=len(log_ratios),
        reference=reference.label,
        seed=7,
        log_ratios=log_ratios,
    )


def make_timing(label: str, median_us: float, reps: int, chance: random.Random, device: DeviceFacts) -> Timing:
    """Return a timing whose samples scatter by 1 % about a median, in 32 ns steps as the profiler's do."""
    samples_us = tuple(
        round(0.032 * round(median_us * math.exp(chance.gauss(0, 0.01)) / 0.032), 3) for _ in range(reps)
    )
    name, taken = (
        f"void {label}_kernel<c10::Half, 4>(float const*, int)",
        resources(launches=2, static_shared_bytes=2048),
    )
    return timing_of(
        samples_us,
        label,
        device=device.name,
        busy_us=samples_us,
        span_us=tuple(round(sample + 0.5, 3) for sample in samples_us),
        sm_clock_mhz=tuple(float(chance.choice([1965, 1980])) for _ in range(reps)),
        kernels=(kernel(name, 2, median_us, resources=(taken,)), kernel("Memset (Device)", 1, 1.2, "memset")),
        warmup_calls=12,
        elapsed_s=0.8,
        moved_bytes=16 << 20,
        flops=5 << 22,
    )
