"""The clocks that processes left locked when they died, given back by those that come later."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.errors import BadFile, GpuBenchError
from pytest_gpubench.gpu.clocks.lock import ENDS, give_back
from pytest_gpubench.gpu.clocks.record import (
    SUFFIX,
    Record,
    boot_id,
    describe_abandoned,
    describe_living,
    guarded,
    read_record,
)
from pytest_gpubench.gpu.nvml import Nvml

Opener = Callable[[str], Nvml]


@dataclass(frozen=True)
class Restored:
    """What became of the records of locked clocks: a sentence each, and how many had to stay as they are."""

    sentences: tuple[str, ...]
    left: int


def restore_abandoned(folder: Path, open_nvml: Opener = Nvml.open) -> list[str]:
    """Give back the clocks that processes left locked when they died; return a sentence for each GPU.

    Living owners are not mentioned. Without records nothing is opened.
    """
    return [outcome.sentence for outcome in _restore(folder, open_nvml) if not outcome.in_use]


def restore_all(folder: Path, open_nvml: Opener = Nvml.open) -> Restored:
    """Do as `restore_abandoned`, and say which clocks stay locked because their owners live."""
    outcomes = list(_restore(folder, open_nvml))
    return Restored(tuple(outcome.sentence for outcome in outcomes), sum(outcome.left for outcome in outcomes))


@dataclass(frozen=True)
class _Outcome:
    sentence: str
    left: bool = False
    in_use: bool = False


def _restore(folder: Path, open_nvml: Opener) -> Iterator[_Outcome]:
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        uuid = path.name.removesuffix(SUFFIX)
        try:
            with ENDS.postponed(), guarded(folder, uuid):
                outcome = _restore_one(path, uuid, open_nvml)
        except GpuBenchError as error:
            outcome = _Outcome(f"the clocks of {uuid} may be locked, and are not given back: {error}", left=True)
        if outcome is not None:
            yield outcome


def _restore_one(path: Path, uuid: str, open_nvml: Opener) -> _Outcome | None:
    found: Record | None = None
    try:
        found = read_record(path)
    except BadFile as error:
        sentence = str(error)
    else:
        if found is None:
            return None  # its owner has just given them back
        if found.living:
            return _Outcome(f"{describe_living(found)}: they are left alone", left=True, in_use=True)
        sentence = describe_abandoned(found)
    try:
        nvml = open_nvml(uuid)
    except RuntimeError as error:
        if found and all(owner.boot != boot_id() for owner in found.owners):
            return None  # another host's, which has the folder, too
        return _Outcome(f"{sentence}, and are not given back: {error}", left=True)
    if problem := give_back(nvml, uuid, path):
        return _Outcome(f"{sentence}; {problem}", left=True)
    return _Outcome(f"{sentence}; they are given back")
