"""Hostile baselines: no text of theirs reaches the terminal or the log of the CI job as a command."""

import json
from pathlib import Path
from typing import Any

from tests.plugin.conftest import BenchRun
from tests.plugin.saving import SPEEDS
from tests.results.hostile import ATTACK, attacks_in

TESTS = f"""{SPEEDS}
@pytest.mark.parametrize("n", [1])
def test_it(gpu_bench, n): gpu_bench.compare(candidate, reference)
def test_alone(gpu_bench): gpu_bench(candidate)
"""
IDENTITY = {"nodeid", "source", "params", "name", "type", "label", "role", "kind", "reference", "outcome"}
"""What a test and its measurements are found by, and what cannot be any text."""


def attacked(value: Any, field: str, name: str = "") -> Any:
    """Return JSON in which the texts of a field are attacks, or without one all but those of an identity."""
    if isinstance(value, dict):
        return {key: attacked(each, field, f"{name}.{key}" if name == "params" else key) for key, each in value.items()}
    if isinstance(value, list):
        return [attacked(each, field, name) for each in value]
    return ATTACK if isinstance(value, str) and (name == field if field else name not in IDENTITY) else value


def test_no_text_of_a_baseline_is_a_command(bench_run: BenchRun) -> None:
    """All texts at once, where the test is still found, and those by which it or its measurements are not."""
    bench_run(TESTS, "--gpu-bench-save=main")
    (path,) = Path(".gpu_benchmarks").glob("*/0001_main.json")
    saved = path.read_text()
    policies = ("--gpu-bench-missing-baseline=fail", "--gpu-bench-host-mismatch=fail")
    for field in ("", "timer", "cache", "host", "label", "nodeid", "params.n", "sentence", "name"):
        run = json.loads(saved)
        for record in run["gpu_bench"]["records"]:
            if field == "sentence":
                for item in record["measurements"]:
                    item["verdicts"] = [{"kind": "x", "asked": "x", "outcome": "invalid", "sentence": ATTACK}]
        changed = attacked(run, field)
        changed["gpu_bench"]["name"] = ATTACK
        path.write_text(json.dumps(changed))
        for options in ((), ("--gpu-bench-compare-fail=median:5%", *policies)):
            files = ("--gpu-bench-compare=main", "--gpu-bench-markdown=run.md", "--color=no")
            result = bench_run(TESTS, *files, *options, FACTOR="1.5")
            assert "INTERNALERROR" not in result.stdout.str(), field
            assert attacks_in(result.stdout.str() + result.stderr.str() + Path("run.md").read_text()) == [], field


def test_no_name_of_a_file_is_a_command(bench_run: BenchRun) -> None:
    folder = Path(".gpu_benchmarks") / ATTACK.replace("/", "")
    folder.mkdir(parents=True)
    (folder / f"0001_{ATTACK}.json").write_text("{")
    for which in ("latest", "main", ATTACK):
        result = bench_run(TESTS, f"--gpu-bench-compare={which}", f"--gpu-bench-html={ATTACK}/x/")
        assert attacks_in(result.stdout.str() + result.stderr.str()) == []
