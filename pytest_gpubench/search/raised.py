"""Errors that are raised again: as hypothesis knows them, and without what their frames hold."""

import traceback

__tracebackhide__ = True


class Raised:
    """An error as it was raised first, which is what hypothesis tells failures apart by."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.traceback = error.__traceback__
        self.origin = origin(error)

    def again(self) -> Exception:
        """Return it to be raised, without what its traceback has grown by each time that it was raised."""
        return self.error.with_traceback(self.traceback)


def origin(error: Exception) -> tuple[object, ...]:
    """Return what hypothesis tells failures apart by: the kind of an error, and where it was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return (type(error), *((last.tb_frame.f_code.co_filename, last.tb_lineno) if last is not None else ()))


def clear(error: BaseException | None) -> None:
    """Let go of what the frames of an error, and of those behind it, hold."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
