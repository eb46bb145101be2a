"""Records of PyTorch's benchmark database, checked against its schema."""

import json
import math
from types import GenericAlias
from typing import Annotated, Any

import msgspec
import pytest

from pytest_gpubench import DeviceFacts, Measurement
from pytest_gpubench.cli.show import FORMS
from pytest_gpubench.results.model import Outcome, SavedRun, Turn
from tests.results.hostile import hostile_run
from tests.results.measured import record, run, timing_of, verdict
from tests.results.saved import device_facts, make_run

# The columns of `benchmark.oss_ci_benchmark_v3` but for those that the upload adds. Source: pytorch/test-infra at
# 61a77570f45416dc425c17d4a648376541a84732, clickhouse_db_schema/benchmark.oss_ci_benchmark_v3/schema.sql.

UInt32 = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Float32 = Annotated[float, msgspec.Meta(ge=-(2 - 2**-23) * 2.0**127, le=(2 - 2**-23) * 2.0**127)]
Texts = dict[str, str]


def table(title: str, columns: dict[str, Any], *required: str) -> Any:
    """Return the type of records with these columns, and `extra_info`."""
    fields = [(name, columns.pop(name)) for name in required]
    fields += [(name, kind | None, None) for name, kind in columns.items()]  # type: ignore[misc] # one may be left out
    return msgspec.defstruct(title, [*fields, ("extra_info", Texts, {})], forbid_unknown_fields=True)


VALUES = Annotated[list[Float32], msgspec.Meta(min_length=1)]
TEXTS = ("name", "type", "cpu_info", "mem_info", "gpu_info", "gpu_mem_info")
COUNTS = ("cpu_count", "avail_mem_in_gb", "gpu_count", "avail_gpu_mem_in_gb")
Runner = table("Runner", {**dict.fromkeys(TEXTS, str), **dict.fromkeys(COUNTS, UInt32)})
Input = table("Input", {"dtype": str})
Dependency = table("Dependency", dict.fromkeys(("repo", "branch", "sha", "version"), str))
PARTS: list[tuple[str, Any]] = [
    ("benchmark", table("Benchmark", dict.fromkeys(("name", "mode", "dtype"), str), "name")),
    ("model", table("Model", {"name": str, "type": str, "backend": str, "origins": list[str]}, "name")),
    (
        "metric",
        table("Metric", {"name": str, "benchmark_values": VALUES, "target_value": Float32}, "name", "benchmark_values"),
    ),
    ("inputs", GenericAlias(dict, (str, Input))),
    ("dependencies", GenericAlias(dict, (str, Dependency))),
    ("runners", GenericAlias(list, (Runner,))),
]
Record = msgspec.defstruct("Record", PARTS, forbid_unknown_fields=True)


def records_of(run: SavedRun) -> list[Any]:
    """Return the records of a run; raise msgspec.ValidationError where one is not of the schema."""
    return [msgspec.convert(each, Record) for each in msgspec.json.decode(FORMS["pytorch-v3"][0](run))]


def run_of(*measurements: Measurement, **about: Any) -> SavedRun:
    return run(record(*measurements, **{"device": device_facts("NVIDIA H200"), **about}))


def metrics_of(run: SavedRun) -> dict[str, Any]:
    return {each.metric.name: each.metric for each in records_of(run)}


@pytest.mark.parametrize("number", [0.0, 1e-320, 3.5e38, math.inf, math.nan])
@pytest.mark.parametrize("asked", ["1e300", "nan", "{'softmax': 1e300}", "{'softmax': nan}", "[1", "-1"])
def test_every_record_is_of_the_schema(number: float, asked: str) -> None:
    """Whatever was measured, asked for, and read of the machine."""
    kinds = ("max_time_us", "min_speedup", "min_gbps", "min_tflops")
    item = Measurement(
        timing=timing_of([30, number], moved_bytes=2**2000, flops=2**2000, flags=("a",)),
        verdicts=tuple(verdict(f"{kind}={asked}", Outcome.PASS) for kind in kinds),
    )
    device = DeviceFacts(type="cuda", name="a GPU", host="", memory_bytes=2**45)
    found = run_of(item, device=device, params={"dtype": "\x00"}, turn=Turn(gpus=tuple("abcd"), began_s=0, ended_s=1))
    machine = {"torch": [1], "triton": math.nan, "cpu": True}
    for one in (found, hostile_run()):
        names = {each.benchmark.name for each in records_of(msgspec.structs.replace(one, machine_info=machine))}
        assert names <= {"pytest-gpubench"}


def test_numbers_are_those_of_the_run() -> None:
    """All samples in ms as tritonbench's latency, and the numbers that the tables show, in their order."""
    saved = make_run(tests=7)
    found = iter(records_of(saved))
    for test in saved.records:
        for item in test.measurements:
            if not item.timing.measured:
                continue
            one = {each.metric.name: each for each in (next(found) for _ in range(5 if item.speedup else 4))}
            values = {name: each.metric.benchmark_values for name, each in one.items()}
            assert [one[name].metric.extra_info["unit"] for name in ("latency", "median_us")] == ["ms", "us"]
            assert values.pop("latency") == pytest.approx([each / 1000 for each in item.timing.samples_us], abs=1e-9)
            assert values.pop("speedup", None) == (None if item.speedup is None else [item.speedup.ratio])
            timing = item.timing
            assert values == {"median_us": [timing.median_us], "gbps": [timing.gbps], "tflops": [timing.tflops]}
            assert {(each.model.name, each.model.backend) for each in one.values()} == {(test.nodeid, timing.label)}
            assert {each.model.extra_info.get("example", "") for each in one.values()} == {item.example}
    assert list(found) == []
    first, *lines, last = FORMS["pytorch-v3"][0](saved).splitlines()
    assert (first, last, len([json.loads(line.removesuffix(",")) for line in lines])) == (
        "[",
        "]",
        len(records_of(saved)),
    )


def test_a_record_says_what_was_measured_where() -> None:
    found = records_of(make_run(tests=1))[-1]
    assert found.benchmark.dtype == "float16"
    assert found.benchmark.extra_info["cache"] == "cold"
    assert found.inputs["shape"].extra_info == {"value": "4096x1024"}
    (used,), (runner,) = found.dependencies.items(), found.runners
    assert (used[0], used[1].repo, used[1].version) == ("pytorch", "pytorch/pytorch", "2.9.0")
    assert (runner.name, runner.type, runner.gpu_count) == ("cuda", "NVIDIA H200", 1)
    assert runner.extra_info["cuda_version"] == "12.8"
    assert found.metric.extra_info == {
        "unit": "x",
        "limit": "min_speedup=1.2",
        "outcome": "pass",
        "input_shape": "shape=4096x1024, dtype=float16",
        **{name: found.metric.extra_info[name] for name in ("low", "high")},
    }
    low, high = (float(found.metric.extra_info[name]) for name in ("low", "high"))
    assert low < found.metric.benchmark_values[0] < high


@pytest.mark.parametrize(
    ("kind", "asked", "name", "target"),
    [
        ("max_time_us", "40", "median_us", 40),
        ("max_time_us", "40", "latency", 0.04),
        ("max_time_us", "{'A100': 75, 'H200': 40}", "latency", 0.04),
        ("max_time_us", "{'A100': 75}", "latency", None),
        ("max_time_us", "40", "gbps", None),
        ("min_gbps", "3000.5", "gbps", 3000.5),
        ("min_tflops", "1e2", "tflops", 100),
        ("max_regression", "0.05", "median_us", None),
        ("min_gbps", "fast", "gbps", None),
    ],
)
def test_a_limit_is_the_target_of_its_metric(kind: str, asked: str, name: str, target: float | None) -> None:
    item = Measurement(
        timing=timing_of([30], moved_bytes=9, flops=9), verdicts=(verdict(f"{kind}={asked}", Outcome.PASS),)
    )
    assert metrics_of(run_of(item))[name].target_value == target


def test_a_candidate_has_a_target_of_its_own() -> None:
    candidate = make_run(tests=1).records[0].measurements[1]
    asked = verdict("min_speedup={'triton_softmax': 1.5, 'other': 9.0}", Outcome.PASS)
    found = metrics_of(run_of(msgspec.structs.replace(candidate, verdicts=(asked,))))
    assert found["speedup"].target_value == 1.5


@pytest.mark.parametrize(
    "item",
    [
        Measurement(timing=timing_of([30]), verdicts=(verdict("no limit", Outcome.INVALID),)),
        Measurement(timing=timing_of([30]), verdicts=(verdict("min_gbps=3000", Outcome.INVALID),)),
        Measurement(timing=timing_of(unmeasured="switched off")),
    ],
)
def test_what_has_no_number_known_to_be_right_is_left_out(item: Measurement) -> None:
    right = Measurement(timing=timing_of([30], "right"))
    assert records_of(run_of(item)) == []
    assert {each.model.backend for each in records_of(run_of(item, right))} == {"right"}


@pytest.mark.parametrize(
    ("sample_us", "names"),
    [(3.4e38, {"latency", "median_us"}), (3.5e38, {"latency"}), (3.5e41, set()), (float("inf"), set())],
)
def test_numbers_that_the_database_cannot_hold_are_left_out(sample_us: float, names: set[str]) -> None:
    assert set(metrics_of(run_of(Measurement(timing=timing_of([sample_us]))))) == names


def test_a_cpu_is_a_runner_without_a_gpu_and_a_test_on_two_counts_both() -> None:
    item, device = Measurement(timing=timing_of([30])), DeviceFacts(type="cpu", name="A CPU", host="h")
    found = records_of(run_of(item, device=device))[0]
    assert found.runners == [Runner(name="cpu", type="A CPU", cpu_info="A CPU", extra_info={"hostname": "h"})]
    both = records_of(run_of(item, turn=Turn(gpus=("GPU-1", "GPU-2"), began_s=0, ended_s=1)))[0].runners[0]
    assert (both.gpu_count, both.avail_gpu_mem_in_gb) == (2, 280)
