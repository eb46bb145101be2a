from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpubench import Measurement, Verdict
from pytest_gpubench.results.model import Outcome, SavedRun
from pytest_gpubench.results.store import Storage
from pytest_gpubench.units import round_to_digits
from tests.cli.stored import Command, dated, fill
from tests.results.measured import kernel, record, retimed, run, timing_of
from tests.results.saved import make_run

ROOT = Path(".gpu_benchmarks")


def save_plain(day: int, slower: float = 1.0, **changes: Any) -> None:
    """Save a run of a day; changes: of its measurement of test_plain."""
    run = make_run(tests=5, slower=slower)
    (item,) = run.records[4].measurements
    test = msgspec.structs.replace(run.records[4], measurements=(msgspec.structs.replace(item, **changes),))
    Storage(ROOT).save_each(dated(msgspec.structs.replace(run, records=(test,)), day), "")


INVALID = Verdict(kind="validity", asked="nobody else on the GPU", outcome=Outcome.INVALID, sentence="somebody else")


def test_a_change_is_marked_at_the_first_run_that_has_it(command: Command) -> None:
    fill(ROOT, days=14, slower_from=9)
    status, out, err = command("history", "test_plain")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "tests/perf/test_plain.py::test_plain: kernel: NVIDIA H200, profiler timer, cold cache"
    (marked,) = [line for line in lines if "<-" in line]
    assert marked.startswith("0009  2026-03-09 12:30 UTC  00000009")
    assert "<- slower: 1.099 x the median before" in marked
    assert "14 runs (alpha 0.01): 1 change: from run 0009 on slower" in out


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


def test_each_device_has_a_history_of_its_own(command: Command) -> None:
    """In few runs no change is looked for."""
    fill(ROOT, days=5)
    Storage(ROOT).save_each(make_run(device="NVIDIA A100"), "")
    _, out, _ = command("history", "test_plain")
    assert out.count("test_plain: kernel: ") == 2
    assert "5 runs (alpha 0.01): changes are looked for from 6 runs on" in out
    assert command("history", "test_plain", "--device", "a100")[1].count("test_plain: kernel: ") == 1


def test_other_timers_and_caches_are_other_histories(command: Command) -> None:
    (item,) = make_run(tests=5).records[4].measurements
    for day, cache in enumerate(("cold", "hot", "hot"), 1):
        save_plain(day, timing=retimed(item, cache=cache).timing)
    _, out, _ = command("history", "test_plain")
    assert all(words in out for words in ("profiler timer, cold cache", "profiler timer, hot cache", "2 runs (alpha"))


def test_what_is_invalid_counts_for_nothing(command: Command) -> None:
    """A run whose number is known to be wrong is shown, and neither hides nor makes a change."""
    fill(ROOT, days=8)
    save_plain(9, slower=9, verdicts=(INVALID,))
    _, out, _ = command("history", "test_plain")
    assert ("  INVALID" in out, "8 runs (alpha 0.01): no change by 1.1 % or more found" in out) == (True, True)


@pytest.mark.parametrize(
    ("old_us", "new_us", "others", "found"),
    [
        (1.024, 1.056, (), "no change by 5.8 % or more found"),  # the next tick of the clock, of 32 ns
        (1.024, 1.12, (), "1 change: from run 0008 on slower: 1.094 x"),
        (100.0, 101.0, (), "no change by 1.1 % or more found"),
        (100.0, 102.0, (), "1 change: from run 0008 on slower: 1.020 x"),
        (100.0, 102.0, (0.98, 1.02), "no change by 7.5 % or more found"),
        (100.0, 101.0, (1.0, 1.001), "no change by 1.1 % or more found"),  # sessions of a run share its day
    ],
)
def test_a_change_is_more_than_sessions_differ_by(
    old_us: float, new_us: float, others: tuple[float, ...], found: str, command: Command
) -> None:
    """Days of one level follow each other: of values that are exchangeable each of these would be a change."""
    for day in range(1, 15):
        us = new_us if day >= 8 else old_us
        now, *earlier = (record(Measurement(timing=timing_of((us * each,) * 20))) for each in (1.0, *others))
        Storage(ROOT).save_each(dated(run(now, earlier=tuple(earlier)), day), "")
    assert f"14 runs (alpha 0.01): {found}" in command("history", "*")[1]


@pytest.mark.parametrize("slower", [True, False])
def test_what_became_slower_has_its_reasons(slower: bool, command: Command) -> None:
    """And what became faster has none."""
    for day in range(1, 13):
        factor = 1.5 if (day >= 9) == slower else 1.0
        (item,) = make_run(tests=5, seed=day, slower=factor).records[4].measurements
        kernels = (kernel("softmax", 1, 10.0), *([kernel("copy_", 1, 5.0)] if day >= 9 else []))
        save_plain(day, timing=retimed(item, kernels=kernels).timing)
    for words in ((), ("--brief",)):
        _, out, _ = command("history", "test_plain", *words)
        found = [line for line in out.splitlines() if line.startswith("with it")]
        assert found == ["with it, in run 0009: one more kernel: copy_ (33 % of the time)"] * slower


def test_a_changed_source_is_marked(command: Command) -> None:
    for day, source in enumerate("aab", 1):
        Storage(ROOT).save_each(
            dated(run(record(make_run(tests=5).records[4].measurements[0], source=source)), day), ""
        )
    (line,) = [line for line in command("history", "*")[1].splitlines() if "the test's source changed" in line]
    assert line.startswith("0003")


def test_nothing_found_is_1(command: Command) -> None:
    for pattern, said in (("softmax", "there are no saved runs"), ("nothing", "'nothing'")):
        status, out, err = command("history", pattern)
        assert (status, out, said in err) == (1, "", True)
        fill(ROOT, days=1)


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([1.0, 2.0], "▁█"),
        ([100.0, 101.0, 100.0], "▄▅▄"),  # of 6 % of its height
        ([100.0], "▅"),
        ([1.0, None, 3.0, 2.0], "▁ █▅"),
        ([None], ""),
        ([1.0] + [2.0] * 59 + [2.0], "▅" * 60),
    ],
)
def test_lines(values: list[float | None], drawn: str, command: Command) -> None:
    for day, us in enumerate(values):
        item = Measurement(timing=timing_of((us or 1.0,)), verdicts=() if us else (INVALID,))
        Storage(ROOT).save_each(run(record(item), datetime=f"2026-03-01T0{day // 60}:{day % 60:02}:00+00:00"), "")
    assert f"\n{drawn} {sum(map(bool, values))} run" in command("history", "*", "--brief")[1]


# a test with a reference


def compared(day: int, slower: float = 1.0, machine: float = 1.0, **device: str) -> SavedRun:
    """Return a run of a test with a reference: it alone may be slower, or the machine that both run on."""
    run = make_run(tests=1, seed=day)
    (record,) = run.records
    reference, item = record.measurements
    assert item.speedup is not None
    item = msgspec.structs.replace(
        retimed(item, samples_us=tuple(slower * machine * us for us in item.timing.samples_us)),
        speedup=msgspec.structs.replace(item.speedup, ratio=item.speedup.ratio / slower),
    )
    device_now = msgspec.structs.replace(record.device, **device)
    record = msgspec.structs.replace(record, measurements=(reference, item), device=device_now)
    return dated(msgspec.structs.replace(run, records=(record,)), day)


def test_a_new_machine_is_no_change_of_a_test_with_a_reference(command: Command) -> None:
    for day in range(1, 15):
        is_new = day >= 9
        driver, uuid = ("999.1", "GPU-2") if is_new else ("570.1", "GPU-1")
        Storage(ROOT).save_each(compared(day, machine=1.1 if is_new else 1.0, driver=driver, uuid=uuid), "")
    _, out, _ = command("history", "softmax")
    assert "14 runs (alpha 0.01): no change by 1.6 % or more found" in out
    assert "; with its reference from run 0009 on slower: 1." in out
    (line,) = [line for line in out.splitlines() if line.startswith("0009")]
    assert "slower: 1." in line
    assert line.endswith("999.1, another card")
    assert ": 1 change: from run 0009 on slower: 1." in command("history", "softmax", "--metric", "median")[1]


def test_a_change_against_its_reference_is_the_tests_own(command: Command) -> None:
    for day in range(1, 11):
        Storage(ROOT).save_each(compared(day, slower=1.1 if day >= 8 else 1.0), "")
    _, out, _ = command("history", "softmax", "--brief")
    title, summary = out.splitlines()
    assert title.endswith("profiler timer, cold cache")
    assert "10 runs (alpha 0.01): 1 change: from run 0008 on slower: 0.9" in summary
    assert "with its reference" not in summary
