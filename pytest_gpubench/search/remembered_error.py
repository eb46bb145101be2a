"""Errors that are raised again: as hypothesis knows them, and without what their frames hold."""

import traceback

__tracebackhide__ = True


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
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return (type(error), *((last.tb_frame.f_code.co_filename, last.tb_lineno) if last is not None else ()))


def clear_frames(error: BaseException | None) -> None:
    """Drop what the frames of an error and of its causes hold."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
