"""Sessions of a saved run: which runs join it, what is kept of each, and how much they differ."""

from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.results.baseline import Baseline, slimmed
from pytest_gpubench.results.counterpart import KeyReader, PastTest
from pytest_gpubench.results.model import CommitInfo, SavedRun
from pytest_gpubench.results.store import Storage, read_run
from pytest_gpubench.results.store.storage import count_sessions
from pytest_gpubench.stats.process_spread import UNKNOWN_SPEEDUP, UNKNOWN_TIME
from tests.results.measured import GPU, TEST, alone, find, on, pair, record, run

COMMIT = CommitInfo(id="c0ffee", dirty=False)
OTHER = "tests/test_a.py::test_other"
(KEY,) = KeyReader().read_after([], [alone()])


def session(us: float = 289, **others: Any) -> SavedRun:
    return run(record(alone(us=us)), **{"commit_info": COMMIT, **others})


def saved(folder: Path, *runs: SavedRun) -> SavedRun:
    for each in runs:
        (path,) = Storage(folder).save_each(each, "main")
    return read_run(path)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (session(300, datetime="later", settings={"reps": "20"}), True),
        (run(record(alone(), device=on(uuid="GPU-2")), commit_info=COMMIT), True),
        (session(commit_info=CommitInfo(id="decaf", dirty=False)), False),
        (session(commit_info=CommitInfo(id="c0ffee", dirty=True)), False),
        (session(commit_info=CommitInfo(error="git is not installed")), False),
        (session(machine_info={"torch": "2.12"}), False),
        (run(record(alone(), device=on(driver="580.1")), commit_info=COMMIT), False),
        (run(record(alone(), device=on(host="there")), commit_info=COMMIT), False),
    ],
)
def test_sessions_are_of_one_commit_and_one_machine(other: SavedRun, same: bool, tmp_path: Path) -> None:
    for folder, runs in (("one", (session(), other)), ("other", (other, session()))):
        assert count_sessions(saved(tmp_path / folder, *runs)) == 1 + same
    if other.commit_info.id is None:
        assert count_sessions(saved(tmp_path, other, other)) == 1


def test_each_session_keeps_what_it_measured(tmp_path: Path) -> None:
    first = run(record(alone(us=1)), record(alone(us=2), nodeid=OTHER), commit_info=COMMIT)
    second, third = (session(us, datetime=str(us), name="new") for us in (3, 5))
    whole = saved(tmp_path, first, second, third)
    assert [each.nodeid for each in whole.records] == [OTHER, TEST]
    medians = [round(each.measurements[0].timing.median_us) for each in (*whole.records, *whole.earlier)]
    assert medians == [2, 5, 1, 3]
    assert (whole.datetime, whole.name) == ("5", "main")
    assert count_sessions(whole) == 3
    assert count_sessions(first) == 1
    assert {(each.nodeid, each.device.name) for each in whole.earlier} == {(TEST, GPU.name)}


def test_a_test_is_found_with_its_earlier_sessions(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole", session(280), session(290), session(300))
    for each in (whole, slimmed(whole)):
        found = find(Baseline.decode(Baseline([("main", each)]).encode()))
        assert isinstance(found, PastTest)
        assert [each.timing.median_us for each in found.earlier_of(KEY)] == pytest.approx([280, 290], rel=0.01)
        assert found.earlier_of(KEY._replace(occurrence=1)) == []
    changed = run(record(alone(), source="other"), commit_info=COMMIT)
    assert find(Baseline([("main", saved(tmp_path / "changed", changed, session()))])).earlier == ()


def test_the_spread_of_a_suite_is_that_of_its_sessions(tmp_path: Path) -> None:
    """What was not measured, or is INVALID, has none; that of a speedup is not that of its times."""
    assert Baseline([("main", session())]).spreads == {"speedup": UNKNOWN_SPEEDUP, "time": UNKNOWN_TIME}
    runs = [
        run(
            *(record(*pair("mine", 200 * drift, 400 * drift), nodeid=f"{TEST}[{n}]") for n in range(9)),
            commit_info=COMMIT,
        )
        for drift in (1, 1.02, 0.98, 1.01, 0.99)
    ]
    spreads = Baseline([("main", saved(tmp_path, *runs))]).spreads
    assert 2 * UNKNOWN_TIME.std < spreads["time"].std < 0.016
    assert spreads["speedup"].std < UNKNOWN_SPEEDUP.std / 2


def test_a_session_without_numbers_is_none(tmp_path: Path) -> None:
    unmeasured = run(record(alone(samples_us=(), unmeasured="off")), commit_info=COMMIT)
    whole = saved(tmp_path, unmeasured, session(289), session(290))
    assert Baseline([("main", whole)]).spreads["time"].std < 0.004
