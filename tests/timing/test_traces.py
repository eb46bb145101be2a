"""Traces: the events that are kept; a missing trace fails no test."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing import traces
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import make_arguments, make_call
from pytest_gpubench.timing.traces import take_trace

Event = dict[str, Any]


def call_of(function: Callable[..., object], setup: Callable[[], object] | None = None) -> Call:
    return make_call(function, make_arguments(setup=setup), label="f")


def events_in(path: Path | None) -> list[Event]:
    assert path is not None
    found: list[Event] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def names_in(path: Path) -> list[str]:
    return [event["name"] for event in events_in(path)]


# taken on the CPU


@pytest.mark.parametrize("reps", [1, 3])
def test_a_trace_holds_each_call_in_a_span_and_nothing_between_them(tmp_path: Path, reps: int) -> None:
    made: list[int] = []

    def setup() -> tuple[torch.Tensor]:
        made.append(1)
        return (torch.ones(8).cumsum(0),)

    path = tmp_path / "deep" / "t.json.gz"
    assert take_trace(call_of(lambda x: x.sin(), setup), cpu_device(), path, reps) == path
    names = names_in(path)
    assert [name for name in names if name.startswith("f (")] == [
        f"f (call {each} of {reps})" for each in range(1, reps + 1)
    ]
    assert names.count("aten::sin") == reps == len(made)
    assert "aten::cumsum" not in names
    assert "aten::sum" not in names  # the flush
    assert [entry.name for entry in path.parent.iterdir()] == ["t.json.gz"]


def test_a_trace_replaces_an_older_one_and_can_be_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(b"old")
    assert take_trace(call_of(lambda: torch.ones(2).sin()), cpu_device(), path, cache="hot") == path
    assert "aten::sin" in names_in(path)
    assert path.stat().st_mode & 0o444 == 0o444  # CI's upload may run as another user
    text = gzip.decompress(path.read_bytes()).decode()
    assert not [word for word in ("Input Dims", "trace.json") if word in text]  # shapes, and a path that is gone


# what goes wrong


def test_a_call_that_fails_is_a_warning(tmp_path: Path) -> None:
    path, call = tmp_path / "t.json.gz", call_of(Mock(side_effect=ValueError("it broke")))
    with pytest.warns(UserWarning, match=r"no trace of 'f' \(ValueError: it broke\): its measurement is not affected"):
        assert take_trace(call, cpu_device(), path) is None
    assert not path.exists()
    assert take_trace(call_of(lambda: torch.ones(2)), cpu_device(), path) == path  # the profiler was left off


def test_a_profiler_that_is_on_is_left_alone(tmp_path: Path) -> None:
    said: list[str] = []
    with torch.autograd.profiler.profile(use_kineto=True) as outer:
        assert take_trace(call_of(lambda: None), cpu_device(), tmp_path / "t.json.gz", warn=said.append) is None
        torch.ones(2).cos()
    assert "a torch profiler is already on" in said[0]
    assert any(event.name() == "aten::cos" for event in outer.kineto_results.events())


def test_what_cannot_be_written_or_read_is_a_warning_and_an_interrupt_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def take(path: Path = tmp_path / "t.json.gz") -> Path | None:
        return take_trace(call_of(lambda: None), cpu_device(), path, reps=2, warn=said.append)

    (tmp_path / "file").write_text("")
    assert take(tmp_path / "file" / "t.json.gz") is None
    for recorded in ("{ not JSON", json.dumps({"traceEvents": [SPAN]})):
        monkeypatch.setattr(traces, "record", lambda *others, recorded=recorded: recorded)
        assert take() is None
    monkeypatch.setattr(traces, "record", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        take()
    words = ("there is no trace of 'f'", "JSONDecodeError", "no record of 'f (call 1 of 2)'")
    assert [word in text for word, text in zip(words, said, strict=True)] == [True] * 3


# what is kept, of a GPU's records made by hand

NAME = "f (call 1 of 1)"
SPAN = {"ph": "X", "cat": "user_annotation", "name": NAME, "ts": 100.0, "dur": 50.0}


def event(category: str, ts: float, correlation: int | None = None, name: str = "add") -> Event:
    args = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": 1000.0, "args": args}


Kept = Callable[..., list[Event]]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kept:
    """Return what takes a trace of one call in which these events are recorded, and returns those of the file."""

    def take(*events: Event) -> list[Event]:
        recorded = {"traceEvents": [SPAN, *events], "schemaVersion": 1, "traceName": "/tmp/x"}
        monkeypatch.setattr(traces, "record", lambda *others: json.dumps(recorded))
        path = take_trace(call_of(lambda: None), cpu_device(), tmp_path / "t.json.gz", reps=1)
        assert path is not None
        found = json.loads(gzip.decompress(path.read_bytes()))
        assert found["schemaVersion"] == 1
        assert "traceName" not in found
        rest: list[Event] = found["traceEvents"]
        assert rest[0] == SPAN
        return rest[1:]

    return take


@pytest.mark.parametrize(("ts", "stays"), [(99.9, False), (100.0, True), (150.0, True), (150.1, False)])
def test_what_begins_in_a_span_is_kept(kept: Kept, ts: float, stays: bool) -> None:
    begun = event("cpu_op", ts)
    assert kept(begun) == [begun] * stays


@pytest.mark.parametrize(("launched", "stays"), [(90.0, False), (110.0, True)])
@pytest.mark.parametrize("ts", [95.0, 120.0, 155.0])
def test_a_kernel_belongs_to_the_span_that_launched_it_whatever_its_clock_says(
    kept: Kept, launched: float, stays: bool, ts: float
) -> None:
    arrow = {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 7, "ts": ts}
    events = [event("cuda_runtime", launched, 7), event("kernel", ts, 7), arrow]
    assert kept(*events) == events * stays
    events = [event("kernel", ts, 8), event("kernel", ts)]
    assert kept(*events) == events * (ts == 120.0), "without a launch its clock tells"


def test_names_of_processes_and_of_the_span_on_the_gpu_are_kept(kept: Kept) -> None:
    named = {"ph": "M", "name": "process_name", "pid": 1, "ts": 0.0}
    on_gpu, of_others = (event("gpu_user_annotation", 90.0, name=name) for name in (NAME, "of somebody"))
    assert kept(named, on_gpu, of_others) == [named, on_gpu]
