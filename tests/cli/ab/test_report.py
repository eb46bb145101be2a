"""Reports of `ab` for CI: the comment, JSON and the page; and tests that changed between the commits."""

import json
import re
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_gpubench.cli import main
from tests.cli.ab.faked import NODEID, FakePytest, Git, commit

COMMENT = Path("comment.md")


def compare(git: Git, base: str, head: str, *words: str) -> int:
    commit(git, {"us": base})
    Path("us").write_text(head)
    return main(["ab", "main", "--rounds", "1", "--markdown", str(COMMENT), *words])


def test_the_worst_is_told_first_and_what_does_not_count_says_why(
    git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]
) -> None:
    base, head = "fast=10 shaky=10 beside=10! slow=10", "fast=10 shaky=10,10.9 beside=10 slow=20 new=10"
    assert compare(git, base, head) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "INVALID       tests/test_a.py::test_beside [beside]",
        "FAIL          tests/test_a.py::test_slow [slow]",
        "              with it",
        "INCONCLUSIVE  tests/test_a.py::test_shaky [shaky]",
        "NOT JUDGED    tests/test_a.py::test_new",
        "PASS          tests/test_a.py::test_fast [fast]",
    ]
    assert lines[2].endswith("with it: executes 2.0x the instructions: 10,000 -> 20,000")
    counts = "3 measurements compared: 1 invalid, 1 fail, 1 inconclusive, 1 not judged, 1 pass"
    assert last == f"gpu_bench: {counts}"
    told = COMMENT.read_text()
    title, _, old, new, *_ = told.splitlines()
    assert title == f"## Performance of HEAD against BASE: ❌ {counts}"
    assert old.startswith("- BASE: main (")
    assert new.startswith("- HEAD: the working tree")
    rows = re.findall(r"^\| (.*) \|$", told, re.MULTILINE)
    assert [row.split(" | ")[0] for row in rows if "test_" in row] == [
        *("❌ INVALID", "❌ FAIL", "⚠️ INCONCLUSIVE", "NOT JUDGED"),
        *("❌ FAIL", "⚠️ INCONCLUSIVE", "✅ PASS"),
    ]
    assert "<br>with it: executes 2.0x the instructions: 10,000 -&#62; 20,000 |" in told
    assert "| HEAD alone has it: a new test |" in told
    assert "| 10.00 us | 20.00 us | 2.000x [2.000, 2.000] |" in told


def test_names_are_written_as_text(git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(git, "<b>\u202e|=10", "<b>\u202e|=20") == 1
    assert r"[<b>\u202e|]: <b>\u202e| is slower" in capsys.readouterr().out
    assert not {"<b>", "\u202e"} & set(re.findall("<b>|\u202e", COMMENT.read_text()))


def test_a_comment_is_never_too_long(git: Git, fake: FakePytest) -> None:
    names = [f"{number}{'f' * 200}" for number in range(300)]
    base, head = (" ".join(f"{name}={us}" for name in names) for us in (10, 11))
    assert compare(git, base, head) == 1
    assert len(COMMENT.read_bytes()) < 60_000
    assert "findings left out" in COMMENT.read_text()


@pytest.mark.parametrize(("second", "few"), [(10.01, False), (10.1, True)])
def test_what_this_machine_can_see_is_told(
    second: float, few: bool, git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(git, "10", f"10,{second}", "--rounds", "2")
    share = r"\d\.\d+ %"
    found = re.search(
        rf"runs of the same code differ by {share} here, so 2 rounds show {share} or more(.*)", capsys.readouterr().err
    )
    assert found is not None
    assert found[1] == ": more than --fail-slower 3.0 %, take more --rounds" * few


def test_what_is_written_into_files(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    paths = {form: tmp_path / f"ab.{form}" for form in ("markdown", "json", "html")}
    words = [word for form, path in paths.items() for word in (f"--{form}", str(path))]
    assert compare(git, "10", "10.4", *words, "--rounds", "4") == 1
    assert paths["markdown"].read_text().startswith("## Performance of HEAD against BASE: ❌ 1 measurement compared")
    content = json.loads(paths["json"].read_text())
    assert re.fullmatch(r"main \(\w{8}\)", content["base"])
    assert (content["exit_status"], content["rounds"], content["tolerance"]) == (1, 2, "speedup:3%")
    assert (content["spread_between_runs"], content["smallest_change"]) == (0, 0)
    (found,) = content["findings"]
    assert (found["test"], found["function"], found["outcome"], found["metric"]) == (NODEID, "f", "fail", "median")
    assert (found["slowdown"], found["base"], found["head"], found["reasons"]) == (pytest.approx(1.04), 10.0, 10.4, [])
    page = paths["html"].read_text()
    assert 0 < page.index("f is slower than in BASE: 1.040x") < page.index('"kind":"max_time_us"')  # the worst first
    assert '"word":"slower","baseline":"BASE"' in page


def test_what_counted_nothing_before_has_no_slowdown(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    """As JSON has no number for it."""
    path = tmp_path / "ab.json"
    assert compare(git, "10", "12", "--json", str(path), "--metric", "l2_bytes", "--rounds", "2") == 1
    (found,) = json.loads(path.read_text(), parse_constant=pytest.fail)["findings"]
    assert (found["outcome"], found["base"], found["head"]) == ("fail", 0, 2)
    assert (found["slowdown"], found["interval"]) == (None, [None, None])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, "pytest could not run the tests in BASE (exit status 4); it ended with:"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_nothing_compared_is_said_in_the_comment_too(
    error: Exception | None,
    told: str,
    git: Git,
    fake: FakePytest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A comment is updated in place, and must not keep what an older commit was told."""
    commit(git, {"us": "10"})
    fake.status, place = 4, tmp_path / "ab.md"
    if error is not None:
        monkeypatch.setattr(fake, "write", Mock(side_effect=error))
    assert main(["ab", "main", "--markdown", str(place)]) == 2
    first, _, reason, *_ = place.read_text().splitlines()
    assert first == "## Performance of HEAD against BASE: ❌ nothing was compared"
    assert reason == f"    {told}"
