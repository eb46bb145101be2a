"""Errors of examples: of full memory, and what they are known by."""

import torch


def full() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def caused_by(error: Exception, outer: Exception) -> Exception:
    outer.__cause__ = error
    return outer


def with_context(error: Exception, handled: Exception) -> Exception:
    """Return an error as it is raised while the other one is handled."""
    error.__context__ = handled
    return error


def notes(error: BaseException | None) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def depth(error: BaseException) -> int:
    """Return how long an error's traceback is."""
    found, trace = 0, error.__traceback__
    while trace is not None:
        found, trace = found + 1, trace.tb_next
    return found
