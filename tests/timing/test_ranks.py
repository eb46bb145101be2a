"""A call over several ranks: what is made of their reps, and that none is left behind; on the CPU, over gloo."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.errors import BadRequest, KernelsDiffer, MeasurementError, NotMeasured, WrongResult
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.results.model import Kernel, Timing
from pytest_gpubench.timing import ranks
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.ranks import (
    BUS_FACTORS,
    OURS,
    Crew,
    Failure,
    Job,
    Member,
    Rank,
    Ranks,
    bus_bytes,
    call_once,
    checked,
    combine,
    devices_of,
    died,
    failure_of,
    measure_ranks,
    own_lines,
    ranks_text,
    said_of,
    take_clean,
    take_session,
)
from pytest_gpubench.timing.sampling import Sample
from tests.timing.fakes import Clock, FakeTimer

PLAN = Plan(cache="hot", reps=20, warmup=1, precision=0.02, max_time_s=5)
PATIENT_S, IMPATIENT_S = 60.0, 5.0

# what ranks took together


def timing(*samples_us: float, **others: Any) -> Timing:
    known: dict[str, Any] = {
        "label": "f",
        "timer": "profiler",
        "cache": "cold",
        "device": "G",
        "samples_us": samples_us,
    }
    return Timing(**{**known, **others})


def test_in_each_rep_the_slowest_rank_counts() -> None:
    first = timing(10, 20, 30, busy_us=(1, 2, 3), span_us=(4, 5, 6), sm_clock_mhz=(7, 8, 9))
    second = timing(11, 19, 35, busy_us=(10, 20, 30), span_us=(40, 50, 60), sm_clock_mhz=(70, 80, 90))
    found = combine([first, second])
    assert list(found.timing.samples_us) == [11, 20, 35]
    assert list(found.timing.busy_us) == [10, 2, 30]
    assert list(found.timing.span_us) == [40, 5, 60]
    assert list(found.timing.sm_clock_mhz) == [70, 8, 90]
    assert list(found.medians_us) == [20, 19]
    assert found.skew_us == 1
    assert found.ranks == (first, second)
    assert (found.bus_gbps, found.algorithm_gbps) == (None, None)


def test_what_is_not_told_by_rep_is_of_the_slowest_rank_and_warnings_are_of_all() -> None:
    slow = (Kernel(name="slow", kind="kernel", launches=1, median_us=9),)
    first = timing(10, 10, flags=("host-bound", "overlap"), throttle_reasons=("power",), elapsed_s=2.0)
    second = timing(20, 20, kernels=slow, flags=("overlap",), throttle_reasons=("heat",), elapsed_s=1.0, discarded=3)
    found = combine([replace_discarded(first, 3), second]).timing
    assert found.kernels == slow
    assert found.flags == ("host-bound", "overlap")
    assert found.throttle_reasons == ("heat", "power")
    assert (found.discarded, found.elapsed_s) == (3, 2.0)


def replace_discarded(given: Timing, discarded: int) -> Timing:
    import msgspec

    return msgspec.structs.replace(given, discarded=discarded)


def test_what_one_rank_could_not_read_is_not_made_up() -> None:
    assert combine([timing(1, 2, sm_clock_mhz=(5, 5)), timing(2, 1)]).timing.sm_clock_mhz == ()


@pytest.mark.parametrize("samples", [((1, 2), (1,)), ((), ())])
def test_ranks_that_did_not_take_the_same_reps_have_no_number(samples: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(MeasurementError, match="did not all take the same reps"):
        combine([timing(*each) for each in samples])


@given(st.lists(st.tuples(*[st.floats(0.1, 1e6)] * 3), min_size=1, max_size=30))
def test_the_slowest_is_no_faster_than_any_rank(reps: list[tuple[float, float, float]]) -> None:
    found = combine([timing(*(rep[rank] for rep in reps)) for rank in range(3)])
    assert found.timing.median_us >= max(found.medians_us)
    assert found.skew_us >= 0
    assert set(found.timing.samples_us) <= {each for rep in reps for each in rep}


def test_what_was_not_measured_has_no_skew() -> None:
    found = Ranks(timing(unmeasured="switched off"))
    assert str(found) == "f: not measured (switched off)"
    with pytest.raises(NotMeasured, match="switched off"):
        _ = found.skew_us


# bandwidth, as nccl-tests counts it


@pytest.mark.parametrize(
    ("collective", "of_two", "of_eight"),
    [
        ("all_reduce", 1000, 1750),
        ("reduce_scatter", 500, 875),
        ("all_gather", 500, 875),
        ("all_to_all", 500, 875),
        ("broadcast", 1000, 1000),
        ("reduce", 1000, 1000),
    ],
)
def test_bus_bytes(collective: str, of_two: int, of_eight: int) -> None:
    assert bus_bytes(collective, 1000, 2) == of_two
    assert bus_bytes(collective, 1000, 8) == of_eight


def test_every_collective_has_a_row_above() -> None:
    assert len(BUS_FACTORS) == 6


def test_bandwidths_are_of_the_slowest_ranks_median() -> None:
    found = combine([timing(*[100.0] * 4)] * 3 + [timing(*[200.0] * 4)], "all_reduce", 2_000_000)
    assert found.timing.moved_bytes == 3_000_000
    assert found.bus_gbps == found.timing.gbps == 15.0
    assert found.algorithm_gbps == 10.0
    assert "by rank 100.00, 100.00, 100.00, 200.00 us, skew 100.00 us, 15.0 GB/s on the bus" in str(found)


# what cannot be meant


def nothing() -> None:
    pass


@pytest.mark.parametrize("world_size", [1, 0, True, 2.0, "2"])
def test_a_world_is_of_two_at_least(world_size: Any) -> None:
    with pytest.raises(BadRequest, match="whole number of at least 2"):
        checked(Job(nothing, PLAN), world_size)
    assert checked(Job(nothing, PLAN), 2)


@pytest.mark.parametrize("others", [{"collective": "all_reduce"}, {"message_bytes": 8}])
def test_a_collective_and_its_bytes_are_given_together(others: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="together, or neither"):
        checked(Job(nothing, PLAN, **others), 2)


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(BadRequest, match="must be one of all_reduce"):
        checked(Job(nothing, PLAN, collective="gossip", message_bytes=8), 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["function", "setup", "check"])
def test_what_other_processes_cannot_import_is_refused(part: str) -> None:
    parts: dict[str, Any] = {"function": nothing, part: lambda *args: None}
    job = Job(plan=PLAN, **parts)
    with pytest.raises(BadRequest, match="at the top of a module that can be imported"):
        checked(job, 2)


def test_the_cpu_is_every_ranks_device() -> None:
    assert devices_of(cpu_device(), 3) == [cpu_device()] * 3


# what ranks agree on


class TwoFellows:
    """Stands for a second rank that says the same as the first, but for what is planted."""

    def __init__(self, others: Callable[[object], object]) -> None:
        self.others = others

    def tell(self, mine: object) -> list[Any]:
        return [mine, self.others(mine)]


def silent(label: str = "f") -> Any:
    return make_call(nothing, label=label)


def never() -> int:
    return 0


def test_a_session_that_is_not_complete_for_one_rank_is_taken_again_by_all(clock: Clock) -> None:
    problems = iter([KernelsDiffer("other kernels"), None])
    fellows: Any = TwoFellows(lambda mine: (next(problems), mine[1]))  # type: ignore[index]
    timer: Any = FakeTimer(clock)
    sample = Sample()
    assert take_session(timer, silent(), 4, 0.0, never, sample, fellows) == [0] * 4
    assert timer.sizes == [4, 4]
    assert (len(sample.reps), sample.remeasured) == (4, 1)


def test_a_session_that_never_is_complete_raises_the_same_everywhere(clock: Clock) -> None:
    fellows: Any = TwoFellows(lambda mine: (KernelsDiffer("other kernels"), mine[1]))  # type: ignore[index]
    timer: Any = FakeTimer(clock)
    with pytest.raises(KernelsDiffer, match=r"rank 1: other kernels \(measured 3 times\)"):
        take_session(timer, silent(), 4, 0.0, never, Sample(), fellows)


def test_a_rep_that_is_throttled_on_one_gpu_is_taken_again_by_all(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "time", clock)
    masks = iter([[0, 4, 0], [0]])
    fellows: Any = TwoFellows(lambda mine: (None, next(masks)))
    timer: Any = FakeTimer(clock)
    sample = Sample()
    take_clean(timer, silent(), 3, 0.0, never, sample, fellows)
    assert timer.sizes == [3, 1]
    assert (len(sample.reps), sample.discarded, sample.throttle_mask) == (3, 1, 0)
    assert clock.slept_s == [0.1]


def test_reps_that_stay_throttled_are_kept_and_said_to_be(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "time", clock)
    masks = iter([[0, 4, 8], [4, 0], [2]])
    fellows: Any = TwoFellows(lambda mine: (None, next(masks)))
    timer: Any = FakeTimer(clock)
    sample = Sample()
    take_clean(timer, silent(), 3, 0.0, never, sample, fellows)
    assert timer.sizes == [3, 2, 1]
    assert (len(sample.reps), sample.discarded, sample.throttle_mask) == (3, 3, 4)


def test_what_is_in_the_sample_already_is_no_part_of_the_batch(clock: Clock) -> None:
    fellows: Any = TwoFellows(lambda mine: mine)
    timer: Any = FakeTimer(clock)
    first = FakeTimer(clock).play(0)
    sample = Sample(reps=[first])
    take_clean(timer, silent(), 2, 0.0, never, sample, fellows)
    assert sample.reps == [first, *(timer.play(number) for number in range(2))]


# how ranks fail


@pytest.mark.parametrize(
    ("code", "expected"),
    [(-9, "was ended by SIGKILL"), (3, "ended with exit code 3"), (-200, "ended with exit code -200")],
)
def test_a_death_is_told(code: int, expected: str) -> None:
    assert died(code, "measuring") == f"{expected} while it was measuring"


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ValueError("x"), MeasurementError, "raised ValueError: x"),
        (KernelsDiffer("x"), KernelsDiffer, "failed: x"),
        (WrongResult("x"), WrongResult, "failed: x"),
    ],
)
def test_what_a_rank_raises_is_what_the_test_raises(error: Exception, kind: type[Exception], sentence: str) -> None:
    found = failure_of(error, "f")
    assert (found.kind, found.sentence) == (kind, sentence)


def raised(call: Callable[[], object]) -> Exception:
    """Return what a call raises, with its traceback."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def divide() -> float:
    return 1 / 0


def convert() -> None:
    try:
        divide()
    except ZeroDivisionError as error:
        raise ValueError("first line\nsecond line") from error


class Alone:
    """Stands for the other ranks where there are none."""

    def meet(self) -> None:
        pass


def through_ours(function: Callable[[], object], check: Callable[[Rank, Any], object] | None = None) -> Exception:
    """Return what a function raises, or a check, that is called as a rank calls it."""
    job, device, alone = Job(function, PLAN, check=check), cpu_device(), cast(Any, Alone())
    rank = Rank(0, 2, device.torch_device)
    return raised(lambda: call_once(make_call(function), job, rank, device, alone))


def test_a_traceback_is_of_the_users_own_lines() -> None:
    found = failure_of(through_ours(convert), "f")
    assert found.sentence == "raised ValueError: first line"
    assert "second line" in found.traceback
    assert OURS not in found.traceback
    in_order = re.findall(r", in (divide|convert|call_once)\n", found.traceback)
    assert in_order == ["convert", "divide", "convert"]  # what it came from is told first


def test_an_error_of_ours_has_no_traceback() -> None:
    ours = raised(lambda: combine([timing(1.0), timing()]))
    assert (failure_of(ours, "f").traceback, failure_of(ours, "f").kind) == ("", MeasurementError)


def test_a_bug_of_ours_has_its_own() -> None:
    bug = raised(lambda: bus_bytes("all_reduce", 1000, 0))
    while bug.__traceback__ is not None and not bug.__traceback__.tb_frame.f_code.co_filename.startswith(OURS):
        bug.__traceback__ = bug.__traceback__.tb_next
    assert "in bus_bytes" in failure_of(bug, "f").traceback


def test_a_check_shows_where_it_failed() -> None:
    error = through_ours(nothing, lambda rank, out: must_be_four())
    found = failure_of(error, "f")
    assert (found.kind, found.sentence) == (WrongResult, "failed: it is not 4")
    assert "in must_be_four" in found.traceback
    assert OURS not in found.traceback
    assert "direct cause" not in found.traceback


def must_be_four() -> None:
    raise AssertionError("it is not 4")


@pytest.mark.parametrize(
    ("indices", "expected"), [([1], "rank 1"), ([0, 1], "ranks 0 and 1"), ([0, 2, 3], "ranks 0, 2 and 3")]
)
def test_ranks_by_number(indices: list[int], expected: str) -> None:
    assert ranks_text(indices) == expected


DUMP = f"""Current thread 0x00007f (most recent call first):
  File "/site-packages/torch/distributed/distributed_c10d.py", line 2501 in all_reduce
  File "/home/me/steps.py", line 12 in wait_for_ever
  File "{OURS}timing/ranks.py", line 512 in call_once
  File "{OURS}timing/ranks.py", line 430 in run_rank
  File "/usr/lib/python3.11/multiprocessing/process.py", line 108 in run
  File "<string>", line 1 in <module>
"""


def test_where_a_rank_hangs_is_told_by_lines_that_are_not_ours() -> None:
    assert [line.rpartition(" ")[2] for line in own_lines(DUMP)] == ["all_reduce", "wait_for_ever"]
    assert own_lines("") == []


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        (
            [
                Failure(MeasurementError, "noticed", "", at_s=1.0),
                Failure(MeasurementError, "died", died=True, at_s=2.0),
            ],
            "^rank 1 of 2 of 'nothing' died",
        ),
        (
            [Failure(MeasurementError, "noticed", "trace", at_s=2.0), Failure(BadRequest, "failed", "", at_s=1.0)],
            "^rank 1 of 2 of 'nothing' failed",
        ),
    ],
)
def test_the_cause_is_told_and_not_what_others_notice_of_it(failures: list[Failure], expected: str) -> None:
    with pytest.raises(failures[1].kind, match=expected):
        crew_of(*failures)._raise_failed()


def crew_of(*failures: Failure | None) -> Crew:
    """Return a crew some of whose ranks have failed, and the others are done."""
    crew = Crew(Job(nothing, PLAN), b"", [])
    nobody: Any = None
    crew.members = [Member(nobody, nobody, Path(), "measuring", done=True, failure=failure) for failure in failures]
    return crew


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


def test_a_failure_is_said_once_for_all_ranks_and_the_others_beside_it() -> None:
    planted = [Failure(MeasurementError, "raised ValueError: x", f"trace {n}", at_s=9 - n) for n in range(2)]
    noticed = Failure(MeasurementError, "raised RuntimeError: " + "gone " * 100, "trace", at_s=20.0)
    dead = Failure(MeasurementError, "was ended by SIGKILL", at_s=20.0)
    with pytest.raises(MeasurementError) as caught:
        crew_of(planted[0], noticed, planted[1], None, dead)._raise_failed()
    assert str(caught.value) == "ranks 0 and 2 of 5 of 'nothing' raised ValueError: x"
    trace, others = notes(caught.value)
    assert trace == "trace 1"  # of the first
    first, third, last = others.removeprefix("gpu_bench: meanwhile ").split("; ")
    assert first == "rank 1 was measuring, and " + ("raised RuntimeError: " + "gone " * 100)[:150]
    assert third == "rank 3 was done"
    assert last == "rank 4 was measuring, and was ended by SIGKILL"


def test_what_died_says_so_by_itself() -> None:
    dead = Failure(MeasurementError, "was ended by SIGKILL while it was measuring", died=True)
    assert said_of(crew_of(dead).members[0]) == dead.sentence


def test_where_all_fail_alike_there_are_no_others() -> None:
    with pytest.raises(MeasurementError) as caught:
        crew_of(*[Failure(MeasurementError, "raised ValueError: x")] * 2)._raise_failed()
    assert notes(caught.value) == []


# real processes


def numbers(rank: Rank) -> tuple[torch.Tensor]:
    return (torch.full((1000,), float(rank.index + 1)),)


def reduce_all(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def is_sum(rank: Rank, out: torch.Tensor) -> None:
    assert torch.equal(out, torch.full((1000,), 3.0)), f"found {out[0]}"
    assert (rank.world_size, dist.get_world_size(), os.environ["LOCAL_RANK"]) == (2, 2, str(rank.index))
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"


def is_four(rank: Rank, out: torch.Tensor) -> None:
    assert rank.index == 0 or out[0] == 4, "it is not 4"


def fail_on_second(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        raise ValueError("planted")
    dist.all_reduce(x)


def die_on_second(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)


MARK = "GPU_BENCH_TEST_HANGS"
"""Names a file that is made when a rank hangs."""


def hang_on_second(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        if mark := os.environ.get(MARK):
            Path(mark).touch()
        wait_for_ever()
    dist.all_reduce(x)


def wait_for_ever() -> None:
    while True:
        time.sleep(0.1)


@pytest.fixture
def no_orphans() -> Any:
    before = children()
    yield
    assert children() <= before


def children() -> set[int]:
    """Return the processes that this one has started and that still are there, but for multiprocessing's own."""
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in listed if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()}


def measured(job: Job, timeout_s: float = PATIENT_S) -> Ranks | None:
    return measure_ranks(replace(job, timeout_s=timeout_s), devices_of(cpu_device(), 2))


@pytest.mark.usefixtures("no_orphans")
def test_an_all_reduce_is_checked_and_timed_by_both() -> None:
    job = Job(reduce_all, PLAN, numbers, is_sum, collective="all_reduce", message_bytes=4000)
    found = measured(job)
    assert found is not None
    assert [timing.reps for timing in found.ranks] == [20, 20]
    assert found.timing.label == "reduce_all"
    assert found.timing.timer == "wall"
    assert found.timing.moved_bytes == 4000
    assert found.timing.warmup_calls == 2
    assert found.timing.median_us >= max(found.medians_us)


@pytest.mark.usefixtures("no_orphans")
def test_without_a_number_of_reps_both_stop_after_the_same() -> None:
    found = measured(Job(reduce_all, replace(PLAN, reps=None, max_time_s=0.2), numbers))
    assert found is not None
    assert found.timing.reps >= 12


@pytest.mark.usefixtures("no_orphans")
def test_what_is_not_timed_is_checked_all_the_same() -> None:
    assert measured(Job(reduce_all, PLAN, numbers, is_sum, timed=False)) is None
    with pytest.raises(WrongResult, match="rank 1 of 2 of 'reduce_all' failed: it is not 4"):
        measured(Job(reduce_all, PLAN, numbers, is_four, timed=False))


@pytest.mark.usefixtures("no_orphans")
def test_an_error_of_one_rank_is_told_with_its_traceback() -> None:
    with pytest.raises(MeasurementError, match="rank 1 of 2 of 'fail_on_second' raised ValueError: planted") as caught:
        measured(Job(fail_on_second, PLAN, numbers))
    trace, others = notes(caught.value)
    assert re.findall(r"in (\w+)", trace) == ["fail_on_second"]
    assert others.startswith("gpu_bench: meanwhile rank 0 was calling the function for the first time")


@pytest.mark.usefixtures("no_orphans")
def test_a_rank_that_dies_is_named_and_not_the_one_that_notices() -> None:
    with pytest.raises(
        MeasurementError, match="rank 1 of 2 of 'die_on_second' was ended by SIGKILL while it was calling"
    ):
        measured(Job(die_on_second, PLAN, numbers))


@pytest.mark.usefixtures("no_orphans")
def test_a_rank_that_hangs_is_ended_and_said_where_it_hung() -> None:
    with pytest.raises(MeasurementError, match="made no progress within the 5 s") as caught:
        measured(Job(hang_on_second, PLAN, numbers), IMPATIENT_S)
    assert "\n" not in str(caught.value)
    first, second = notes(caught.value)
    assert first.startswith("gpu_bench: rank 0 was calling the function for the first time")
    assert re.findall(r"in (\w+)$", second, re.MULTILINE) == ["wait_for_ever", "hang_on_second"]


ORPHANS = """
import os, signal, sys, threading, time
from tests.timing.test_ranks import *

def end():
    while not os.path.exists(os.environ[MARK]):
        time.sleep(0.05)
    print(*children(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    threading.Thread(target=end).start()
    measured(Job(hang_on_second, PLAN, numbers))
"""


def test_ranks_end_with_the_process_of_the_test(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ORPHANS)
    root = Path(__file__).parents[2]
    command, environment = [sys.executable, str(script)], {"PYTHONPATH": str(root), MARK: str(tmp_path / "hangs")}
    ended = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=False, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2
    until_s = time.monotonic() + 20
    while any(is_running(pid) for pid in pids) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not [pid for pid in pids if is_running(pid)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
