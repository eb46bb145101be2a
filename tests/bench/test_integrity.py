"""What makes a number invalid: a cache that is kept, replaced clocks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pytest_gpubench import InvalidResult
from pytest_gpubench.bench import integrity
from pytest_gpubench.bench.integrity import auditing
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.cache import Producer
from tests.bench.calls import COLD, CPU, GPU

# the cache that no flush reaches


@pytest.mark.parametrize(
    ("device", "settings", "kept_free"),
    [
        (GPU, COLD, True),
        (GPU, replace(COLD, cache="dirty"), True),
        (GPU, replace(COLD, cache="hot"), False),
        (GPU, replace(COLD, cache=Producer(print)), True),
        (GPU, replace(COLD, timer="scripted"), False),
        (CPU, COLD, False),
    ],
)
def test_nothing_persists_where_a_cache_is_to_be_cold(
    monkeypatch: pytest.MonkeyPatch, device: Device, settings: Settings, kept_free: bool
) -> None:
    done: list[str] = []

    @contextmanager
    def nothing_persists() -> Iterator[None]:
        done.append("begin")
        yield
        done.append("end")

    monkeypatch.setattr(integrity, "nothing_persists", nothing_persists)
    monkeypatch.setattr(integrity, "replaced", lambda: None)
    with auditing(settings, device):
        done.append("measured")
    assert done == (["begin", "measured", "end"] if kept_free else ["measured"])


# clocks, before and after


@pytest.mark.parametrize("found", [["time.perf_counter"], [None, "torch.cuda.synchronize"]])
def test_clocks_are_looked_at_before_and_after(monkeypatch: pytest.MonkeyPatch, found: list[str | None]) -> None:
    answers, measured = iter(found), []
    monkeypatch.setattr(integrity, "replaced", lambda: next(answers))
    with (
        pytest.raises(
            InvalidResult, match=rf"^{found[-1]} was replaced, and measuring relies on it: .*; undo it before"
        ),
        auditing(COLD, CPU),
    ):
        measured.append(1)
    assert measured == [1] * (len(found) - 1)


def test_a_script_needs_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced clock raises nothing."""
    monkeypatch.setattr(integrity, "replaced", lambda: "time.perf_counter")
    with auditing(replace(COLD, timer="scripted"), CPU):
        pass


def test_an_error_of_the_measured_function_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([None, "time.perf_counter"])
    monkeypatch.setattr(integrity, "replaced", lambda: next(answers))
    with pytest.raises(KeyError), auditing(COLD, CPU):
        raise KeyError
