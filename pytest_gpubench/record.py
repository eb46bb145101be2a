"""Record the calls of torch's operators that a program makes: `python -m pytest_gpubench.record model.py`."""

import argparse
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.results.files import UNREADABLE, write_file
from pytest_gpubench.settings.parsers import file_path
from pytest_gpubench.units import count

RECORDING_VERSION = 1
MOST_OPERATORS = 10
"""The operators that the command names, the most frequent first."""


class RecordedCall(msgspec.Struct, frozen=True):
    """Calls of one operator with tensors of the same shapes and dtypes."""

    op: str
    """Its name in torch, with the overload: `aten.native_layer_norm.default`."""
    shapes: tuple[tuple[int, ...], ...]
    """The shapes of the tensors among its arguments, in their order."""
    dtypes: tuple[str, ...]
    """Their dtypes: `float32`."""
    calls: Annotated[int, msgspec.Meta(ge=1)]
    """The number of calls with them."""


class Recording(msgspec.Struct, frozen=True):
    """The contents of a file of recorded calls, the most frequent first."""

    calls: tuple[RecordedCall, ...]
    version: int = RECORDING_VERSION


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the calls of operators while it is entered, but those with nested tensors, which have no shape."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...]]] = Counter()

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        """Count the call and make it."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not any(each.is_nested for each in tensors):
            shapes = tuple(tuple(map(int, each.shape)) for each in tensors)
            self.counts[str(func), shapes, tuple(str(each.dtype).removeprefix("torch.") for each in tensors)] += 1
        return func(*args, **(kwargs or {}))

    @property
    def recording(self) -> Recording:
        """The calls counted so far."""
        return Recording(tuple(RecordedCall(*call, calls) for call, calls in self.counts.most_common()))


@contextmanager
def recording(path: Path | str) -> Iterator[Recorder]:
    """Record the calls of operators in this thread, and write them to a file; an error within leaves it as it was."""
    target = Path(path).absolute()  # a program may change the working directory
    with Recorder() as recorder:
        yield recorder
    write_file(msgspec.json.format(msgspec.json.encode(recorder.recording), indent=1) + b"\n", target)


def read(path: Path | str, op: str | None = None) -> tuple[RecordedCall, ...]:
    """Return the recorded calls of a file, the most frequent first; of one operator, if it is given.

    op: the name with or without its overload. Raises BadFile for a file that cannot be read, BadRequest for an operator
    that is not in it.
    """
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=Recording)
    except (OSError, *UNREADABLE) as error:
        why = getattr(error, "strerror", None) or error
        raise BadFile(
            f"{path} is no file of recorded calls ({why}): python -m pytest_gpubench.record writes one"
        ) from None
    if found.version != RECORDING_VERSION:
        raise BadFile(
            f"{path} has version {found.version} of recorded calls, not {RECORDING_VERSION}: record them again"
        )
    calls = [each for each in found.calls if op is None or each.op == op or each.op.startswith(f"{op}.")]
    if not calls:
        names = list(dict.fromkeys(each.op for each in found.calls))
        near = get_close_matches(op or "", names, 3) or names[:3]
        others = f" and {count(len(names) - len(near), 'other')}" if len(names) > len(near) else ""
        instead = f" of {op!r}, but of {', '.join(near)}{others}" if op else ": record a program that calls torch"
        raise BadRequest(f"{path} holds no calls{instead}")
    return tuple(sorted(calls, key=lambda each: -each.calls))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program, and write the calls of operators that it made."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_gpubench.record",
        description="Run a program, and record the shapes, dtypes and number of the calls of torch's operators.",
    )
    parser.add_argument("-o", "--output", default="shapes.json", help="the file to write (shapes.json)")
    parser.add_argument("program", help="the Python file to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    chosen = parser.parse_args(arguments)
    if not Path(chosen.program).is_file():
        parser.error(f"{chosen.program} is no file: give the Python file of a program")
    try:
        file_path(chosen.output)
    except ValueError as error:
        parser.error(f"--output={chosen.output}: {error}")
    with recording(chosen.output) as recorder:
        _run(chosen.program, chosen.arguments)
    totals: Counter[str] = Counter()
    for each in recorder.recording.calls:
        totals[each.op] += each.calls
    print(f"{chosen.output}: {count(totals.total(), 'call')} of {count(len(totals), 'operator')}")
    for name, calls in totals.most_common(MOST_OPERATORS):
        print(f"{calls:>8} {name}")
    return 0


def _run(program: str, arguments: Sequence[str]) -> None:
    """Run a program as its own command would; raise SystemExit if it ends with a status other than 0."""
    sys.argv[:] = [program, *arguments]
    sys.path.insert(0, str(Path(program).resolve().parent))
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise


if __name__ == "__main__":
    raise SystemExit(main())
