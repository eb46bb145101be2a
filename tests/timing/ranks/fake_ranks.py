"""Jobs of ranks, and processes that are none: each says its messages through its pipe, and nothing is started."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench import Timing
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.ranks import processes
from pytest_gpubench.timing.ranks.worker import Assignment, Failure
from tests.results.measured import timing_of

PLAN = Plan(cache="hot", reps=20, warmup=1, precision=0.02, max_time_s=5)


def nothing() -> None:
    pass


def timing(*samples_us: float, **others: Any) -> Timing:
    return timing_of(samples_us, "f", **others)


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


MEASURING, DONE = ("doing", "measuring"), ("done", None)
Message = tuple[str, object]


def failed(failure: Failure) -> list[Message]:
    return [MEASURING, ("failed", failure)]


@dataclass
class FakeRanks:
    """Stands for multiprocessing: each process says its messages, and its pipe stays open."""

    said: Sequence[Sequence[Message]]
    dump: str = ""
    """What a process writes of where it is."""
    assignments: list[Assignment] = field(default_factory=list)
    listening: list[str] = field(default_factory=list)
    """The addresses on which the store of the first rank listens."""
    pipes: list[Connection] = field(default_factory=list)

    def Pipe(self, duplex: bool) -> tuple[Connection, Connection]:
        return multiprocessing.Pipe(duplex)

    def Process(self, target: Callable[..., object], args: tuple[Assignment, bytes, Connection], name: str) -> Any:
        def start() -> None:
            assignment, _, pipe = args
            self.pipes.append(Connection(os.dup(pipe.fileno())))
            for message in self.said[assignment.index]:
                pipe.send(message)
            Path(assignment.dump).write_text(self.dump)
            self.assignments.append(assignment)
            self.listening += listening_on(assignment.port)

        return SimpleNamespace(start=start, pid=None)


def listening_on(port: int) -> list[str]:
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()]
    return [line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")]


Start = Callable[..., FakeRanks]


@pytest.fixture
def ranks_saying(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Have the processes of ranks say these messages, one list for each."""

    def start(*said: Sequence[Message], dump: str = "") -> FakeRanks:
        fake = FakeRanks(said, dump)
        monkeypatch.setattr(torch.multiprocessing, "get_context", lambda kind: fake)
        monkeypatch.setattr(processes, "TRACEBACK_S", 0)
        return fake

    return start
