"""Errors that are raised again: as hypothesis knows them, and without what their frames hold."""

import traceback

from pytest_gpubench.errors import causes_of


class RememberedError:
    """An error as it was first raised, which is how hypothesis tells failures apart."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.traceback = error.__traceback__
        self.origin = origin_of(error)

    def again(self) -> Exception:
        """Return the error to raise: each raise lengthens its traceback, so it gets its first one back."""
        return self.error.with_traceback(self.traceback)


def origin_of(error: Exception) -> tuple[object, ...]:
    """Return the kind of an error, and the file and line that raised it."""
    last = list(traceback.walk_tb(error.__traceback__))[-1:]
    return (type(error), *((frame.f_code.co_filename, line) for frame, line in last))


def clear_frames(error: BaseException) -> None:
    """Drop what the frames of an error and of its causes hold."""
    for each in causes_of(error):
        traceback.clear_frames(each.__traceback__)
