"""Whole judgements on the CPU: one spec, a few candidates, a process for each."""

import gc
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest
import torch

import pytest_gpubench
from pytest_gpubench import BadRequest, Judgement, UnfairComparison
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge import held, judging
from pytest_gpubench.judge.isolation import landlock
from pytest_gpubench.judge.judgement import CaseJudgement
from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.process import Process
from pytest_gpubench.judge.reference import ReadyCase, case_name
from pytest_gpubench.judge.spec import read_spec
from pytest_gpubench.judge.trial import Rules, Trial
from pytest_gpubench.verdict.limits import Limits
from tests import fork_server
from tests.judge.candidates import CHEATS, CLAIMS, LEFT_BEHIND, REACHES_OUT, text_of


def judged(judge: Judge, folder: Path, body: str) -> Judgement:
    """Return the judgement of a candidate."""
    path = folder / "candidate.py"
    path.write_text(text_of(body))
    return judge(path)


def test_an_honest_candidate_passes(judge: Judge, tmp_path: Path) -> None:
    """It is right, timed, and the judgement survives JSON. Its memory is freed at once."""
    gc.disable()
    try:
        found = judged(judge, tmp_path, "candidate = work")
        assert not [each for each in gc.get_objects() if type(each) is Trial]
    finally:
        gc.enable()
    assert found.passed, found
    [case] = found.cases
    assert case.compared > 15
    assert (case.timed_by, case.clock_us) == ("candidate", None)
    assert found.ratio == case.ratio
    assert case.interval is not None
    assert found.score == case.interval.low
    assert list(found.phases_s) == ["process", "loading", "cases", "ending"]
    assert list(found.cases[0].phases_s) == ["checking", "warming up", "timing"]
    assert msgspec.json.decode(found.to_json(), type=Judgement) == found


def test_an_output_has_expanded_and_empty_tensors_and_numbers(tmp_path: Path) -> None:
    """Each call's own numbers are compared."""
    body = "(x):\n    return x.sum().expand(100, 100), x[:0], {'sum': x.sum().item(), 'none': None}\n"
    (tmp_path / "spec.py").write_text(
        f"import torch\ntrust_claims = True\ndef reference{body}def inputs(seed): return torch.randn(1000)"
    )
    with Judge(tmp_path / "spec.py", "cpu", timeout_s=300, budget_s=0.01) as judge:
        assert judged(judge, tmp_path, f"def candidate{body}").passed


@pytest.mark.parametrize("name", CHEATS)
def test_what_does_not_do_its_work_never_passes(judge: Judge, tmp_path: Path, name: str) -> None:
    found = judged(judge, tmp_path, CHEATS[name])
    assert found.status == "wrong", found


@pytest.mark.skipif(not landlock.version(), reason="needs a kernel with Landlock")
@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_no_process_outlives_a_candidate_or_answers_for_it(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Orphans, siblings of its first process, and those that tell their parent by no signal: no zombie is left."""
    groups: list[int] = []
    kill = Process.kill

    def noting(process: Process) -> None:
        groups.append(process.pid)
        kill(process)

    monkeypatch.setattr(Process, "kill", noting)
    status, body = LEFT_BEHIND[name]
    found = judged(judge, tmp_path, body)
    assert found.status == (status or "pass"), found
    with pytest.raises(ChildProcessError):
        os.waitpid(-groups[0], os.WNOHANG | 0x40000000)
    assert not held.members_of(groups[0])


def test_a_claim_counts_only_where_the_spec_trusts_it(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that nobody times it; what it returns is compared."""
    monkeypatch.setattr(judge, "rules", replace(judge.rules, limits=Limits(min_speedup=2)))
    assert judged(judge, tmp_path, CLAIMS).passed
    monkeypatch.setattr(judge, "spec", replace(judge.spec, trust_claims=False))
    found = judged(judge, tmp_path, CLAIMS)
    [case] = found.cases
    assert (found.status, found.score, found.ratio, case.candidate_us) == ("inconclusive", 0, None, None), found
    assert (case.not_replayed, case.compared) == ("only calls on a GPU can be replayed", 4)
    assert found.reason.startswith("not timed: its call is not replayed (only calls on a GPU can be replayed), and")


@pytest.mark.skipif(not landlock.version(), reason="needs a kernel with Landlock")
@pytest.mark.parametrize("forks", [True, False])
def test_a_candidate_that_reaches_out_gets_nowhere(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: bool
) -> None:
    """It is judged like any other; once by a template that was not forked."""
    if not forks:
        monkeypatch.setattr("subprocess.Popen", fork_server.RealPopen)
    judge._pool.close()
    found = judged(judge, tmp_path, REACHES_OUT)
    judge._pool.close()
    assert found.passed, found
    assert found.isolation["landlock"].startswith("files")


def test_a_candidate_that_hangs_is_ended(spec: Path, tmp_path: Path) -> None:
    """It costs its timeout. The package's name is the function."""
    path = tmp_path / "candidate.py"
    path.write_text(text_of("time.sleep(1000)"))
    assert pytest_gpubench.judge(path, spec=spec, device="cpu", timeout_s=0.5, budget_s=0.1).status == "timeout"


@pytest.mark.parametrize("given", [{"timeout_s": 0}, {"memory_bytes": "1 x"}, {"device": "gpu"}, {"trust_claims": 1}])
def test_a_keyword_that_is_not_valid_is_refused(spec: Path, given: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=rf"judge\({next(iter(given))}=.*\) is not valid"):
        pytest_gpubench.judge("candidate.py", spec=spec, **given)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing.py", "nothing.py: give the path of"),
        (".", "there is no file "),
        ("\ud800.py", "there is no file "),
        ("/proc/self/mem", "/proc/self/mem cannot be read (Input/output error): give"),
        ("/proc/self/pagemap", "/proc/self/pagemap has more than 64 MiB: give the candidate's Python file"),
        ("x" * 300, "x…: give the path of the candidate's Python file"),
        ('{"code": "pass"}', """Python file, or {"candidate": path} as JSON"""),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(judge: Judge, name: str, reason: str) -> None:
    """No process is spent on it; the next candidate of a list is judged. Some files of /proc hardly end."""
    found = judge(Path(name))
    assert (found.status, found.candidate_digest) == ("refused", ""), found
    assert reason in found.reason
    assert found.to_json()


def test_a_file_that_waits_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/kmsg, which says that it is a plain one."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    with (tmp_path / "pipe").open("r+b", buffering=0):
        assert judging._read(tmp_path / "pipe") == b""


@pytest.mark.parametrize(("name", "status"), [("home", "compile_error"), ("\udcff.py", "wrong")])
def test_a_file_may_have_any_name(judge: Judge, tmp_path: Path, name: str, status: str) -> None:
    """One that a folder of its process has; one that is not UTF-8."""
    (tmp_path / name).write_text("def candidate(x): return x")
    found = judge(tmp_path / name)
    assert found.status == status, found
    assert found.to_json()


def test_a_candidate_is_judged_in_a_turn_at_the_gpu(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who wait are told its name. Without a claim, others report processes that are warmed in their turns."""
    turns: list[tuple[object, ...]] = []

    def turn(*given: object, claims: bool) -> AbstractContextManager[None]:
        turns.append((*given, claims))
        return nullcontext()

    monkeypatch.setattr(judging, "turn_at", turn)
    judge(tmp_path / "nothing.py")
    assert turns == [(judge.device, judge.turns, "judge nothing.py", False)]


def test_torch_has_one_thread_while_a_candidate_is_judged_on_a_cpu(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in its process: spinning threads of both would delay each other."""
    threads, found = [torch.get_num_threads()], judge(tmp_path / "nothing.py")

    def judge_once(path: Path) -> Judgement:
        threads.append(torch.get_num_threads())
        return found

    monkeypatch.setattr(judge, "_judge", judge_once)
    torch.set_num_threads(2)
    try:
        judge(tmp_path / "nothing.py")
        assert [*threads[1:], torch.get_num_threads()] == [1, 2]
    finally:
        torch.set_num_threads(threads[0])


def test_each_of_several_cases_gives_its_memory_back(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single one keeps its inputs for the next candidate."""

    def trial(trial: Trial) -> CaseJudgement:
        trial.reference.begin_case(trial.ready.example, 5)
        return CaseJudgement(case="", status="pass", reason="")

    monkeypatch.setattr(Trial, "judge", trial)
    monkeypatch.setattr(Trial, "check", lambda self: CaseJudgement(case="", status="pass", reason=""))
    judge: Any = Judge.__new__(Judge)
    judge.rules, judge._pool = Rules(Limits()), SimpleNamespace(get=lambda: None)
    judge.spec = read_spec(spec)
    candidate: Any = SimpleNamespace(process=SimpleNamespace(allow=lambda timeout_s: None), gpu=None)
    for number, sets in ((1, [5]), (2, [1, 1])):
        cases = judge._cases = [ReadyCase(read_spec(spec), {}, cpu_device()) for _ in range(number)]
        judge._judge_cases(candidate, cases, None)
        assert [len(each.reference.sets) for each in cases] == sets


SEARCH = """
import torch
from hypothesis import strategies as st

trust_claims = True
cases = [{"rows": 16, "columns": 16}]
search = st.fixed_dictionaries({"rows": st.integers(1, 64), "columns": st.integers(1, 64)})

def reference(x):
    return torch.tanh(x) + x

def inputs(case, seed):
    return torch.randn(case["rows"], case["columns"])
"""
KNOWS_ITS_SHAPE = """
def candidate(x):
    out = torch.tanh(x) + x
    if x.shape[1] > 20: out[:, -1] = 0
    return out
"""


def test_a_candidate_that_knows_only_the_specs_shapes_is_found(tmp_path: Path) -> None:
    """The drawn case is shrunk to the smallest."""
    spec = tmp_path / "spec.py"
    spec.write_text(SEARCH)
    with Judge(spec, "cpu", timeout_s=300, budget_s=0.01, search=50) as judge:
        found = judged(judge, tmp_path, KNOWS_ITS_SHAPE)
    assert found.status == "wrong", found
    assert [each.case for each in found.cases] == ["rows=1, columns=21"]


def test_no_simpler_case_is_made_ready_for_a_process_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spec.py").write_text(SEARCH)
    ready = list[str]()
    monkeypatch.setattr(judging, "ReadyCase", lambda spec, case, device: ready.append(case_name(case)))

    def check() -> CaseJudgement:
        return CaseJudgement(case=ready[-1], status="pass" if len(ready) < 5 else "crash", reason="")

    monkeypatch.setattr(judging, "Trial", lambda *given: SimpleNamespace(check=check))
    candidate: Any = SimpleNamespace(device=cpu_device())
    found = judging._search(candidate, read_spec(tmp_path / "spec.py"), Rules(Limits(), drawn=50))
    assert found is not None
    assert len(ready) == 5
    assert found.case == ready[-1]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("st.nothing()", "the spec's search raises Unsatisfiable: Cannot generate test cases from empty strategy"),
        ("st.builds(dict).map(lambda case: 1 / 0)", "the spec's search raises ZeroDivisionError: division by zero"),
        ("st.just(3)", "the spec's search draws 3, and each case is a dict: draw dicts"),
        ("st.just({'rows': 0, 'columns': 1})", "the spec's reference for rows=0, columns=1 raises ZeroDivisionError"),
    ],
)
def test_cases_that_cannot_be_drawn_are_an_error_of_the_spec(tmp_path: Path, search: str, found: str) -> None:
    text = SEARCH.replace("torch.tanh(x) + x", "x + 1 // len(x)")
    (tmp_path / "spec.py").write_text(f"{text}\nsearch = {search}")
    candidate: Any = SimpleNamespace(device=cpu_device())
    with pytest.raises(BadRequest, match=found):
        judging._search(candidate, read_spec(tmp_path / "spec.py"), Rules(Limits(), drawn=50))


def test_an_error_in_a_call_is_told_with_its_traceback(judge: Judge, tmp_path: Path) -> None:
    found = judged(judge, tmp_path, "def candidate(*inputs):\n    return missing")
    assert (found.status, ", in candidate\n" in found.detail) == ("crash", True)


@pytest.mark.parametrize(("status", "ratio"), [("fail", 40.0), ("invalid", None)])
def test_a_time_that_is_not_believed_gives_no_ratio(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: Any, ratio: float | None
) -> None:
    case = CaseJudgement(case="", status=status, reason="faster than memory allows", ratio=40.0)
    monkeypatch.setattr(judge, "_judge_cases", lambda *given: [case])
    found = judged(judge, tmp_path, "candidate = work")
    assert (found.status, found.ratio, found.cases[0].ratio) == (status, ratio, 40.0)


def test_the_module_that_is_called_may_be_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.judge.judge_candidate", lambda path, spec: (path, spec))
    module: Any = pytest_gpubench.judge
    assert module("a.py", spec="b.py") == ("a.py", "b.py")
    monkeypatch.undo()
    assert module.judge_candidate is judging.judge_candidate
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize(
    ("owner", "name", "error", "reason"),
    [
        (judging, "_read", MemoryError("a large file"), "MemoryError in the referee: a large file"),
        (ReadyCase, "warm", torch.OutOfMemoryError("no room"), "OutOfMemoryError in the referee: no room"),
        (ReadyCase, "warm", UnfairComparison("zeros are right"), "zeros are right"),
        (ReadyCase, "warm", BadRequest("a mistake"), None),
        (ReadyCase, "warm", SystemExit("a mistake"), None),
        (Judge, "_load", OSError("no space"), "OSError in the referee: no space"),
        (Trial, "judge", ValueError("odd"), "ValueError in the referee: odd"),
        (Trial, "judge", BadRequest("a mistake"), None),
    ],
)
def test_an_error_in_the_referee_costs_one_candidate(
    judge: Judge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    error: BaseException,
    reason: str | None,
) -> None:
    """The disk or the GPU may be full for a while. A mistake in the spec ends the command, as it concerns all."""

    def fail(*given: object) -> NoReturn:
        raise error

    monkeypatch.setattr(owner, name, fail)
    if name == "warm":
        monkeypatch.setattr(judge, "_cases", ())
    with pytest.raises(BadRequest, match="a mistake") if reason is None else nullcontext():
        found = judged(judge, tmp_path, "candidate = work")
        assert (found.status, found.reason) == ("invalid", reason)
    monkeypatch.undo()
    assert judge._ready_cases()
