from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import read_run, write_run
from tests.cli.stored import Command, dated
from tests.results.saved import make_run


def shards(run: SavedRun, *cuts: int) -> list[SavedRun]:
    ends = [0, *cuts, len(run.records)]
    pieces = [run.records[begin:end] for begin, end in pairwise(ends)]
    return [msgspec.structs.replace(run, records=records) for records in pieces]


def save(*runs: SavedRun) -> list[str]:
    names = [f"part{number}.json" for number, _ in enumerate(runs)]
    for name, run in zip(names, runs, strict=True):
        write_run(run, Path(name))
    return names


def test_the_shards_of_a_run_make_the_run_again(command: Command) -> None:
    whole = make_run(tests=9)
    names = save(*shards(whole, 2, 5))
    status, out, _ = command("merge", *names, "-o", "all.json")
    assert status == 0
    assert out == "all.json: 9 tests of 3 runs\n"
    assert read_run(Path("all.json")) == whole


def test_hosts_with_other_gpus_keep_their_own_results(command: Command) -> None:
    names = save(make_run(), make_run(device="NVIDIA A100"))
    assert command("merge", *names, "-o", "all.json", "--name", "both")[0] == 0
    merged = read_run(Path("all.json"))
    assert [record.device.name for record in merged.records] == ["NVIDIA H200"] * 5 + ["NVIDIA A100"] * 5
    assert merged.name == "both"


@pytest.mark.parametrize(("keep", "seed", "earlier"), [("first", 0, 5), ("last", 1, 0)])
def test_a_test_that_was_measured_twice(keep: str, seed: int, earlier: int, command: Command) -> None:
    """The one that is kept keeps its earlier sessions."""
    names = save(msgspec.structs.replace(make_run(), earlier=make_run(seed=2).records), make_run(seed=1))
    status, out, err = command("merge", *names, "-o", "all.json")
    assert (status, out) == (2, "")
    assert all(name in err for name in ("test_softmax", *names))
    assert not Path("all.json").exists()
    assert command("merge", *names, "-o", "all.json", f"--keep={keep}")[0] == 0
    merged = read_run(Path("all.json"))
    assert (merged.records, len(merged.earlier)) == (make_run(seed=seed).records, earlier)


def test_repeats_within_a_run_stay(command: Command) -> None:
    run = make_run(tests=2)
    twice = msgspec.structs.replace(run, records=(*run.records, *run.records))
    names = save(twice, make_run(tests=1, device="NVIDIA A100"))
    assert command("merge", *names, names[0], "-o", "all.json")[:2] == (0, "all.json: 5 tests of 2 runs\n")


def test_other_commits_are_refused(command: Command) -> None:
    first, second = shards(make_run(), 2)
    names = save(dated(first, 1), dated(second, 2))
    status, _, err = command("merge", *names, "-o", "all.json")
    assert (status, "00000001" in err, "00000002" in err) == (2, True, True)
    assert command("merge", *names, "-o", "all.json", "--any-commit")[0] == 0
    merged = read_run(Path("all.json"))
    assert merged.commit_info.dirty is True
    assert merged.datetime == "2026-03-02T12:30:00+00:00"


def test_what_differs_between_hosts_and_settings_is_kept(command: Command) -> None:
    first, second = shards(make_run(), 2)
    machine = {**second.machine_info, "node": "gpu-host-4", "system": "Windows"}
    other = msgspec.structs.replace(second, machine_info=machine, settings={"reps": "20", "seed": "3"})
    command("merge", *save(first, other), "-o", "all.json")
    merged = read_run(Path("all.json"))
    assert merged.machine_info["node"] == "gpu-host-3, gpu-host-4"
    assert (merged.machine_info["torch"], merged.machine_info.get("system")) == ("2.9.0", None)
    assert merged.settings == {"reps": "40 / 20", "seed": "default / 3"}
