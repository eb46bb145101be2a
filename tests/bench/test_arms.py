"""What the ratios of a comparison decide, look by look."""

import math
from collections.abc import Sequence

import pytest

from pytest_gpubench.bench.arms import SpeedupJudge
from pytest_gpubench.results.model import Outcome, Timing, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import LOOKS
from pytest_gpubench.timing.comparison import Match
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.timing.sampling import Sample
from tests.timing.fakes import call_of

FAST, SLOW = 1.1, 0.9


def judge_of(limits: dict[str, float], alpha: float = 0.01) -> SpeedupJudge:
    calls = {name: call_of(lambda: None) for name in ("reference", "one", "other")}
    return SpeedupJudge(Match(calls, "reference", limits, 0), Settings(alpha=alpha))


def taken(one: Sequence[float], other: Sequence[float], pool: int = 1) -> Interleaved:
    """Return rounds in which the candidates are so many times as fast as the reference."""
    found = Interleaved({name: Sample() for name in ("reference", "one", "other")}, pool)
    for first, second in zip(one, other, strict=True):
        for _ in range(pool):
            found.rounds.append({"reference": (10.0,) * 2, "one": (10 / first,) * 2, "other": (10 / second,) * 2})
    return found


def verdicts_of(judge: SpeedupJudge, rounds: Interleaved) -> dict[str, Verdict]:
    timings = {
        name: Timing(label=name, timer="scripted", cache="cold", device="GPU", samples_us=(10.0,) * 9)
        for name in ("reference", "one", "other")
    }
    comparison = judge.conclude(rounds, timings, {"one": (), "other": ()}, True)
    assert {item.speedup.quads for item in comparison.candidates.values() if item.speedup} == {len(rounds.rounds)}
    return {name: verdict for name, item in comparison.candidates.items() for verdict in item.verdicts}


@pytest.mark.parametrize("pool", [1, 3])
@pytest.mark.parametrize(("first", "then"), [(FAST, SLOW), (FAST, FAST), (SLOW, FAST), (SLOW, SLOW)])
def test_what_a_look_decided_of_a_candidate_stands(first: float, then: float, pool: int) -> None:
    """The other one stays open, and asks for more; where later rounds say the same, their numbers are newer."""
    judge = judge_of({"one": 1.0, "other": 1.0})
    wavering = [FAST, SLOW] * LOOKS[3]
    ratios = [first] * LOOKS[0] + [then] * LOOKS[3]
    for look in LOOKS[:4]:
        found = judge.look(taken(ratios[:look], wavering[:look], pool), LOOKS)
        assert found is judge.failed is (first == SLOW)
    verdicts = verdicts_of(judge, taken(ratios[: LOOKS[3]], wavering[: LOOKS[3]], pool))
    assert verdicts["one"].outcome is (Outcome.PASS if first == FAST else Outcome.FAIL)
    assert verdicts["other"].outcome is Outcome.INCONCLUSIVE
    quads = LOOKS[3] if first == then else LOOKS[0]
    assert f" {quads * pool} quads, " in verdicts["one"].sentence
    assert f" {LOOKS[3] * pool} quads, " in verdicts["other"].sentence


def test_it_ends_when_all_is_decided_or_one_is_broken() -> None:
    fast, slow, wavering = [FAST] * 20, [SLOW] * 20, [FAST, SLOW] * 10
    cases = [
        (fast, fast, True, False),
        (fast, wavering, False, False),
        (slow, wavering, True, True),
        (wavering, slow, True, True),
        (wavering, wavering, False, False),
    ]
    for one, other, ends, failed in cases:
        judge = judge_of({"one": 1.0, "other": 1.0})
        assert (judge.look(taken(one, other), LOOKS), judge.failed) == (ends, failed)
    assert judge_of({"one": 1.0}).look(taken(fast, wavering), LOOKS)  # the other has no limit
    judge = judge_of({})
    assert (judge.look(taken(fast, fast), LOOKS), judge.failed) == (True, False)
    assert not judge.look(taken(fast, wavering), LOOKS)


def test_two_candidates_at_their_limit_fail_as_seldom_as_promised() -> None:
    """Each look is taken for both; what it decides of one stands."""
    import random

    alpha, number, rng = 0.05, 300, random.Random(4)
    failed = {"one": 0, "other": 0}
    for _ in range(number):
        judge = judge_of({"one": 1.0, "other": 1.0}, alpha)
        draws = [[math.exp(rng.gauss(0, 0.01)) for _ in range(LOOKS[3])] for _ in range(2)]
        for look in LOOKS[:4]:
            rounds = taken(draws[0][:look], draws[1][:look])
            if judge.look(rounds, LOOKS[:4]):
                break
        for name, verdict in verdicts_of(judge, rounds).items():
            failed[name] += verdict.outcome is Outcome.FAIL
    for fails in failed.values():
        assert fails / number <= alpha + 2 * math.sqrt(alpha * (1 - alpha) / number)
