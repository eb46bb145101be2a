"""The candidate as the referee uses it, without a process: batches as on a GPU, and outputs as on a CPU."""

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench import BadRequest
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.channel import Leaf, Reply
from pytest_gpubench.judge.layout import place
from pytest_gpubench.judge.process import Ended

VALUES = [(torch.full((100,), float(number)),) for number in range(3)]


class Process:
    """Stands for the candidate's process: its outputs are its inputs."""

    def __init__(self) -> None:
        self.memory = torch.zeros(0)
        self.done: list[str] = []
        self.given: list[float] = []
        self.before: list[float] = []

    def ask(self, do: str, *files: int, **message: Any) -> Reply:
        self.done.append(do)
        return Reply(kind="done")

    def tell(self, do: str, **message: Any) -> None:
        self.done.append(do)
        self.given = self._inputs()

    def _inputs(self) -> list[float]:
        return self.memory.view(torch.float32)[:: 512 // 4].tolist()

    def thaw(self) -> None:
        self.before = self._inputs()

    def hear(self) -> Reply:
        leaves = [Leaf("float32", (100,), (1,), 512 * number, "inputs") for number in range(3)]
        return Reply(kind="done", outputs=[(["t", 0], [leaf]) for leaf in leaves])

    def freeze(self) -> None:
        pass


class Memory:
    """Stands for memory of a GPU."""

    def allocate(self, size: int) -> tuple[torch.Tensor, str]:
        return torch.zeros(size, dtype=torch.uint8), "handle"

    def close(self) -> None:
        pass


def candidate_of(process: Process, example: tuple[torch.Tensor, ...] = VALUES[0], sets: int = len(VALUES)) -> Candidate:
    candidate = Candidate(process, cpu_device())  # type: ignore[arg-type]
    candidate.gpu = Memory()  # type: ignore[assignment]
    candidate.begin_case(example, sets)
    process.memory = candidate.memory
    return candidate


@pytest.mark.parametrize(("sets", "written"), [(1, 1), (8, 8), (9, 9), (10, 9)])
def test_a_case_begins_with_inputs_in_the_sets_of_reps_and_in_the_last(sets: int, written: int) -> None:
    """The last is for the untimed call before a rep on the first."""
    candidate = candidate_of(Process(), VALUES[2], sets)
    places = candidate.memory.view(torch.float32)[:: 512 // 4].tolist()
    assert places == [2.0] * min(written, 8) + [0.0] * (sets - written) + [2.0] * (written - min(written, 8))


def test_a_set_of_several_inputs_is_filled_alone() -> None:
    """Each input takes 512 bytes; the sets of reps begin with zeros."""
    candidate = candidate_of(Process(), (torch.zeros(100), torch.zeros(100)), 3)
    candidate.fill([(torch.full((100,), 1.0), torch.full((100,), 2.0))], 1)
    assert candidate.memory.view(torch.float32)[:: 512 // 4].tolist() == [0.0, 0.0, 1.0, 2.0, 0.0, 0.0]


def test_a_batch_is_run_on_new_inputs() -> None:
    """They are written after the process was woken and has answered, when the clock has started."""
    process = Process()
    candidate = candidate_of(process)
    assert candidate.run(VALUES) > 0
    assert process.done == ["case", "wake", "run"]
    assert process.before == [0.0, 0.0, 0.0]
    assert process.given == [0.0, 1.0, 2.0]
    assert candidate.output(2).tolist() == [2.0] * 100


@pytest.mark.parametrize("late", ["while the process stops", "later", ""])
def test_a_reply_that_comes_before_the_outputs_is_found(late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of the GPU takes a while to be done."""
    process = Process()
    candidate = candidate_of(process)
    if late == "while the process stops":
        monkeypatch.setattr(process, "freeze", lambda: process.memory.add_(1))
    with pytest.raises(Ended, match="before its outputs are there") if late else nullcontext():
        candidate.run(VALUES)
        process.memory.add_(late == "later")
        candidate.check_samples()


def test_the_clock_runs_until_a_process_on_a_cpu_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children may work until then: they got a PASS by a reply that took 5 ms to decode."""
    done: list[str] = []

    def clock() -> float:
        done.append("clock")
        return 0.0

    monkeypatch.setattr(time, "perf_counter", clock)

    class Noting(SimpleNamespace):
        def __getattr__(self, name: str) -> Any:
            done.append(name)
            return lambda *given, **more: Reply(kind="done", outputs=[(["l", []], [])])

    candidate = Candidate(Noting(cpu_s=0.0), cpu_device())  # type: ignore[arg-type]
    candidate._spans = []
    candidate._run_on_cpu(1, [])
    assert done == ["ask", "tell", "clock", "thaw", "hear_undecoded", "freeze", "clock", "read"]


def test_inputs_that_differ_in_shape_from_seed_to_seed_are_refused() -> None:
    with pytest.raises(BadRequest, match="differ from seed to seed in more than the values of their tensors"):
        candidate_of(Process()).fill([(torch.zeros(99),)])


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        (None, "invalid: the candidate does not say where its outputs are"),
        ([Leaf("float32", (4,), (1,), 0, "elsewhere")], "wrong: output 0 is not on cpu"),
        (
            [Leaf("float32", (5,), (1,), 0)],
            "wrong: output 0 is new, or has another shape or dtype than in the first call",
        ),
        (
            [Leaf("float64", (4,), (1,), 0)],
            "wrong: output 0 is new, or has another shape or dtype than in the first call",
        ),
        (
            [Leaf("float32", (4,), (1,), 0)] * 2,
            "wrong: output 1 is new, or has another shape or dtype than in the first call",
        ),
        ([], "invalid: the candidate's outputs cannot be read: list index out of range"),
        ([Leaf("float32", (4,), (1,), 0)], "[0.0, 0.0, 0.0, 0.0]"),
    ],
)
def test_outputs_on_a_cpu_are_those_of_the_first_call(outputs: list[Leaf] | None, found: str) -> None:
    """The candidate's process reports these; its first call returned four numbers."""
    candidate = Candidate(None, cpu_device())  # type: ignore[arg-type]
    candidate.target_layout = place([torch.zeros(4)])
    candidate.targets = torch.zeros(512, dtype=torch.uint8)

    def reported() -> str:
        try:
            candidate._note(Reply(kind="done", outputs=None if outputs is None else [(["t", 0], outputs)]))
            return str(candidate.output(0).tolist())
        except Ended as error:
            return f"{error.status}: {error}"

    assert reported() == found


def test_an_expanded_output_counts_in_full_on_a_cpu() -> None:
    """The referee copies all of its elements."""
    candidate = Candidate(None, cpu_device())  # type: ignore[arg-type]
    candidate.target_layout = place([torch.zeros(1024)])
    candidate._note(Reply(kind="done", outputs=[(["t", 0], [Leaf("float32", (1024,), (0,), 0)])]))
    assert candidate.output_bytes == 4096
