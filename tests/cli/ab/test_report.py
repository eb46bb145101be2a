"""Reports of `ab` for CI: the comment, JSON and the page; and tests that changed between the commits."""

import json
import re
from pathlib import Path

import pytest

from pytest_gpubench import Measurement, Timing
from pytest_gpubench.cli import main
from pytest_gpubench.cli.ab.checkouts import Checkout
from pytest_gpubench.cli.ab.comparison import CommitComparison, ComparisonPlan
from pytest_gpubench.cli.ab.report import markdown_text, report_lines
from pytest_gpubench.results.model import Outcome, SavedRun, TestRecord
from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.rounds import ArmRun, CommitArm, order_of
from tests.cli.ab.faked import CPU, NODEID, FakePytest, Git, commit, replace_processes

HERE = Path()
CHECKOUTS: dict[CommitArm, Checkout] = {
    "BASE": Checkout("BASE", HERE, HERE, HERE, HERE, "base (0123)"),
    "HEAD": Checkout("HEAD", HERE, HERE, HERE, HERE, "head (0123)"),
}
PLAN = ComparisonPlan(RegressionTolerance("median", margin=0.03), 0.01, 4)
SLOWER = ChangeEstimate(1.05, Interval(1.04, 1.06), "median", 0.005, 10.0, 10.5)
LOST = ChangeEstimate(1.05, Interval(1.04, 1.06), "speedup", 0.005, 2.1, 2.0)


def markdown(*changes: Change) -> str:
    return markdown_text(CommitComparison((), changes, PLAN), CHECKOUTS)


def test_the_worst_is_told_first_and_what_does_not_count_says_why() -> None:
    told = markdown(
        Change("test_a", "f", Outcome.PASS, "f is as fast", SLOWER),
        Change("test_b", "", Outcome.NOT_JUDGED, "its own source changed"),
        Change("test_c", "g", Outcome.INCONCLUSIVE, "too close", LOST),
        Change("test_d", "h|\n", Outcome.FAIL, "h @is <b>slower", SLOWER),
    )
    assert told.splitlines()[:4] == [
        "## Performance of HEAD against BASE: ❌ 3 measurements compared: 1 fail, 1 inconclusive, 1 not judged, 1 pass",
        "",
        "- BASE: base (0123)",
        "- HEAD: head (0123)",
    ]
    rows = re.findall(r"^\| (.*) \|$", told, re.MULTILINE)
    assert [row.split(" | ")[0] for row in rows if "test_" in row] == [
        *("❌ FAIL", "⚠️ INCONCLUSIVE", "NOT JUDGED"),
        *("❌ FAIL", "⚠️ INCONCLUSIVE", "✅ PASS"),
    ]
    assert "| its own source changed |" in told
    assert "2.100x | 2.000x | 1.050x [1.040, 1.060] |" in told
    assert "10.00 us | 10.50 us | 1.050x [1.040, 1.060] |" in told
    assert "<b>slower" not in told


def test_a_fail_has_its_reasons_in_the_terminal_and_in_the_comment() -> None:
    change = Change("test_a", "f", Outcome.FAIL, "f is slower", SLOWER, reasons=("a_b: registers 64 -> 72", "<b>"))
    assert report_lines([change])[:3] == [
        "FAIL          test_a [f]: f is slower",
        "              with it: a_b: registers 64 -> 72",
        "              with it: <b>",
    ]
    assert "| f is slower<br>with it: a_b: registers 64 -&#62; 72<br>with it: &#60;b&#62; |" in markdown(change)


def test_a_comment_is_never_too_long() -> None:
    changes = [Change(f"test_{number}", "f" * 200, Outcome.FAIL, "so" * 200, SLOWER) for number in range(999)]
    told = markdown(*changes)
    assert len(told.encode()) < 60_000
    assert "findings left out" in told


@pytest.mark.parametrize(("spread", "few"), [(0.002, False), (0.02, True)])
def test_what_this_machine_can_see_is_told(spread: float, few: bool) -> None:
    """Four runs of BASE and HEAD that differ by this much, back and forth."""
    runs = []
    for number, arm in enumerate((*order_of(0), *order_of(1))):
        timing = Timing(label="f", timer="wall", cache="cold", device="", samples_us=(10 + spread * 5 * (number % 3),))
        record = TestRecord(nodeid=NODEID, device=CPU, measurements=(Measurement(timing=timing),))
        runs.append(ArmRun(arm, number // 4, SavedRun(records=(record,), datetime=""), {}))
    words = CommitComparison(runs, (), PLAN).noise_words(2)
    share = r"\d\.\d+ %"
    assert re.match(f"runs of the same code differ by {share} here, so 2 rounds show {share} or more", words)
    assert words.endswith(": more than --fail-slower 3.0 %, take more --rounds") == few


def test_what_is_written_into_files(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    commit(git, {"us": "10"})
    Path("us").write_text("10.4")
    paths = {form: tmp_path / f"ab.{form}" for form in ("markdown", "json", "html")}
    words = [word for form, path in paths.items() for word in (f"--{form}", str(path))]
    assert main(["ab", "main", *words]) == 1
    assert paths["markdown"].read_text().startswith("## Performance of HEAD against BASE: ❌ 1 measurement compared")
    content = json.loads(paths["json"].read_text())
    assert re.fullmatch(r"main \(\w{8}\)", content["base"])
    assert (content["exit_status"], content["rounds"], content["tolerance"]) == (1, 2, "speedup:3%")
    assert (content["spread_between_runs"], content["smallest_change"]) == (0, 0)
    (found,) = content["findings"]
    assert (found["test"], found["function"], found["outcome"], found["metric"]) == (NODEID, "f", "fail", "median")
    assert found["reasons"] == []
    assert (found["slowdown"], found["base"], found["head"]) == (pytest.approx(1.04), 10.0, 10.4)
    page = paths["html"].read_text()
    assert "f is slower than in BASE: 1.040x" in page
    assert '"word":"slower","baseline":"BASE"' in page


def test_nothing_compared_is_said_in_the_comment_too(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    """A comment is updated in place, and must not keep what an older commit was told."""
    commit(git, {"us": "10"})
    fake.status, place = 4, tmp_path / "ab.md"
    assert main(["ab", "main", "--markdown", str(place)]) == 2
    first, _, reason, *_ = place.read_text().splitlines()
    assert first == "## Performance of HEAD against BASE: ❌ nothing was compared"
    assert reason == "    pytest could not run the tests in BASE (exit status 4); it ended with:"


# the tests of HEAD for both


def test_heads_tests_run_on_both(git: Git, fake: FakePytest, tmp_path: Path) -> None:
    commit(git, {"us": "10", "tests/test_a.py": "old", "tests/gone.py": ""})
    git("rm", "--quiet", "tests/gone.py")
    Path("tests").mkdir(exist_ok=True)
    Path("tests/test_a.py").write_text("new")
    seen = []

    def look(command: list[str], folder: Path, environment: dict[str, str], log: Path) -> int:
        tests = folder / "tests"
        seen.append((folder.name, sorted(path.name for path in tests.iterdir()), (tests / "test_a.py").read_text()))
        return fake.run(command, folder, environment, log)

    with pytest.MonkeyPatch.context() as patch:
        replace_processes(patch, look)
        assert main(["ab", "main", "--rounds", "1", "--tests", "tests"]) == 0
    assert seen[0] == ("base", ["test_a.py"], "new")


@pytest.mark.parametrize("path", ["nowhere", "..", "../repository", ".", "/etc/hosts"])
def test_tests_that_are_not_there(git: Git, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    commit(git, {"us": "10"})
    assert main(["ab", "main", "--tests", path]) == 2
    assert f"--tests {path}: it names no file or folder within HEAD, the working tree" in capsys.readouterr().err
    assert Path("us").exists()
