"""The candidate as the referee uses it, without a process: inputs, released calls and outputs."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from pytest_gpubench import BadRequest, MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.channel import Leaf, Reply
from pytest_gpubench.judge.judgement import Ended
from pytest_gpubench.judge.layout import as_it_lay, copy_elements, describe, layout_of

VALUES = [(torch.full((100,), float(number)),) for number in range(3)]
LEAF = Leaf("float32", (100,), (1,))


class Process:
    """Stands for the candidate's process: its output is its input."""

    allowed_s = left_s = 0.01
    pid = 0
    memory_bytes = 2**30
    box = Path()
    running = staticmethod(nullcontext)

    def __init__(self) -> None:
        self.done: list[str] = []
        self.reply = Reply(kind="done", output=(["t", 0], [LEAF]))
        self.queued: list[int] = []

    def ask(self, do: str, files: object = (), **message: Any) -> Reply:
        self.done.append(do)
        message.get("meanwhile", lambda look: None)(lambda: None)
        if do == "queue":
            self.queued += range(message["first"], message["first"] + message["calls"])
        return self.reply

    def __getattr__(self, name: str) -> Any:
        """Note what else is asked of it."""

        def note(*given: object) -> Reply:
            self.done.append(name)
            return self.reply

        return note


class Memory:
    """Stands for memory of a GPU, in which a queue of the candidate's waits for counters."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.waited: list[int] = []
        self.seen: list[tuple[int, float, list[int]]] = []
        """The number and the input of each call at its release, and the calls whose outputs were waited for before."""
        self.blocks: list[torch.Tensor] = []

    def allocate(self, size: int) -> tuple[torch.Tensor, str]:
        self.blocks.append(torch.zeros(size, dtype=torch.uint8))
        return self.blocks[-1], "handle"

    def write(self, address: int, number: int) -> None:
        """Release a call, or fetch its output: the candidate does what it does then."""
        inputs, outputs, counters = self.blocks
        if address == counters.data_ptr():
            assert self.process.queued.pop(0) == number
            self.seen.append((number, float(inputs.view(torch.float32)[0]), [*self.waited]))
            return
        assert (address, self.done) == (counters.data_ptr() + 256, number)
        outputs[:400] = inputs[:400]

    def wait_for(self, address: int, number: int) -> None:
        """Wait for the end of a call, and then for its output."""
        if address == self.blocks[-1].data_ptr() + 128:
            self.done = number
            return
        assert (address, self.done) == (self.blocks[-1].data_ptr() + 384, number)
        self.waited.append(number)


class Event:
    """Stands for an event of CUDA; each is recorded a millisecond after the one before."""

    recorded = 0
    happens = True

    def __init__(self, **settings: object) -> None:
        self.at = -1

    def record(self) -> None:
        self.at, Event.recorded = Event.recorded, Event.recorded + 1

    def query(self) -> bool:
        return Event.happens

    def elapsed_time(self, later: "Event") -> float:
        return later.at - self.at


@pytest.fixture
def event(monkeypatch: pytest.MonkeyPatch) -> type[Event]:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "happens", True)
    return Event


def candidate_of(process: Process, example: tuple[torch.Tensor, ...] = VALUES[0], sets: int = 3) -> Candidate:
    """Return a candidate as on a GPU, whose output is its input."""
    candidate = Candidate(process, cpu_device())  # type: ignore[arg-type]
    candidate.gpu = Memory(process)  # type: ignore[assignment]
    candidate.begin_case(example, sets, [LEAF])
    return candidate


def test_a_set_of_several_inputs_is_filled_alone() -> None:
    """Each input takes 512 bytes; all sets begin with the example."""
    candidate = candidate_of(Process(), (torch.full((100,), 3.0), torch.full((100,), 4.0)), 3)
    candidate.fill((torch.full((100,), 1.0), torch.full((100,), 2.0)), 1)
    memory: Any = candidate.gpu
    assert memory.blocks[0].view(torch.float32)[: 6 * 128 : 128].tolist() == [3, 4, 1, 2, 3, 4]


def test_inputs_that_differ_in_shape_from_seed_to_seed_are_refused() -> None:
    with pytest.raises(BadRequest, match="differ from seed to seed in more than the values of their tensors"):
        candidate_of(Process()).fill((torch.zeros(99),))


@pytest.mark.parametrize(
    ("memory_bytes", "together"), [(8 * 1024 * 12, 12), (8 * 1024 * 12 - 1, 11), (1, 1), (8 * 1024 * 99, 85)]
)
def test_as_many_calls_are_released_together_as_memory_allows(memory_bytes: int, together: int) -> None:
    """The input and the output of each take 1024 bytes, an eighth of the memory together; a queue holds 85."""
    process = Process()
    process.memory_bytes = memory_bytes
    assert candidate_of(process).most_together == together


@pytest.mark.parametrize("is_right", [True, False])
def test_a_process_that_does_not_double_in_practice_is_refused(monkeypatch: pytest.MonkeyPatch, is_right: bool) -> None:
    """No candidate is loaded in it."""
    candidate = Candidate(Process(), cpu_device())  # type: ignore[arg-type]
    given = torch.arange(2.0**12)
    monkeypatch.setattr(candidate, "output", lambda: 2 * given if is_right else given)
    with nullcontext() if is_right else pytest.raises(MeasurementError, match="cannot read what a new candidate's"):
        candidate.practise()


def test_something_else_is_done_while_it_is_loaded_and_compiles(tmp_path: Path) -> None:
    process = Process()
    process.box = tmp_path
    candidate = Candidate(process, cpu_device())  # type: ignore[arg-type]
    candidate.meanwhile = lambda look: process.done.append("else")
    candidate.load(b"", tmp_path)
    candidate.first(candidate.meanwhile)
    candidate.first()
    assert process.done == ["load", "else", "first", "else", "first"]


# released calls


def test_a_call_is_released_when_the_one_before_was_copied_away(event: type[Event]) -> None:
    """At its release it finds its own inputs, and none of those to come; each time is one of the referee's clock."""
    process = Process()
    candidate = candidate_of(process, sets=1)
    memory: Any = candidate.gpu
    candidate.first()
    for began in (1, 4):
        found = candidate.release(VALUES)
        assert [(each.own_us, each.call_us, each.output[0].item()) for each in found] == [
            (1000.0, 1000.0, number) for number in (0.0, 1.0, 2.0)
        ]
        assert memory.seen == [(began + at, float(at), [*range(1, began + at)]) for at in range(3)]
        memory.seen.clear()
    assert process.done == ["case", "first", "queue", "queue"]


@pytest.mark.parametrize("where", ["", "running", "queueing"])
def test_a_call_that_never_ends_or_is_interrupted_is_not_waited_for(
    event: type[Event], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Its process is killed, and then its counter is set: in another order it may be set back for ever."""

    def interrupt(*given: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(event, "happens", False)
    process = Process()
    candidate = candidate_of(process, sets=1)
    candidate.first()

    def kill() -> None:
        assert 2 not in candidate._counters.tolist()
        monkeypatch.setattr(event, "happens", True)

    monkeypatch.setattr(process, "kill", kill, raising=False)
    if where == "running":
        monkeypatch.setattr("pytest_gpubench.judge.candidate.time.sleep", interrupt)
    elif where == "queueing":
        monkeypatch.setattr(candidate, "flush", interrupt)
    with pytest.raises((KeyboardInterrupt, Ended)) as found:
        candidate.release(VALUES[:2])
    timeout = isinstance(found.value, Ended) and f"{found.value.status}: {found.value}"
    assert timeout == (not where and "timeout: its calls did not end within 0.01 s")
    assert candidate._counters.tolist() == [2] * 128


def test_a_gpu_that_is_never_free_again_ends_the_referee(event: type[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait without an end in its next call."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr("pytest_gpubench.judge.candidate.STOP_S", 0.01)
    monkeypatch.setattr(event, "happens", False)
    candidate = candidate_of(Process(), sets=1)
    candidate.first()
    with pytest.raises(MeasurementError, match="still waits for a candidate that was killed"):
        candidate.release(VALUES[:2])


# outputs


FOUR, EXPANDED, SQUARE = torch.zeros(4), torch.zeros(1).expand(4), torch.zeros(4, 4)
INPUT = Leaf("float32", (4,), (1,), is_input=True)
UNREAD = "invalid: the candidate's outputs cannot be read: "


@pytest.mark.parametrize(
    ("own", "node", "reported", "found"),
    [
        (FOUR, None, [], "invalid: the candidate does not say what it returns"),
        (FOUR, ["t", 0], [Leaf("float32", (5,), (1,))], "wrong: output 0 is float32 [5], and the reference's float32"),
        (FOUR, ["t", 0], [Leaf("float64", (4,), (1,))], "wrong: output 0 is float64 [4], and the reference's float32"),
        (FOUR, ["t", 0], [Leaf("float32", (4,), (1,))] * 2, "wrong: it returns 2 tensors, and the reference 1"),
        (FOUR, ["t", 0], [], "wrong: it returns 0 tensors, and the reference 1"),
        (FOUR, ["t", 0], [Leaf("float32", (4,), (0,))], "wrong: output 0 is expanded, and the reference's is not: wri"),
        (FOUR, ["t", 0], [Leaf("float32", (4,), (-1,))], "invalid: the candidate's outputs cannot be read: no tensor"),
        (FOUR, ["t", 0], [Leaf("float32", (4,), (3,))], "[0.0, 0.0, 0.0, 0.0]"),
        (FOUR, ["t", 0], [INPUT], "wrong: output 0 is memory of an input, and the reference's is its own: return"),
        # gaps, or steps of the same size, make it as large as one whose elements share no memory
        (SQUARE, ["t", 0], [Leaf("float32", (4, 4), (8, 0))], "wrong: output 0 is expanded"),
        (SQUARE, ["t", 0], [Leaf("float32", (4, 4), (2, 3))], "wrong: output 0 is expanded"),
        (SQUARE, ["t", 0], [Leaf("float32", (4, 4), (1, 4))], "[[0.0, "),
        *(
            (FOUR, node, [Leaf("float32", (4,), (1,))], UNREAD)
            for node in (["t"], ["l", 3], ["d", []], ["f", "0x1p9999"], ["dtype", "nn"], ["v", {}], ["x", 0])
        ),
        # sizes are those of the reference's output
        *((EXPANDED, ["t", 0], [Leaf("float32", (4,), (stride,))], "[0.0, 0.0, 0.0, 0.0]") for stride in (0, 1, 3)),
        # a tensor that nothing names was a way to make samples and batches smaller
        (FOUR, ["l", []], [Leaf("float32", (4,), (1,))], f"{UNREAD}there are 1 tensors more than its structure has"),
        (FOUR, ["l", [["t", 0], ["t", 0]]], [Leaf("float32", (4,), (1,))], f"{UNREAD}no structure: 't' of int"),
        (FOUR, ["v", 1], [Leaf("float32", (4,), (1,))], f"{UNREAD}there are 1 tensors more than its structure has"),
    ],
)
def test_outputs_are_like_the_references(own: torch.Tensor, node: Any, reported: list[Leaf], found: str) -> None:
    process = Process()
    candidate = Candidate(process, cpu_device())  # type: ignore[arg-type]
    candidate.begin_case(VALUES[0], 1, layout_of([own]).leaves)

    def read() -> str:
        try:
            candidate._reported = node and (node, reported)
            return str(candidate.output().tolist())
        except Ended as error:
            return f"{error.status}: {error}"

    assert candidate._outputs[0].numel() == own.numel()
    assert read().startswith(found)


def test_an_output_may_be_memory_of_an_input_where_the_references_is() -> None:
    candidate = Candidate(Process(), cpu_device())  # type: ignore[arg-type]
    candidate.begin_case(VALUES[0], 1, [INPUT])
    candidate._reported = ["t", 0], [INPUT]
    assert candidate.output().tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "output",
    [
        torch.arange(6.0).reshape(3, 2).t(),
        torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.arange(8.0)[::2],
        torch.arange(4.0).expand(3, 4),
        torch.arange(9, dtype=torch.uint8)[1:],
        torch.arange(3, dtype=torch.uint8),
        torch.ones(3, dtype=torch.float16)[1:1],
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
    ],
)
def test_an_output_is_read_as_it_was_wherever_its_elements_lie(output: torch.Tensor) -> None:
    _, (source,) = describe(output, "the output")
    target = torch.empty(source.shape, dtype=source.dtype)
    copy_elements([target], [source])
    leaf = Leaf("any", tuple(source.shape), source.stride())
    assert as_it_lay(target, leaf).equal(output)
