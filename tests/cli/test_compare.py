import re
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import Storage, write_run
from tests.cli.stored import Command, dated
from tests.results.measured import retimed
from tests.results.saved import make_run


def write_two(old: SavedRun, new: SavedRun) -> None:
    write_run(old, Path("old.json"))
    write_run(new, Path("new.json"))


@pytest.mark.parametrize(
    ("slower", "margin", "status", "counts"),
    [
        (1.0, "5%", 0, "7 PASS"),
        (1.2, "5%", 1, "1 INVALID, 6 INCONCLUSIVE"),
        (1.7, "5%", 1, "1 INVALID, 6 FAIL"),
        (1.7, "80%", 0, "7 PASS"),
        (1.7, "5us", 1, "1 INVALID, 6 FAIL"),
    ],
)
def test_exit_status(slower: float, margin: str, status: int, counts: str, command: Command) -> None:
    """One test is measured beside others on the GPU, which makes none faster."""
    new = make_run(tests=7, seed=1, slower=slower)
    *first, plain, sixth, last = new.records
    beside = tuple(retimed(item, neighbours="pid 7 computed") for item in plain.measurements)
    records = (*first, msgspec.structs.replace(plain, measurements=beside), sixth, last)
    write_two(make_run(tests=7), msgspec.structs.replace(new, records=records))
    found, out, err = command("compare", "old.json", "new.json", "--fail-slower", margin)
    assert (found, err) == (status, "")
    assert out.splitlines()[-1].startswith(counts)
    told = re.findall("^(INVALID|FAIL|INCONCLUSIVE): ", out, re.MULTILINE)
    assert told == sorted(told, key=("INVALID", "FAIL", "INCONCLUSIVE").index)


@pytest.mark.parametrize(("choice", "status"), [("fail", 1), ("warn", 0)])
def test_what_cannot_be_decided(choice: str, status: int, command: Command) -> None:
    write_two(make_run(reps=3), make_run(reps=3, seed=1))
    found, out, _ = command("compare", "old.json", "new.json", f"--inconclusive={choice}")
    assert (found, "5 INCONCLUSIVE" in out, "too few for the" in out) == (status, True, True)


@pytest.mark.parametrize(("choice", "status"), [("error", 2), ("warn", 1), ("ignore", 1)])
def test_other_devices(choice: str, status: int, command: Command) -> None:
    """Of runs that share no device nothing is compared, which is 1 where it was asked for."""
    write_two(make_run(), make_run(device="NVIDIA A100"))
    found, out, err = command("compare", "old.json", "new.json", f"--host-mismatch={choice}")
    assert (found, bool(out)) == (status, choice != "error")
    assert (err.count("\n"), err.count("NVIDIA A100")) == ((choice != "ignore"),) * 2


def test_what_is_new_or_gone_is_told_apart(command: Command) -> None:
    """An empty run lacks tests, and no device."""
    whole = make_run(tests=6)
    write_two(*(msgspec.structs.replace(whole, records=whole.records[part]) for part in (slice(1, 6), slice(0, 5))))
    status, out, _ = command("compare", "old.json", "new.json")
    assert (status, "\nnew: tests/perf/test_softmax.py::test_softmax" in out) == (0, True)
    assert re.search("\ngone: .*test_given", out)
    write_two(make_run(tests=7), make_run(tests=0))
    status, out, err = command("compare", "old.json", "new.json")
    assert (status, err, "14 gone" in out) == (1, "", True)


def test_what_the_old_run_left_out_is_compared_with_the_one_before_as_in_pytest(command: Command) -> None:
    storage, whole = Storage(Path(".gpu_benchmarks")), make_run(tests=6)
    part = msgspec.structs.replace(whole, records=whole.records[:1])
    slow = make_run(tests=6, seed=1, slower=1.7)
    for day, run in enumerate((whole, part, slow), 1):
        storage.save_each(dated(run, day), "main", has_failed=run is slow)
    for new in ("latest", "main~failed"):
        status, out, _ = command("compare", "main", new)
        assert (status, "\n7 FAIL, 6 reference (" in out) == (1, True)
        assert re.match(r"old: 0002_main\.json, .*; 5 tests of older runs\nnew: 0003_main~failed\.json", out)


def test_what_both_runs_left_out_is_not_gone_and_an_older_run_that_is_damaged_is_skipped(command: Command) -> None:
    storage, whole = Storage(Path(".gpu_benchmarks")), make_run(tests=6)
    part = msgspec.structs.replace(whole, records=whole.records[:1])
    names = ("main", "main", "new")
    oldest, newest, _ = (
        storage.save_each(dated(run, day), name).popitem()[0]
        for day, (run, name) in enumerate(zip((whole, part, part), names, strict=True), 1)
    )
    status, out, err = command("compare", "main", "new")
    assert (status, err, "gone" in out) == (0, "", False)
    assert re.search(r"^new: 0003_new\.json, .*; 5 tests not measured, .*test_\w+.* first$", out, re.MULTILINE)
    oldest.write_text("{")
    status, out, err = command("compare", "main", "new")
    assert (status, out.splitlines()[0].endswith("older runs")) == (0, False)
    assert re.fullmatch(r"pytest-gpubench compare: .*0001_main\.json.*\n", err)
    newest.replace(oldest)
    newest.write_text("{")
    assert command("compare", "main", "new")[0] == 2, "nothing stands in for the newest"


def test_only_changes_leaves_out_what_stayed(command: Command) -> None:
    write_two(make_run(), make_run())
    for words in ((), ("--only-changes",)):
        out = command("compare", "old.json", "new.json", *words)[1]
        assert ("nothing to show" in out) is bool(words)


def test_the_slowest_comes_first(command: Command) -> None:
    run, slow = make_run(tests=5), make_run(tests=5, slower=1.5)
    write_two(run, msgspec.structs.replace(run, records=(*run.records[:4], slow.records[4])))
    _, out, _ = command("compare", "old.json", "new.json", "--sort")
    header = next(at for at, line in enumerate(out.splitlines()) if line.lstrip().startswith("Verdict "))
    assert "test_plain" in out.splitlines()[header + 2]


def test_runs_of_several_devices_are_compared_device_by_device(command: Command) -> None:
    storage = Storage(Path(".gpu_benchmarks"))
    for device, slower in (("NVIDIA H200", 1.7), ("NVIDIA A100", 1.0)):
        storage.save_each(make_run(device=device), "old")
        storage.save_each(make_run(device=device, seed=1, slower=slower), "new")
    status, out, _ = command("compare", "old", "new")
    assert (status, "5 FAIL" in out, "5 PASS" in out) == (1, True, True)
    assert command("compare", "old", "new", "--device", "a100")[0] == 0


def test_the_id_of_a_test_stands_once_above_its_rows(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    write_two(make_run(), make_run(slower=1.5))
    lines = command("compare", "old.json", "new.json", "--verbose")[1].splitlines()
    ids = [line for line in lines if line.startswith("tests/") and " " not in line]
    assert len(ids) == len(set(ids)) == 5


H200, L4, A100 = "NVIDIA H200", "NVIDIA L4", "NVIDIA A100"
ALONE = {
    ((H200, L4), (H200, A100)): "only the old run has NVIDIA-L4 and only the new run has NVIDIA-A100",
    ((H200, L4, A100), (H200,)): "only the old run has NVIDIA-A100, NVIDIA-L4",
    ((H200,), (L4, H200)): "only the new run has NVIDIA-L4",
}


@pytest.mark.parametrize(("devices", "words"), ALONE.items())
def test_a_device_that_only_one_run_has_is_told(
    devices: tuple[tuple[str, ...], ...], words: str, command: Command
) -> None:
    storage = Storage(Path(".gpu_benchmarks"))
    for name, those in zip(("old", "new"), devices, strict=True):
        for device in those:
            storage.save_each(make_run(tests=7, device=device), name)
    sentence = f"pytest-gpubench compare: {words}: what was measured there is not compared"
    refused = f"{sentence} (--host-mismatch=warn compares the others)\n"
    assert command("compare", "old", "new") == (2, "", refused)
    status, out, err = command("compare", "old", "new", "--host-mismatch=warn")
    assert (status, err) == (0, f"{sentence}\n")
    assert command("compare", "old", "new", "--host-mismatch=ignore") == (0, out, "")
    assert command("compare", "old", "new", "--device=h200") == (0, out, "")
    assert "7 PASS" in out


def test_a_device_that_a_file_has_lost_is_told(command: Command) -> None:
    """As one that was merged of several hosts; what is new there is new in the table."""
    one, other = make_run(tests=1), make_run(tests=1, device=A100)
    both = msgspec.structs.replace(one, records=(*one.records, *other.records))
    write_two(both, one)
    refused = f"only the old run has {A100}: what was measured there is not compared (--host-mismatch=warn"
    assert refused in command("compare", "old.json", "new.json")[2]


@pytest.mark.parametrize("option", ["--fail-slower=0", "--fail-slower=slow", "--fail-slower=-3%"])
def test_what_cannot_be_meant_is_refused(option: str, command: Command) -> None:
    write_two(make_run(), make_run())
    status, out, err = command("compare", "old.json", "new.json", option)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert ":" not in err.removeprefix("pytest-gpubench compare:").partition("write ")[2]  # a metric has its own option


def test_many_sentences_of_a_kind_are_cut_unless_verbose(command: Command) -> None:
    write_two(make_run(tests=60), make_run(tests=60, seed=1, slower=1.7))
    short, full = (command("compare", "old.json", "new.json", *words)[1] for words in ((), ("--verbose",)))
    assert (short.count("\nFAIL: "), "more (--verbose tells all)" in short) == (21, True)
    assert (full.count("\nFAIL: ") > 50, "more (--verbose" in full) == (True, False)


def test_a_fail_has_its_reasons(command: Command) -> None:
    old, new = make_run(tests=1), make_run(tests=1, seed=1, slower=1.7)
    write_two(old, msgspec.structs.replace(new, machine_info={**new.machine_info, "torch": "3.0"}))
    _, out, _ = command("compare", "old.json", "new.json")
    (line,) = (each for each in out.splitlines() if each.startswith("FAIL: "))
    assert line.endswith(f"; with it: torch {old.machine_info['torch']} -> 3.0")


def test_the_header_of_the_ratio_is_true_of_every_row(command: Command) -> None:
    """With speedups, some rows have times for want of one: of these the ratio is new / old, of speedups old / new."""
    write_two(make_run(), make_run(seed=1, slower=1.2))
    lines = command("compare", "old.json", "new.json", "--metric", "speedup")[1].splitlines()
    (header,) = (line for line in lines if line.lstrip().startswith("Verdict "))
    rows = [line.split() for line in lines if re.search(r"x \[", line) and "INCONCLUSIVE:" not in line]
    assert header.endswith("Slowdown")
    assert {"us" in row for row in rows} == {True, False}
    assert all(1.15 < float(row[-3].rstrip("x")) < 1.25 for row in rows)
    assert "New / old" in command("compare", "old.json", "new.json")[1]
