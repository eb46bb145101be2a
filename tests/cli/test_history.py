from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.cli.history import bar
from pytest_gpubench.results.model import VALIDITY, Outcome, Verdict
from pytest_gpubench.results.store import Storage
from pytest_gpubench.units import round_to_digits
from tests.cli.stored import Command, dated, fill
from tests.results.saved import make_run

ROOT = Path(".gpu_benchmarks")

INVALID = Verdict(kind=VALIDITY, asked="nobody else on the GPU", outcome=Outcome.INVALID, sentence="somebody else")


def test_a_change_is_marked_at_the_first_run_that_has_it(command: Command) -> None:
    fill(ROOT, days=14, slower_from=9)
    status, out, err = command("history", "test_plain")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "tests/perf/test_plain.py::test_plain: kernel: NVIDIA H200, profiler timer, cold cache"
    marked = [line for line in lines if "<-" in line]
    assert len(marked) == 1
    assert marked[0].startswith("0009  2026-03-09 12:30 UTC  00000009")
    assert "<- slower: 1.099 x the median before" in marked[0]
    assert "14 runs, 1 change (alpha 0.01): from run 0009 on slower" in out


def test_the_numbers_are_those_of_the_runs(command: Command) -> None:
    fill(ROOT, days=3)
    _, out, _ = command("history", "test_softmax")
    for day, line in zip(range(1, 4), out.splitlines()[3:], strict=False):
        candidate = make_run(tests=7, seed=day).records[0].measurements[1]
        assert f"  {round_to_digits(candidate.timing.median_us, 4)}  [" in line
        assert candidate.speedup is not None
        assert f"{candidate.speedup.ratio:.3f}x" in line


@pytest.mark.parametrize("metric", ["median", "mean", "q1", "q3", "speedup"])
def test_every_metric_finds_it(metric: str, command: Command) -> None:
    fill(ROOT, days=14, slower_from=9)
    _, out, _ = command("history", "softmax", "--metric", metric)
    assert "from run 0009 on slower" in out


def test_no_change_is_said_too(command: Command) -> None:
    fill(ROOT, days=12)
    _, out, _ = command("history", "test_plain")
    assert "12 runs: no change found (alpha 0.01)" in out
    assert "<-" not in out


def test_few_runs_are_shown_without_a_search(command: Command) -> None:
    fill(ROOT, days=5)
    assert "5 runs: a change can be found from 11 runs on (alpha 0.01)" in command("history", "test_plain")[1]


def test_each_device_has_a_history_of_its_own(command: Command) -> None:
    fill(ROOT, days=2)
    Storage(ROOT).save_each(make_run(device="NVIDIA A100"), "")
    _, out, _ = command("history", "test_plain")
    assert out.count("test_plain: kernel: ") == 2
    _, out, _ = command("history", "test_plain", "--device", "a100")
    assert out.count("test_plain: kernel: ") == 1


def test_other_timers_and_caches_are_other_histories(command: Command) -> None:
    run = make_run(tests=5)
    record = run.records[4]
    (item,) = record.measurements
    hot = msgspec.structs.replace(item, timing=msgspec.structs.replace(item.timing, cache="hot"))
    for number, one in enumerate((item, hot, hot)):
        changed = msgspec.structs.replace(record, measurements=(one,))
        Storage(ROOT).save_each(dated(msgspec.structs.replace(run, records=(changed,)), number + 1), "")
    _, out, _ = command("history", "test_plain")
    assert "profiler timer, cold cache" in out
    assert "profiler timer, hot cache" in out
    assert "2 runs: " in out


def test_a_change_after_what_is_invalid_is_marked_where_it_is(command: Command) -> None:
    for day in range(1, 15):
        run = make_run(tests=5, seed=day, slower=1.1 if day >= 9 else 1.0)
        (item,) = run.records[4].measurements
        kept = msgspec.structs.replace(item, verdicts=(INVALID,) if day == 2 else ())
        record = msgspec.structs.replace(run.records[4], measurements=(kept,))
        Storage(ROOT).save_each(dated(msgspec.structs.replace(run, records=(record,)), day), "")
    _, out, _ = command("history", "test_plain")
    assert "13 runs, 1 change (alpha 0.01): from run 0009 on" in out
    assert next(line for line in out.splitlines() if "<-" in line).startswith("0009")


def test_what_is_invalid_counts_for_nothing(command: Command) -> None:
    """A run whose number is known to be wrong is shown, and neither hides nor makes a change."""
    fill(ROOT, days=8)
    run = make_run(tests=5, slower=9)
    (item,) = run.records[4].measurements
    bad = msgspec.structs.replace(item, verdicts=(INVALID,))
    record = msgspec.structs.replace(run.records[4], measurements=(bad,))
    Storage(ROOT).save_each(dated(msgspec.structs.replace(run, records=(record,)), 9), "")
    _, out, _ = command("history", "test_plain")
    assert "  INVALID" in out
    assert "8 runs: a change can be found from 11 runs on" in out


def test_a_changed_source_is_marked(command: Command) -> None:
    run = make_run(tests=5)
    record = msgspec.structs.replace(run.records[4], source="f" * 16)
    Storage(ROOT).save_each(dated(run, 1), "")
    Storage(ROOT).save_each(dated(msgspec.structs.replace(run, records=(record,)), 2), "")
    _, out, _ = command("history", "test_plain")
    (line,) = [line for line in out.splitlines() if "the test's source changed" in line]
    assert line.startswith("0002")


def test_nothing_found_is_1(command: Command) -> None:
    status, out, err = command("history", "softmax")
    assert (status, out) == (1, "")
    assert "there are no saved runs" in err
    fill(ROOT, days=1)
    status, out, err = command("history", "nothing")
    assert (status, out) == (1, "")
    assert "'nothing'" in err


def test_a_damaged_run_is_told_and_the_others_shown(command: Command) -> None:
    first, _ = fill(ROOT, days=2)
    first.write_text("{")
    status, out, err = command("history", "test_plain")
    assert status == 2
    assert "0002" in out
    assert str(first) in err


@pytest.mark.parametrize(
    ("value", "longest", "drawn"),
    [
        (1.0, 1.0, "█" * 24),
        (0.5, 1.0, "█" * 12),
        (1e-9, 1.0, "▏"),
        (None, 1.0, ""),
        (1.0, 0.0, ""),
    ],
)
def test_bars(value: float | None, longest: float, drawn: str) -> None:
    assert bar(value, longest, 24) == drawn
