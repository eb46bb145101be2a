"""The record of a test, as a worker sends it to the controller, and of a run."""

from typing import Any

import msgspec

from pytest_gpubench.results.model.device import DeviceFacts, Peaks
from pytest_gpubench.results.model.measurement import Measurement
from pytest_gpubench.results.model.plain import plain
from pytest_gpubench.results.phases import Phases


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold which GPUs a test had for itself, and when, in seconds since the epoch by its host's clock."""

    gpus: tuple[str, ...]
    """The UUIDs, the one that was measured on first."""
    began_s: float
    ended_s: float
    """When its results were put together: what was measured was measured before."""
    waited_s: float = 0.0


class TestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what one test measured; it travels from a worker to the controller as JSON."""

    __test__ = False  # pytest collects classes named Test*

    nodeid: str
    device: DeviceFacts
    worker: str = "master"
    params: dict[str, str] = {}
    measurements: tuple[Measurement, ...] = ()
    phases: tuple[Phases, ...] = ()
    extra_info: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    turn: Turn | None = None
    """None where the test took no turn at a GPU: on the CPU, or where nothing is measured."""
    search: str = ""
    """The extent of a search by hypothesis: `42 examples, 17 compilations (31 s)`; empty for any other test."""
    peaks: Peaks | None = None
    """The GPU's peaks; None if the test did not ask for them."""
    source: str = ""
    """A hash of the test function's syntax tree, which comments and line breaks do not change; empty: not known."""

    @property
    def key(self) -> tuple[str, str]:
        """Its node id and the name of its device: what tells the tests of a run apart."""
        return self.nodeid, self.device.name


class CommitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the commit that was measured, with pytest-benchmark's names; None stands for what is not known."""

    id: str | None = None
    time: str | None = None
    """When it was committed, ISO 8601."""
    author_time: str | None = None
    dirty: bool | None = None
    """True if files differed from the commit."""
    project: str | None = None
    branch: str | None = None
    error: str | None = None
    """Why nothing is known; None where something is."""


class SavedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one run of pytest measured, and where."""

    records: tuple[TestRecord, ...]
    """The latest session of each test."""
    earlier: tuple[TestRecord, ...] = ()
    """The earlier sessions of the same tests, each a process of its own, oldest first."""
    datetime: str
    """When the run ended, ISO 8601 with its offset from UTC."""
    name: str = ""
    """The name that it was saved under; empty if it was given none."""
    version: str = ""
    """The version of pytest-gpubench."""
    commit_info: CommitInfo = CommitInfo()
    machine_info: dict[str, Any] = {}
    """Host, Python, torch, Triton and CPU, with pytest-benchmark's names where it has any."""
    settings: dict[str, str] = {}
    """The options that were not at their defaults, by name."""
    left_out: tuple[str, ...] = ()
    """The tests that only older runs of the same name have, as this one was not to run them or did not measure them."""


def encode(record: TestRecord) -> str:
    """Write a record as JSON; what JSON has no form for in `extra_info` is written as its number or its text."""
    text = msgspec.json.encode(msgspec.structs.replace(record, extra_info=plain(record.extra_info)))
    return text.decode()


def decode(text: str) -> TestRecord:
    """Read a record that `encode` wrote."""
    return msgspec.json.decode(text, type=TestRecord)
