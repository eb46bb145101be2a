"""The referee's own process for a candidate's calls, and the file that a candidate saves its call in."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench import BadFile
from pytest_gpubench.judge import replayer as replayer_module
from pytest_gpubench.judge.judgement import CaseJudgement, Ended
from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.replayer import Replayer, read_file, saved_by
from pytest_gpubench.judge.trial import Rules, Trial
from pytest_gpubench.judge.witness import ClocksDisagree, ReplayCost
from pytest_gpubench.verdict.limits import Limits


class Candidate:
    """Stands for a process; notes what it is asked, and fails at what it is told to."""

    gpu: object = object()

    def __init__(self, box: Path, done: list[str], reply: str = "", fails: str = "") -> None:
        self.box, self.done, self.text, self.fails = box, done, reply, fails
        self.process = self

    def allow(self, seconds: float) -> None:
        pass

    def ask(self, do: str, path: str) -> SimpleNamespace:
        assert path == str(self.box / "call")
        self.done.append(do)
        if do == self.fails:
            raise Ended("crash", "it has ended")
        return SimpleNamespace(text=self.text)

    def end(self) -> None:
        self.done.append("end")


# the file of a saved call


def test_a_call_is_what_the_candidate_wrote_or_its_reason(tmp_path: Path) -> None:
    (tmp_path / "call").write_bytes(b"the call")
    assert saved_by(Candidate(tmp_path, [])) == b"the call"  # type: ignore[arg-type]
    assert saved_by(Candidate(tmp_path, [], "it waits\x1b[2J")) == r"it waits\x1b[2J"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: None,
        lambda path: path.symlink_to(path.with_name("short")),
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
        lambda path: path.write_bytes(b"x" * 9),
    ],
)
def test_what_is_no_plain_file_of_that_size_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    """A pipe would be read without an end; a link leads to files that the candidate may not read."""
    monkeypatch.setattr(replayer_module, "MOST_BYTES", 8)
    (tmp_path / "short").write_bytes(b"x" * 8)
    assert read_file(tmp_path / "short") == b"x" * 8
    make(tmp_path / "call")
    with pytest.raises(Ended, match="did not save its call in a file"):
        read_file(tmp_path / "call")


# the process

COST = ReplayCost(1.0, 1.0)


def judged(status: Any, reason: str = "") -> CaseJudgement:
    return CaseJudgement(case="", status=status, reason=reason)


@pytest.fixture
def replayer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replayer:
    """Return one whose processes fail, in this order, at nothing or at what `fails` says."""
    cases: Any = [SimpleNamespace(name="one", saved=b"one"), SimpleNamespace(name="two", saved=b"")]
    done: list[str] = []
    pool: Any = SimpleNamespace(get=lambda: Candidate(tmp_path, done), end=Candidate.end)
    found = Replayer(pool, cases, Rules(Limits()))
    found.done = done  # type: ignore[attr-defined]

    def measure(candidate: Candidate, case: Any) -> ReplayCost:
        done.append(f"before {case.name}")
        return COST

    monkeypatch.setattr(replayer_module, "measure_replays", measure)
    monkeypatch.setattr(Trial, "__post_init__", lambda self: None)
    monkeypatch.setattr(replayer_module, "launches_of", len)
    return found


@pytest.mark.parametrize(
    ("status", "is_checked", "answer", "ended"),
    [
        ("pass", True, "", []),
        ("wrong", True, "", []),
        ("wrong", False, "replayed, it does something else: a reason", []),
        ("crash", False, "replayed, it does something else: a reason", ["end"]),
    ],
)
def test_outputs_of_a_replay_are_compared_first(
    replayer: Any, monkeypatch: pytest.MonkeyPatch, status: Any, is_checked: bool, answer: str, ended: list[str]
) -> None:
    """All cases are measured without the candidate before any of its kernels runs; a process that ended is left."""

    def judge(self: Trial) -> CaseJudgement:
        self.is_checked = is_checked
        return judged(status, "a reason")

    monkeypatch.setattr(Trial, "judge", judge)
    assert replayer.judge(replayer.cases[1], b"call") == (answer or judged(status, "a reason"))
    assert replayer.done == ["replay", "before one", "before two", "replay", *ended]


def test_a_call_that_cannot_be_rebuilt_costs_its_process(replayer: Any, tmp_path: Path) -> None:
    replayer.cases[0].saved = b""
    replayer.pool.get = lambda: Candidate(tmp_path, replayer.done, fails="replay")
    assert replayer.judge(replayer.cases[0], b"call") == "it cannot be rebuilt: it has ended"
    assert replayer.done[-1] == "end"


def test_a_call_that_is_refused_unread_costs_no_process(replayer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(call: bytes) -> int:
        raise BadFile("its graph is too large")

    assert replayer._candidate
    monkeypatch.setattr(replayer_module, "launches_of", refuse)
    assert replayer.judge(replayer.cases[0], b"call") == "it cannot be rebuilt: its graph is too large"
    assert "end" not in replayer.done


def test_a_reference_that_is_replayed_wrongly_costs_a_process(replayer: Any, tmp_path: Path) -> None:
    """The next one is measured by blank calls for this case alone, for later candidates too."""
    replayer.cases[1].saved = b"two"
    fails = iter(["replay"])
    replayer.pool.get = lambda: Candidate(tmp_path, replayer.done, fails=next(fails, ""))
    assert replayer._candidate is replayer._candidate
    assert replayer.done == ["replay", "end", "before one", "replay", "before two"]
    assert [each.saved for each in replayer.cases] == [b"", b"two"]


def test_a_process_that_measures_nothing_at_all_is_an_error(replayer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(candidate: object, case: object) -> ReplayCost:
        raise Ended("timeout", "it hangs")

    replayer.cases[0].saved = b""
    monkeypatch.setattr(replayer_module, "measure_replays", measure)
    assert replayer.judge(replayer.cases[0], b"call") == "it cannot be rebuilt: it hangs"
    assert replayer.done == ["end"]


def test_a_replayed_call_is_timed_by_the_referee(replayer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Any] = []

    def judge(self: Trial) -> CaseJudgement:
        self.is_checked = True
        timed.append((self.cost, self.launches, (replayer._candidate.box / "call").read_bytes()))
        return judged("pass")

    monkeypatch.setattr(Trial, "judge", judge)
    assert replayer.judge(replayer.cases[0], b"call").status == "pass"
    assert timed == [(COST, 4, b"call")]
    replayer.end()
    replayer.end()
    assert replayer.done == ["replay", "before one", "before two", "replay", "end"]


@pytest.mark.parametrize("disagreements", [1, 2])
def test_clocks_that_disagree_are_asked_in_another_process(
    replayer: Any, monkeypatch: pytest.MonkeyPatch, disagreements: int
) -> None:
    """There it is measured anew what a replay costs; what is said there stands."""
    results = iter([ClocksDisagree("1 ms")] * disagreements + [judged("pass")])

    def judge(self: Trial) -> CaseJudgement:
        result, self.is_checked = next(results), True
        if isinstance(result, ClocksDisagree):
            raise result
        return result

    monkeypatch.setattr(Trial, "judge", judge)
    with pytest.raises(ClocksDisagree) if disagreements == 2 else nullcontext():
        assert replayer.judge(replayer.cases[0], b"call").status == "pass"
    once = ["replay", "before one", "before two", "replay"]
    assert replayer.done == [*once, "end", *once]


# the order


@pytest.mark.parametrize("trusts", [True, False])
def test_a_candidate_is_dead_before_its_calls_are_replayed_and_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trusts: bool
) -> None:
    """What is not replayed is timed by its process, loaded again; by nobody without trust."""
    done: list[Any] = []
    names = {"replayed": b"call", "waits": "it waits", "differs": b"other"}
    checks: Any = [(SimpleNamespace(name=name), judged("pass"), call) for name, call in names.items()]
    judge: Any = Judge.__new__(Judge)
    judge.rules, judge._cases = Rules(Limits()), ()
    judge.spec = SimpleNamespace(trust_claims=trusts)

    def replay(case: Any, call: bytes) -> CaseJudgement | str:
        done.append(("replayed", case.name))
        return "it differs" if call == b"other" else judged("pass")

    def claim(self: Trial) -> CaseJudgement:
        done.append((self.ready.name, self.not_replayed))
        return judged("fail")

    monkeypatch.setattr(Trial, "__post_init__", lambda self: None)
    monkeypatch.setattr(Trial, "judge", claim)

    def load(candidate: Candidate) -> Candidate:
        done.append("load")
        return candidate

    judge._pool = SimpleNamespace(get=lambda: Candidate(tmp_path, done), end=Candidate.end)
    other: Any = SimpleNamespace(judge=replay)
    found = judge._time(Candidate(tmp_path, done), other, checks, load)
    assert done == [
        *("end", ("replayed", "replayed")),
        *("load", ("waits", "it waits"), "end") * trusts,
        ("replayed", "differs"),
        *("load", ("differs", "it differs"), "end") * trusts,
    ]
    other_status = "fail" if trusts else "inconclusive"
    assert [each.status for each in found] == ["pass", other_status, other_status]


def test_a_call_is_given_in_a_new_file(tmp_path: Path) -> None:
    """The process may be a kernel's by then, and have a link to one of the referee's files there."""
    (tmp_path / "precious").write_bytes(b"own")
    (tmp_path / "call").symlink_to(tmp_path / "precious")
    ignore = lambda *given, **named: None  # noqa: E731
    process = SimpleNamespace(box=tmp_path, allow=ignore, ask=ignore)
    replayer_module._give(SimpleNamespace(process=process), b"call", 1.0)  # type: ignore[arg-type]
    assert [(tmp_path / name).read_bytes() for name in ("precious", "call")] == [b"own", b"call"]
