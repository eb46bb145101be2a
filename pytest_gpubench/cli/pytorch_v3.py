"""A saved run as records of PyTorch's benchmark database, schema v3.

Sources: pytorch/test-infra at 61a77570f454, `clickhouse_db_schema/benchmark.oss_ci_benchmark_v3/schema.sql` for the
fields, `.github/scripts/upload_benchmark_results.py` for the file, and the queries of `torchci/clickhouse_queries` for
what is in them. The upload adds `timestamp`, `repo`, `head_sha` and others, and keeps those that a record has already:
for a pull request it means the branch's commit, and the run the merge of it. So none is written here.
"""

import json
from collections.abc import Iterator
from typing import Any

from pytest_gpubench.metrics import BY_NAME
from pytest_gpubench.report.sweeps import LIMIT_OF_METRIC
from pytest_gpubench.results.model import DeviceFacts, Measurement, SavedRun, TestRecord
from pytest_gpubench.verdict.limits import number_for

PRODUCER = "pytest-gpubench"
DEPENDENCIES = {"pytorch": ("torch", "pytorch/pytorch"), "triton": ("triton", "triton-lang/triton")}
"""By its name in the database: a package, and its repository on GitHub."""
LARGEST_FLOAT32 = 3.4028234e38
"""Numbers are kept as Float32."""

Fields = dict[str, Any]


def pytorch_v3_text(run: SavedRun) -> str:
    """Return a run as a JSON list of records, each a line, of the measurements that are not INVALID."""
    records = (
        {**_about(run, record, item), "metric": metric}
        for record in run.records
        for item in record.measurements
        if item.timing.measured and not item.why_invalid
        for metric in _metrics(record, item)
    )
    return "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False, allow_nan=False) for each in records) + "\n]\n"


def _metrics(record: TestRecord, item: Measurement) -> Iterator[Fields]:
    """Return the metrics that limits are on, and all samples as tritonbench's `latency`, which is in ms."""
    median_us, *others = (_metric(name, record, item) for name in LIMIT_OF_METRIC)
    samples_ms = [round(sample_us / 1000, 9) for sample_us in item.timing.samples_us]
    for metric in (_in_ms(median_us, samples_ms), median_us, *others):
        numbers = [*metric["benchmark_values"], metric.get("target_value", 0.0)]
        if all(number is not None and abs(number) <= LARGEST_FLOAT32 for number in numbers):
            yield metric


def _metric(name: str, record: TestRecord, item: Measurement) -> Fields:
    metric = BY_NAME[name]
    verdict = next((each for each in item.verdicts if each.kind == LIMIT_OF_METRIC[name]), None)
    target = verdict and number_for(verdict, item.timing)
    low, high = metric.interval(item) or (None, None)
    about = _known_texts(
        unit=metric.unit,
        low=low,
        high=high,
        limit=verdict and verdict.limit,
        outcome=verdict and verdict.outcome.value,
        input_shape=", ".join(f"{key}={value}" for key, value in record.params.items()),
    )
    found: Fields = {"name": metric.csv, "benchmark_values": [metric.value(item)]}
    return found | ({} if target is None else {"target_value": target}) | {"extra_info": about}


def _in_ms(median_us: Fields, samples_ms: list[float]) -> Fields:
    found = {**median_us, "name": "latency", "benchmark_values": samples_ms}
    if "target_value" in found:
        found["target_value"] /= 1000
    kept = {name: text for name, text in median_us["extra_info"].items() if name not in ("low", "high")}
    return {**found, "extra_info": {**kept, "unit": "ms"}}


def _about(run: SavedRun, record: TestRecord, item: Measurement) -> Fields:
    """Return what the records of a measurement share: `model` is its test, `backend` its function."""
    timing, commit = item.timing, run.commit_info
    return {
        "benchmark": {
            "name": PRODUCER,
            "dtype": record.params.get("dtype", "").removeprefix("torch."),
            "extra_info": _known_texts(
                run=run.name,
                datetime=run.datetime,
                commit=commit.id,
                dirty=None if commit.dirty is None else str(commit.dirty).lower(),
                timer=timing.timer,
                cache=timing.cache,
                version=run.version,
            ),
        },
        "model": {
            "name": record.nodeid,
            "type": "kernel",
            "backend": timing.label,
            "origins": [PRODUCER],
            "extra_info": _known_texts(role=item.role, example=item.example, flags=", ".join(timing.flags)),
        },
        "inputs": {name: {"extra_info": {"value": value}} for name, value in record.params.items()},
        "dependencies": {
            name: {"repo": repo, "version": str(run.machine_info[package])}
            for name, (package, repo) in DEPENDENCIES.items()
            if run.machine_info.get(package)
        },
        "runners": [_runner(record.device, len(record.turn.gpus) if record.turn else 1)],
    }


def _runner(device: DeviceFacts, gpus: int) -> Fields:
    """Return a device by the names that test-infra's `gather_runners_info.py` gives it."""
    about = _known_texts(hostname=device.host, uuid=device.uuid, driver=device.driver, cuda_version=device.cuda)
    found = {"name": device.type, "type": device.name, "extra_info": about}
    if device.type == "cpu":
        return {**found, "cpu_info": device.name}
    memory_gb = (device.memory_bytes or 0) * gpus >> 30
    return {**found, "gpu_info": device.name, "gpu_count": gpus, "avail_gpu_mem_in_gb": memory_gb}


def _known_texts(**values: object) -> dict[str, str]:
    """Return what is known as text: `extra_info` has no other values."""
    return {name: str(value) for name, value in values.items() if value not in (None, "")}
