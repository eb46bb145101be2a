"""What makes a number invalid: cache that is set aside, replaced clocks."""

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

# cache that is set aside


@pytest.mark.parametrize(
    ("device", "settings", "is_watched"),
    [
        (GPU, COLD, True),
        (GPU, replace(COLD, cache="dirty"), True),
        (GPU, replace(COLD, cache="hot"), False),
        (GPU, replace(COLD, cache=Producer(print)), True),
        (GPU, replace(COLD, timer="scripted"), False),
        (GPU, replace(COLD, disable=True), False),
        (CPU, COLD, False),
    ],
)
def test_cache_that_is_set_aside_is_watched_where_it_matters(
    monkeypatch: pytest.MonkeyPatch, device: Device, settings: Settings, is_watched: bool
) -> None:
    done: list[str] = []

    @contextmanager
    def set_aside_as_before(cache_bytes: int) -> Iterator[None]:
        assert cache_bytes == device.cache_bytes
        done.append("begin")
        yield
        done.append("end")

    monkeypatch.setattr(integrity, "set_aside_as_before", set_aside_as_before)
    monkeypatch.setattr(integrity, "replaced", lambda: None)
    with auditing(settings, device):
        done.append("measured")
    assert done == (["begin", "measured", "end"] if is_watched else ["measured"])


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


def test_a_replaced_clock_is_none_of_a_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "replaced", lambda: "time.perf_counter")
    with auditing(replace(COLD, timer="scripted"), CPU):
        pass


def test_an_error_of_the_measured_function_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([None, "time.perf_counter"])
    monkeypatch.setattr(integrity, "replaced", lambda: next(answers))
    with pytest.raises(KeyError), auditing(COLD, CPU):
        raise KeyError
