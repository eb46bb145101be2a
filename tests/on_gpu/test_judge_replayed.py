"""Calls that the referee replays: timed by it, believed without the spec's trust, whatever their process saved."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench import Judgement
from pytest_gpubench.judge.judging import Judge
from tests.judge.problems import judge_by
from tests.on_gpu.judged import KERNEL, SPEC, summary_of
from tests.on_gpu.judged_replays import ATTACKS, HONEST, SLOW_ATTACKS

LENIENT, STRICT = 0.5, 1.06


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge: the next processes are warmed while two are used."""
    spec = tmp_path_factory.mktemp("spec") / "spec.py"
    spec.write_text(SPEC.replace("LIMIT", str(LENIENT)))
    with Judge(spec, "cuda", timeout_s=5, budget_s=0.3, ahead=8) as judge:
        yield judge


def judged(judge: Judge, folder: Path, limit: float, body: str, size: str = "4 * 2**20") -> Judgement:
    """Return the judgement of a candidate."""
    spec, candidate = folder / "spec.py", folder / "candidate.py"
    spec.write_text(SPEC.replace("LIMIT", str(limit)).replace("4 * 2**20", size))
    candidate.write_text(f"{KERNEL}\n\n{body}\n")
    return judge_by(judge, spec, candidate)


@pytest.mark.parametrize("name", HONEST)
def test_what_is_replayed_passes_without_trust(judge: Judge, tmp_path: Path, name: str) -> None:
    """A claim of four times the speed changes nothing."""
    found = judged(judge, tmp_path, LENIENT, HONEST[name])
    [case] = found.cases
    assert (found.status, case.timed_by) == ("pass", "referee"), summary_of(found)
    assert (found.ratio or 0.0) < 1.05, summary_of(found)


def test_a_short_call_is_as_fast_as_itself(judge: Judge, tmp_path: Path) -> None:
    """The reference is a graph too, and comes back from another context: both cost a call of 3 us 4 % or more."""
    found = judged(judge, tmp_path, LENIENT, HONEST["the same kernel"], size="2**10")
    interval = found.cases[0].interval
    assert interval is not None, summary_of(found)
    assert interval.low <= 1.02, summary_of(found)
    assert interval.high >= 0.98, summary_of(found)


@pytest.mark.parametrize("name", [*ATTACKS, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW_ATTACKS)])
def test_no_attack_on_replays_passes(judge: Judge, tmp_path: Path, name: str) -> None:
    """Each costs only itself."""
    found = judged(judge, tmp_path, STRICT, (ATTACKS | SLOW_ATTACKS)[name])
    assert found.status not in ("pass", "crash", "compile_error"), summary_of(found)
    assert found.score == 0


def test_the_next_is_judged_right(judge: Judge, tmp_path: Path) -> None:
    found = judged(judge, tmp_path, LENIENT, HONEST["the same kernel"])
    assert found.passed, summary_of(found)
