"""Foreign work on a GPU: how scripted readings show it, and the policies, without waiting."""

from collections.abc import Iterable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench import DeviceUnavailable
from pytest_gpubench.gpu.foreign import ForeignWork, apply_busy_policy, computing, find_foreign, read_gpu
from pytest_gpubench.gpu.nvml import Nvml
from tests.gpu.recording_nvml import Recording

SETTLE_S = 1.5
LOOK_S = 0.25
POLICIES = ("warn", "accept", "wait", "fail")

OURS = {10, 11}
COMMANDS = {10: "pytest", 11: "pytest", 20: "python train.py", 21: "", 22: "ollama serve", 23: "x", 24: "y"}


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.gpu.foreign.command_of", COMMANDS.get)


def found_on(
    pids: Iterable[int] | None, utilisation: float | None, uses_gpu: bool, memory: int | None = None
) -> ForeignWork | None:
    """Return the foreign work that NVML's answers show."""
    answers: dict[str, Any] = {}
    if pids is not None:
        answers["ComputeRunningProcesses"] = [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid in pids]
    if utilisation is not None:
        answers["UtilizationRates"] = SimpleNamespace(gpu=round(100 * utilisation), memory=90)
    return find_foreign(read_gpu(Nvml(Recording(answers=answers), "handle")), OURS, uses_gpu)


@pytest.mark.parametrize(
    ("listed", "utilisation", "uses_gpu", "pids"),
    [
        ([], 0, False, None),
        ([10, 11], 0, True, None),
        ([10, 20], 0, True, [20]),
        ([20], 0, False, [20]),
        ([20], 0, True, None),  # none of ours is listed: these are ids of another container
        ([20], 0.5, True, []),
        ([10, 99], 0, True, None),  # no such process here
        ([10, 99, 20], 0, True, [20]),
        ([10, 99], 0.5, True, []),
        ([10], 0.05, True, None),
        ([10], 0.06, True, []),
        ([10], None, True, None),
        (None, 0.05, True, None),
        (None, 0.06, True, []),
        (None, None, True, None),
    ],
)
def test_what_is_foreign(
    listed: list[int] | None, utilisation: float | None, uses_gpu: bool, pids: list[int] | None
) -> None:
    work = found_on(listed, utilisation, uses_gpu)
    assert (None if work is None else [process.pid for process in work.processes]) == pids


UNTOLD = "the GPU is 40 % busy while this run leaves it idle; whose work it is cannot be told:"


@pytest.mark.parametrize(
    ("listed", "utilisation", "sentence"),
    [
        (
            [10, 20, 21, 22, 23, 24],
            None,
            "5 other processes: pid 20 (python train.py), pid 21, pid 22 (ollama serve) and 2 more compute on the GPU",
        ),
        ([10, 98, 99], 0.4, f"{UNTOLD} NVML lists 2 processes that are not to be found in this container"),
        ([99], 0.4, f"{UNTOLD} NVML lists 1 process that is not to be found in this container"),
        ([10], 0.4, f"{UNTOLD} NVML names no process of others"),
    ],
)
def test_it_is_named_in_a_sentence(listed: list[int], utilisation: float | None, sentence: str) -> None:
    work = found_on(listed, utilisation, 10 in listed)
    assert work is not None
    assert work.sentence == sentence


@pytest.mark.parametrize(
    ("memory", "told"),
    [(3 * 2**29, ", 1.5 GiB"), (0, ", 0 B"), (None, ""), (2**64 - 1, ""), (2**63 - 1, ", 8389000 TiB")],
)
def test_its_memory_is_told_where_nvml_knows_it(memory: int | None, told: str) -> None:
    work = found_on([20], 0.87, False, memory)
    assert work is not None
    assert work.sentence == f"1 other process: pid 20 (python train.py{told}) computes on the GPU, which is 87 % busy"


ONE = "1 other process: pid 20 (python train.py) computed on the GPU while it was measured on"


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        ([(20, 5)], None),
        ([(20, 6)], ONE),
        ([(20, 99), (20, 3)], ONE),
        (
            [(20, 50), (21, 50), (99, 100)],
            "2 other processes: pid 20 (python train.py), pid 21 computed on the GPU while it was measured on",
        ),
        ([(99, 100)], None),  # no process of others that is known
        ([], None),
        (None, None),  # this GPU has no samples
    ],
)
def test_who_computed_meanwhile(samples: list[tuple[int, int]] | None, sentence: str | None) -> None:
    asked: list[int] = []

    def answer(handle: str, since_us: int) -> list[SimpleNamespace]:
        asked.append(since_us)
        return [SimpleNamespace(pid=pid, smUtil=percent) for pid, percent in samples or ()]

    nvml = Nvml(Recording(answers={} if samples is None else {"ProcessUtilization": answer}), "handle")
    there = work(20, 21)
    assert computing(there, there, lambda: nvml, 100.0) == sentence
    assert computing(there, None, lambda: nvml, 100.0) == sentence
    assert asked == ([] if samples is None else [99_500_000] * 2)


# what to do about it


def work(*pids: int) -> ForeignWork:
    found = found_on(pids, 0.9, False)
    assert found is not None
    return found


class World:
    """A clock that only pausing moves on, and a GPU that is looked at."""

    def __init__(self, looks: Iterable[ForeignWork | None]) -> None:
        self.looks = iter(looks)
        self.last: ForeignWork | None = None
        self.now_s = 0.0
        self.said: list[str] = []

    def look(self) -> ForeignWork | None:
        self.last = next(self.looks, self.last)
        return self.last

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def enforce(self, policy: Any, timeout_s: float = 10.0) -> ForeignWork | None:
        return apply_busy_policy(policy, self.look, timeout_s, self.said.append, lambda: self.now_s, self.pause)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("looks", [0, 3])
def test_a_free_gpu_and_what_our_own_work_leaves_behind_are_not_foreign(looks: int, policy: str) -> None:
    """NVML's utilisation is a mean over up to a second that has passed."""
    world = World([*[work()] * looks, None])
    assert world.enforce(policy) is None
    assert (world.now_s, world.said) == (looks * LOOK_S, [])


@pytest.mark.parametrize("policy", ["warn", "accept"])
@pytest.mark.parametrize(("pids", "after_s"), [((20,), 0), ((), SETTLE_S)])
def test_what_is_there_is_returned_to_be_told(pids: tuple[int, ...], after_s: float, policy: str) -> None:
    found = work(*pids)
    world = World([found])
    assert world.enforce(policy) is found
    assert (world.now_s, world.said) == (after_s, [])


def test_fail_refuses() -> None:
    with pytest.raises(DeviceUnavailable, match=r"pid 20 .* busy: end it, or let the test wait with --gpu-bench-busy"):
        World([work(20)]).enforce("fail")


@pytest.mark.parametrize(("looks", "in_time"), [(4, True), (5, False)])
def test_wait_waits_so_long(looks: int, in_time: bool) -> None:
    world = World([work(20)] * looks + [None])
    too_long = "waited 1 s for the GPU to be free, but 1 other process: pid 20 "
    with nullcontext() if in_time else pytest.raises(DeviceUnavailable, match=too_long):
        assert world.enforce("wait", timeout_s=4 * LOOK_S) is None
    assert world.now_s == 4 * LOOK_S
    assert world.said == [f"waiting until the GPU is free: {work(20).sentence}"]


@pytest.mark.parametrize(
    ("before", "after", "came"),
    [
        (None, None, None),
        (None, (), None),
        ((21,), None, None),
        ((21,), (21,), None),
        (None, (21,), "1 other process: pid 21 began to compute on the GPU while it was measured on"),
        ((20,), (20, 21), "1 other process: pid 21 began to compute"),
        ((), (20, 21), "2 other processes: pid 20 (python train.py), pid 21 began"),
    ],
)
def test_who_came_meanwhile(before: tuple[int, ...] | None, after: tuple[int, ...] | None, came: str | None) -> None:
    then, now = (None if pids is None else work(*pids) for pids in (before, after))
    sentence = computing(then, now, lambda: Nvml(Recording(answers={}), "handle"), 100.0)
    assert (sentence is None) if came is None else (sentence or "").startswith(came)
