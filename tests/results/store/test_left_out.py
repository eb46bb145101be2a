"""Names are looked up test by test, the newest run first, and failed runs are nobody's baseline."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_gpubench import BadFile
from pytest_gpubench.results.model import CommitInfo, SavedRun
from pytest_gpubench.results.store import Storage, read_run
from tests.results.saved import make_run
from tests.results.store.files import save

WHOLE = make_run(3, 1)
TESTS = [record.nodeid for record in WHOLE.records]


class Saved(NamedTuple):
    """What one run of pytest does with each test, by its place in TESTS: it measures, leaves out, or has it no more."""

    name: str
    fates: tuple[str, ...]
    has_failed: bool


def run_of(measured: set[str], number: int) -> SavedRun:
    records = tuple(record for record in WHOLE.records if record.nodeid in measured)
    return msgspec.structs.replace(WHOLE, records=records, commit_info=CommitInfo(id=f"{number}"))


def save_one(storage: Storage, number: int, saved: Saved) -> None:
    by_fate = {fate: {test for test, each in zip(TESTS, saved.fates, strict=True) if each == fate} for fate in FATES}
    run = run_of(by_fate["measured"], number)
    storage.save_each(run, saved.name, by_fate["gone"].__contains__, saved.has_failed)


FATES = ("measured", "left out", "gone")
runs = st.builds(
    Saved,
    st.sampled_from(["main", "other"]),
    st.tuples(*[st.sampled_from(FATES)] * len(TESTS)).filter(lambda fates: "measured" in fates),
    st.booleans(),
)


def expected(saves: list[Saved], name: str) -> dict[str, int]:
    """Return the number of the run that each test is looked up in."""
    found: dict[str, int] = {}
    for number, saved in enumerate(saves):
        if not saved.has_failed and name in (saved.name, "latest"):
            for test, fate in zip(TESTS, saved.fates, strict=True):
                if fate == "measured":
                    found[test] = number
                elif fate == "gone":
                    found.pop(test, None)
    return found


DELETED_ELSEWHERE = [
    Saved("main", ("measured",) * 3, False),
    Saved("other", ("measured", "gone", "gone"), False),
    Saved("main", ("measured", "left out", "gone"), False),
]

GONE_SINCE = [
    Saved("main", ("measured", *others), False)
    for others in (("measured",) * 2, ("left out",) * 2, ("left out", "gone"))
]


@example(GONE_SINCE, "main")
@example(DELETED_ELSEWHERE, "main")
@given(st.lists(runs, min_size=1, max_size=4), st.sampled_from(["main", "other", "latest"]))
def test_each_test_is_that_of_the_newest_run_that_did_not_leave_it_out(saves: list[Saved], name: str) -> None:
    with TemporaryDirectory() as folder:
        storage = Storage(Path(folder))
        for number, saved in enumerate(saves):
            save_one(storage, number, saved)
        if not any(not saved.has_failed and name in (saved.name, "latest") for saved in saves):
            with pytest.raises(BadFile, match="there is no saved run"):
                storage.baselines(name)
            return
        found = [
            (record.nodeid, int(run.commit_info.id or ""))
            for _, run in storage.baselines(name)
            for record in run.records
        ]
    assert len(found) == len({test for test, _ in found})
    assert dict(found) == expected(saves, name)


def test_a_further_session_leaves_out_what_the_run_has_no_session_of(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    clean = msgspec.structs.replace(WHOLE, commit_info=CommitInfo(id="1", dirty=False))
    parts = [
        msgspec.structs.replace(clean, records=clean.records[low:high], commit_info=CommitInfo(id=commit, dirty=False))
        for low, high, commit in ((0, 3, "0"), (0, 1, "1"), (1, 2, "1"))
    ]
    path = [save(storage, part, "main") for part in parts][-1]
    assert path.name == "0002_main.json"
    assert [record.nodeid for record in read_run(path).records] == TESTS[:2]
    assert read_run(path).left_out == (TESTS[2],)


def test_a_failed_run_is_found_by_its_own_name_only_or_where_there_is_no_other(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    (failed,) = storage.save_each(run_of({TESTS[0]}, 0), "main", has_failed=True)
    assert failed.name == "0001_main~failed.json"
    assert read_run(failed).name == "main~failed"
    assert storage.find("main") == storage.find("latest") == baselines_of(storage, "main~failed") == [failed]
    assert baselines_of(storage, "1") == baselines_of(storage, str(failed)) == [failed]
    for which in ("main", "latest"):
        with pytest.raises(BadFile, match="there is no saved run"):
            storage.baselines(which)
    (kept,) = storage.save_each(run_of({TESTS[0]}, 1), "main")
    (again,) = storage.save_each(run_of({TESTS[0]}, 2), "main", has_failed=True)
    assert storage.find("main") == baselines_of(storage, "main") == baselines_of(storage, "latest") == [kept]
    assert storage.find("latest") == [again]
    (unnamed,) = storage.save_each(run_of({TESTS[0]}, 0), has_failed=True)
    assert (unnamed.name.endswith("~failed.json"), read_run(unnamed).name) == (True, "")


def baselines_of(storage: Storage, which: str) -> list[Path]:
    return [path for path, _ in storage.baselines(which)]
