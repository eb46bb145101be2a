"""Calls that a program really made, as examples."""

from pathlib import Path

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from hypothesis.strategies import SearchStrategy

from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.record import RecordedCall, read

__tracebackhide__ = True


def recorded(path: Path | str, op: str | None = None) -> SearchStrategy[RecordedCall]:
    """Draw a call that `python -m pytest_gpubench.record` has written to a file, with its shapes, dtypes and number.

    op: the operator, such as "aten.native_layer_norm"; None is any. Shrinks towards the most frequent call. Raises
    InvalidArgument for a file that cannot be read, and an operator that is not in it.
    """
    try:
        return st.sampled_from(read(path, op))
    except (BadFile, BadRequest) as error:
        raise InvalidArgument(f"recorded({str(path)!r}): {error}") from None
