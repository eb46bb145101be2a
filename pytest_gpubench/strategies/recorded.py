"""Calls that a program really made, as examples."""

from bisect import bisect
from itertools import accumulate
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from hypothesis.strategies import SearchStrategy

from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.record import RecordedCall, read


def recorded(path: Path | str, op: str | None = None) -> SearchStrategy[RecordedCall]:
    """Draw a call that `python -m pytest_gpubench.record` has written to a file, with its shapes, dtypes and number.

    op: the operator, such as "aten.native_layer_norm"; None is any. A call is drawn about as often as it was made.
    Shrinks towards the most frequent call. Raises InvalidArgument for a file that cannot be read, and an operator that
    is not in it.
    """
    try:
        calls = read(path, op)
        ends = list(accumulate(each.calls for each in calls))
        return st.integers(0, ends[-1] - 1).map(lambda nth: calls[bisect(ends, nth)])
    except (BadFile, BadRequest) as error:
        raise InvalidArgument(f"recorded({str(path)!r}): {error}") from None
