"""`bisect`: the search over real commits whose times are given, and its statuses."""

import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.cli.ab.faked import NODEID, FakePytest, Git, left
from tests.cli.stored import Command, commander

# the search


def make_commits(times_us: Sequence[str]) -> list[str]:
    """Commit these times in turn, in one process of git, and return the commits; a subject has a form feed."""
    blocks = [
        f"commit refs/heads/main\nmark :{number}\ncommitter A <a@b> {number} +0000\ndata {len(f'Change {number}')}\n"
        f"Change\f{number}\n" + f"M 100644 inline us\ndata {len(us)}\n{us}\n"
        for number, us in enumerate(times_us, 1)
    ]
    subprocess.run(["git", "fast-import", "--quiet"], input="".join(blocks), text=True, check=True)
    subprocess.run(["git", "reset", "--quiet", "--hard", "main"], check=True)
    listed = subprocess.run(["git", "rev-list", "--reverse", "main"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def planted(slower_from: int, total: int = 65, unknown: Sequence[int] = ()) -> list[str]:
    """Make commits that take 2 % longer from one of them on; 0 is none. `unknown` ones measure nothing."""
    times = ["10.2" if slower_from and number >= slower_from else "10.0" for number in range(total)]
    return make_commits(["nothing" if number in unknown else us for number, us in enumerate(times)])


FINE = ("--fail-slower", "1%", "--rounds", "1")
BY_INSTRUCTIONS = ("--metric", "instructions", "--fail-slower", "0.1%", "--", "test_it.py")


@pytest.fixture
def bisect(git: Git, fake: FakePytest, capsys: pytest.CaptureFixture[str]) -> Command:
    return partial(commander(capsys), "bisect")


def test_a_step_of_2_percent_among_64_commits(bisect: Command, git: Git, fake: FakePytest, tmp_path: Path) -> None:
    """Seven comparisons: one of the ends, and six, the logarithm of 64."""
    commits = planted(slower_from=64)
    status, out, err = bisect(commits[0], "main", *FINE, "--", "test_it.py")
    *_, verdict, counts, last = out.splitlines()
    assert (status, all("test_it.py" in command for command in fake.commands)) == (1, True)
    assert verdict.startswith(f"FAIL          {NODEID} [f]: f is slower than in BASE: 1.020x")
    assert counts == "gpu_bench: 1 measurement compared: 1 fail"
    assert last.startswith(f"slower since {commits[64][:7]} A, 1970-01-01: Change\\x0c65 (")
    of_all, of_the_slower_alone = [False] * 4, [True] * 4 * 6
    assert ["PYTEST_GPUBENCH_TESTS" in each for each in fake.environments] == [*of_all, *of_the_slower_alone]
    assert len(re.findall("^gpu_bench: step [1-6]: (?:good|bad): ", err, re.MULTILINE)) == 6
    assert left(tmp_path) == []
    assert len(git("worktree", "list").splitlines()) == 1
    assert git("for-each-ref", "refs/bisect") == ""


@pytest.mark.parametrize("slower_from", [9, 1])
def test_a_step_is_found_by_a_counter_with_a_run_of_each_commit(
    slower_from: int, bisect: Command, fake: FakePytest
) -> None:
    """Of the ends, of six commits, and once more of GOOD and of the first bad one."""
    commits = planted(slower_from)
    status, out, err = bisect(commits[0], "main", *BY_INSTRUCTIONS)
    assert status == 1
    *_, verdict, counts, last = out.splitlines()
    told = "f executes 10,200 instructions against 10,000 in BASE: 1.020x, wanted at most 1.001x"
    assert verdict == f"FAIL          {NODEID} [f]: {told} (6 and 6 captures in 2 processes, each the same)"
    assert counts == "gpu_bench: 1 measurement compared: 1 fail"
    assert last.startswith(f"slower since {commits[slower_from][:7]} ")
    assert len(fake.commands) == 10
    assert fake.arms.count("B") == 2
    assert all("--gpu-bench-counters=instructions" in command for command in fake.commands)
    assert "runs of the same code differ" not in err


@pytest.mark.parametrize(("again", "status"), [("10.3", 1), ("10.0", 125)])
def test_a_commit_that_counts_as_no_other_is_counted_again(
    again: str, status: int, bisect: Command, fake: FakePytest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose autotuner chose otherwise makes no commit the first slow one."""
    write, seen = fake.write, list[str]()

    def write_twice(folder: Path, notes: Path, results: Path) -> None:
        text = (folder / "us").read_text()
        if text == "10.3":
            seen.append(text)
            (folder / "us").write_text("10.3" if len(seen) == 1 else again)
        write(folder, notes, results)

    monkeypatch.setattr(fake, "write", write_twice)
    commits = make_commits(["10", "10", "10.3", "10.2", "10.2"])
    found, out, _ = bisect(commits[0], "main", *BY_INSTRUCTIONS)
    assert (found, len(seen)) == (status, 2)
    words = "slower since" if status == 1 else "slower in one process alone:"
    assert out.splitlines()[-1].startswith(f"{words} {commits[2][:7]} A")


def test_commits_that_cannot_be_told_are_skipped(bisect: Command) -> None:
    commits = planted(slower_from=9, total=17, unknown=[8])
    status, out, err = bisect(commits[0], "main", *FINE)
    assert (status, "skip: " in err) == (125, True)
    head, *suspects = out.splitlines()[-3:]
    assert head == "it is one of these, of which the others were skipped:"
    assert sorted(line.split(": ")[1] for line in suspects) == [r"Change\x0c10", r"Change\x0c9"]


def test_a_commit_that_does_not_run_is_skipped(bisect: Command) -> None:
    """The first bad one has its reasons."""
    commits = make_commits([*["10"] * 3, *["12"] * 6])
    setup = f'test "$(git rev-parse HEAD)" != {commits[4]}'
    status, out, err = bisect(commits[0], "main", *FINE, "--setup", setup)
    *_, verdict, reason, _, last = out.splitlines()
    assert status == 1
    assert verdict.startswith(f"FAIL          {NODEID} [f]: f is slower than in BASE: 1.200x")
    assert reason.strip() == "with it: executes 1.2x the instructions: 10,000 -> 12,000"
    assert "gpu_bench: skipped: --setup failed in HEAD (exit status 1)" in err
    assert last.startswith(f"slower since {commits[3][:7]} ")


def test_an_interrupt_says_what_is_left(bisect: Command, fake: FakePytest) -> None:
    """Of eight commits the first comparison leaves four."""
    commits = planted(slower_from=3, total=9)
    fake.interrupt_at = 4 * 2 + 1
    status, _, err = bisect(commits[0], "main", *FINE)
    left = f"4 commits, {commits[1][:7]} to {commits[4][:7]}"
    last = f"gpu_bench: interrupted after 2 comparisons: slower since one of {left}"
    assert (status, err.splitlines()[-1]) == (130, last)


@pytest.mark.parametrize(
    ("middle", "bad", "answer", "runs"),
    [
        ("f1=10 f2=20", "f1=20 f2=10", "good", 8),
        ("f=10 g=failed", "f=20 g=10", "good", 8),
        ("f1=20 f2=10,11", "f1=20 f2=20", "bad", 8),
        ("f1=10 f2=10,11", "f1=20 f2=20", "skip", 16),
        ("f1=10 f2=10,11", "f1=20 f2=10", "good", 8),
        ("f1=10", "f1=20 f2=20", "skip", 8),
        ("f1=10! f2=10", "f1=20 f2=10", "skip", 16),
    ],
)
def test_what_counts_is_what_is_slower_in_bad(
    middle: str, bad: str, answer: str, runs: int, bisect: Command, fake: FakePytest
) -> None:
    """One function of these that is slower is enough; more rounds are taken of nothing else."""
    good, *_ = make_commits([bad.replace("20", "10"), middle, bad])
    status, _, err = bisect(good, "main")
    assert status == (125 if answer == "skip" else 1)
    assert re.findall("^gpu_bench: step 1: ([a-z]+): ", err, re.MULTILINE) == [answer]
    assert len(fake.commands) == 8 + runs


# the ends, and one step


@pytest.mark.parametrize(
    ("good", "bad", "status"),
    [
        ("10", "10.2", 0),
        ("10", "10.4", 1),
        ("10", "nothing", 125),
        ("f=10 g=10", "f=10 g=10,11", 125),
        ("f=10 g=10", "f=10 g=failed", 125),
        ("f=10 g=10", "f=20 g=failed", 1),
        ("f=10 g=failed", "f=10 g=failed", 0),
    ],
)
def test_the_status_of_one_step(good: str, bad: str, status: int, bisect: Command, fake: FakePytest) -> None:
    """As `git bisect run` reads it: without BAD the working tree is compared."""
    make_commits([good])
    Path("us").write_text(bad)
    assert bisect("main", "--rounds", "1")[0] == status
    assert fake.arms[1] == "W"


FIRST_BAD = r"(?m)^([0-9a-f]{40}) is the first '?bad'? commit$"
WORDS = {0: "good", 1: "bad", 125: "skip"}


def test_the_working_tree_under_git_bisect_run(bisect: Command, git: Git) -> None:
    commits = planted(slower_from=5, total=9)
    git("bisect", "start", "main", commits[0])
    before = git("bisect", "log"), git("rev-parse", "HEAD")
    assert bisect(commits[0], "main", *FINE)[0] == 1  # a search of its own
    assert (git("bisect", "log"), git("rev-parse", "HEAD")) == before
    while not (found := re.search(FIRST_BAD, git("bisect", WORDS[bisect(commits[0], *FINE)[0]]))):
        pass
    assert found[1] == commits[5]


def test_an_end_that_is_not_slower(bisect: Command, fake: FakePytest) -> None:
    commits = planted(slower_from=0, total=9)
    status, out, _ = bisect(commits[0], "main")
    assert (status, "f is as fast as in BASE" in out) == (0, True)
    assert fake.arms == "BHHBHBBH", "nothing is searched"


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [("main", "main~2", "git cannot search between "), ("nowhere", "main", "'nowhere' names no commit of ")],
)
def test_ends_that_are_none(good: str, bad: str, said: str, bisect: Command) -> None:
    make_commits(["10.4", "10.4", "10"])
    status, _, err = bisect(good, bad, "--rounds", "1")
    assert (status, f"pytest-gpubench bisect: {said}" in err) == (125, True)


def test_the_tests_of_the_newest_commit_run_in_all(bisect: Command) -> None:
    """Here the file of the times stands for a test: BAD's is taken everywhere, so nothing is slower."""
    commits = planted(slower_from=3, total=5)
    assert bisect(commits[0], "main", "--tests", "us", *FINE)[0] == 0
