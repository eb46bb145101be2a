"""Verdicts on the time of a case; a close FAIL is judged again in other processes."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytest_gpubench import BadRequest, Judgement
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.conclusion import concluded, fails_closely, timing_of
from pytest_gpubench.judge.judgement import CaseJudgement, time_of
from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.trial import Rules
from pytest_gpubench.results.model import DeviceFacts, Outcome, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.verdict.limits import Limits

H200 = DeviceFacts(type="cuda", name="NVIDIA H200", host="")
CASE = CaseJudgement(
    case="",
    status="pass",
    reason="right",
    ratio=2.0,
    interval=Interval(1.9, 2.1),
    reference_us=time_of([20.0] * 40),
    candidate_us=time_of([10.0] * 40),
)


def concluded_by(limits: Limits, case: CaseJudgement = CASE, device: DeviceFacts = H200) -> CaseJudgement:
    """Return a case with the verdicts of one look at its times."""
    judges = Rules(limits).judges()
    assert case.candidate_us
    judges.time.look(timing_of(case.candidate_us.samples_us, device))
    return concluded(case, judges, device)


@pytest.mark.parametrize(
    ("limits", "status", "words"),
    [
        (Limits(min_speedup=1.9), "pass", "candidate is faster than the reference: 2.000x [1.900, 2.100]"),
        (Limits(min_speedup=1.91), "inconclusive", "too close to tell against the reference"),
        (Limits(min_speedup=2.1), "inconclusive", "too close to tell"),
        (Limits(min_speedup=2.11), "fail", "not fast enough against the reference"),
        (Limits(max_time_us=10), "pass", "median 10.00 us"),
        (Limits(max_time_us=9.9), "fail", "candidate is too slow: median 10.00 us"),
        (Limits(max_time_us={"A100": 99}), "inconclusive", "no max_time_us for NVIDIA H200"),
        (Limits(min_speedup=1.0, max_time_us=9.9), "fail", "candidate is too slow"),
        (Limits(min_speedup=2.1, max_time_us=9.9), "fail", "candidate is too slow"),
        (Limits(min_speedup=2.1, max_time_us=10), "inconclusive", "too close to tell"),
        (Limits(), "pass", "2.000x [1.900, 2.100] as fast as the reference"),
    ],
)
def test_limits_are_judged_by_the_times_of_both_arms(limits: Limits, status: str, words: str) -> None:
    found = concluded_by(limits)
    assert (found.status, len(found.verdicts)) == (status, len(limits.asked))
    assert words in found.reason
    assert found.score == (1.9 if status == "pass" else 0)


@pytest.mark.parametrize(("reps", "status"), [(11, "inconclusive"), (12, "pass")])
def test_the_first_look_decides_a_limit_on_the_time(reps: int, status: str) -> None:
    """At half of alpha, 2 ** -11, twelve reps have an interval."""
    case = msgspec.structs.replace(CASE, candidate_us=time_of([10.0] * reps))
    assert concluded_by(Limits(max_time_us=10), case).status == status


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [(0.3, 0.49, "fail"), (0.3, 0.51, "inconclusive"), (1.9, 2.5, "inconclusive"), (2.1, 2.5, "pass")],
)
def test_a_speedup_on_a_cpu_is_judged_beyond_a_factor_of_two(low: float, high: float, status: str) -> None:
    """Two processes that do the same may differ by so much there."""
    case = msgspec.structs.replace(CASE, interval=Interval(low, high))
    assert concluded_by(Limits(min_speedup=1), case, DeviceFacts(type="cpu", name="", host="")).status == status


@pytest.mark.parametrize("limits", [Limits(max_kernels=1), Limits(min_speedup={"a": 1.0})])
def test_limits_that_cannot_be_judged_are_refused(limits: Limits) -> None:
    with pytest.raises(BadRequest):
        Rules(limits)


# other processes

CPU = cpu_device()
PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
LIMITS = Limits(min_speedup=1.0)


def case_of(outcome: Outcome, ratio: float = 0.98) -> CaseJudgement:
    """Return a case by its verdict on a speedup of at least 1."""
    verdict = Verdict(kind="min_speedup", asked="1.0", outcome=outcome, sentence=f"{outcome.value}: {ratio}x")
    status: Any = {PASS: "pass", FAIL: "fail"}.get(outcome, "inconclusive")
    time = time_of([10.0] * 40)
    return CaseJudgement(
        case=f"{outcome}", status=status, reason=verdict.sentence, verdicts=(verdict,), ratio=ratio,
        candidate_us=time, reference_us=time,
    )  # fmt: skip


def judgement_of(*cases: CaseJudgement, status: Any | None = None, seconds: float = 0.0) -> Judgement:
    worst: Any = max((each.status for each in cases), key=["pass", "inconclusive", "fail"].index, default="pass")
    return Judgement(
        status=status or worst, reason="", candidate="", spec="", spec_digest="", cases=cases, seconds=seconds,
        phases_s={"cases": seconds}, device=CPU.facts,
    )  # fmt: skip


def too_slow(median_us: float) -> Judgement:
    case = msgspec.structs.replace(case_of(FAIL), candidate_us=time_of([median_us] * 40))
    return judgement_of(concluded_by(Limits(max_time_us=10.0), case, CPU.facts))


@pytest.mark.parametrize(
    ("judgement", "close"),
    [
        (too_slow(10.49), True),
        (too_slow(10.51), False),
        (judgement_of(case_of(FAIL, 0.953)), True),
        (judgement_of(case_of(FAIL, 0.952)), False),
        (judgement_of(case_of(FAIL, 0.98), case_of(PASS, 1.02)), True),
        (judgement_of(case_of(FAIL, 0.98), case_of(FAIL, 0.5)), False),
        (judgement_of(case_of(PASS, 1.01)), False),
        (judgement_of(case_of(INCONCLUSIVE)), False),
        (judgement_of(case_of(FAIL), status="wrong"), False),
    ],
)
def test_a_limit_is_missed_closely_by_less_than_5_percent(judgement: Judgement, close: bool) -> None:
    assert fails_closely(judgement) is close


def judge_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *judgements: Judgement) -> Judgement:
    """Return what a judge makes of these judgements, each by a process of its own."""
    left = list(judgements)
    judge = Judge.__new__(Judge)
    judge.spec = SimpleNamespace(in_use=nullcontext)  # type: ignore[assignment]
    judge.device, judge.turns, judge.rules = CPU, Settings(lock_folder=str(tmp_path)), Rules(LIMITS)
    done = list[str]()
    pool: Any = SimpleNamespace(await_ends=lambda: done.append("all have ended"))
    judge._pool = pool

    @contextmanager
    def turn(*given: object, **options: object) -> Iterator[None]:
        yield
        done.append("the turn is over")

    monkeypatch.setattr("pytest_gpubench.judge.judging.turn_at", turn)
    monkeypatch.setattr(judge, "_judge", lambda path: left.pop(0))
    found = judge(Path("candidate.py"))
    assert not left, "it was not judged again"
    assert done == ["all have ended", "the turn is over"]
    return found


@pytest.mark.parametrize(
    ("others", "status", "words"),
    [
        ([FAIL, FAIL], "fail", "0.98x; so in 3 processes"),
        ([FAIL, PASS], "inconclusive", "not confirmed: fail: 0.98x; in another process pass: 1.01x"),
        ([PASS], "inconclusive", "in another process pass: 1.01x"),
        ([INCONCLUSIVE], "inconclusive", "in another process inconclusive: 1.01x"),
    ],
)
def test_a_close_fail_stands_if_three_processes_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, others: list[Outcome], status: Any, words: str
) -> None:
    judgements = [judgement_of(case_of(PASS, 1.2), case_of(FAIL), seconds=1.5)]
    judgements += [judgement_of(case_of(PASS, 1.3), case_of(each, 1.01), seconds=2.0) for each in others]
    found = judge_in_turn(monkeypatch, tmp_path, *judgements)
    assert (found.status, found.seconds, found.ratio) == (status, 1.5 + 2.0 * len(others), 0.98)
    assert found.phases_s == {"cases": found.seconds}
    assert words in found.reason
    assert [each.status for each in found.cases] == ["pass", status]
    assert found.cases[1].verdicts[0].sentence in found.reason


@pytest.mark.parametrize(
    ("outcomes", "statuses"),
    [
        ([(PASS, FAIL), (FAIL, PASS), (PASS, FAIL)], ["pass", "inconclusive"]),
        ([(FAIL, FAIL), (FAIL, PASS), (FAIL, FAIL)], ["fail", "inconclusive"]),
        ([(FAIL, FAIL), (FAIL, PASS), (PASS, FAIL)], ["inconclusive", "inconclusive"]),
        ([(FAIL, INCONCLUSIVE), (INCONCLUSIVE, PASS)], ["inconclusive", "inconclusive"]),
    ],
)
def test_each_case_is_confirmed_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcomes: list[tuple[Outcome, Outcome]], statuses: list[Any]
) -> None:
    """The first process's findings count: the others only confirm its FAILs."""
    judgements = [judgement_of(*map(case_of, each)) for each in outcomes]
    found = judge_in_turn(monkeypatch, tmp_path, *judgements)
    assert [each.status for each in found.cases] == statuses
    assert found.status == ("fail" if "fail" in statuses else "inconclusive")


def test_a_candidate_that_is_wrong_in_another_process_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = judgement_of(case_of(FAIL), seconds=1.0), judgement_of(status="wrong", seconds=0.5)
    found = judge_in_turn(monkeypatch, tmp_path, first, second)
    assert (found.status, found.seconds, found.phases_s) == ("wrong", 1.5, {"cases": 1.5})


@pytest.mark.parametrize("first", [judgement_of(case_of(PASS, 1.01)), judgement_of(case_of(FAIL, 0.5))])
def test_what_is_not_close_is_judged_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: Judgement) -> None:
    assert judge_in_turn(monkeypatch, tmp_path, first) == first
