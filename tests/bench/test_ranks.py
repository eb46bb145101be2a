"""What cannot be asked of several GPUs is refused before any process is started."""

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.bench.ranks import check_ranks
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.verdict.limits import Limits


def test_the_cpu_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    check_ranks(Limits(), Settings(), cpu_device(), 24, gpus=1)
    with pytest.raises(BadRequest) as caught:
        check_ranks(Limits(), Settings(), cpu_device(), 25, gpus=1)
    expected = "ranks(world_size=25) would start as many processes on the CPU: ask for at most 24 here"
    assert str(caught.value) == expected


def test_no_producer_runs_in_processes_of_their_own() -> None:
    with pytest.raises(BadRequest) as caught:
        check_ranks(Limits(), Settings(cache=Producer(print)), cpu_device(), 2, gpus=2)
    assert str(caught.value) == (
        "ranks() cannot run producer print before each rep: it is called without arguments, and each process has "
        "tensors of its own; give cache='cold' or 'dirty' or 'hot'"
    )
