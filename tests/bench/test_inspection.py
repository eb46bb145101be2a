"""When the resources of kernels are asked for: by a limit on them, and where a run is kept."""

from typing import Any

import msgspec
import pytest

from pytest_gpubench import Measurement, Timing
from pytest_gpubench.bench import work
from pytest_gpubench.bench.work import Inspection
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import Call, call_of
from pytest_gpubench.verdict.limits import Limits
from tests.results.measured import kernel, resources, timing_of

TAKEN = timing_of((5.0,), kernels=(kernel("a"),))
KERNELS = (kernel("a", resources=(resources(registers=72),)),)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Find 72 registers in every call; the list says whether the reason was to be looked for, where there are none."""
    found: list[bool] = []

    def find(timing: Timing, call: Call, device: Device, explained: bool) -> Timing:
        found.append(explained)
        return msgspec.structs.replace(timing, kernels=KERNELS)

    monkeypatch.setattr(work, "with_resources", find)
    return found


def concluded(limits: Limits, **settings: Any) -> Measurement:
    inspection = Inspection(Settings(**settings), cpu_device(), limits)
    return inspection.conclude(Measurement(timing=TAKEN), call_of("softmax", lambda: None))


@pytest.mark.parametrize("asks", ["auto", "limits"])
def test_a_limit_asks_and_is_judged_by_them(asked: list[bool], asks: str) -> None:
    found = concluded(Limits(max_registers=64), resources=asks)
    assert asked == [True]
    assert found.timing.kernels == KERNELS
    assert [each.outcome for each in found.verdicts] == [Outcome.FAIL]


KEEPING: list[dict[str, Any]] = [
    {"save": "main"},
    {"autosave": True},
    {"compare": "main"},
    {"json": "run.json"},
    {"html": "page.html"},
]


@pytest.mark.parametrize("settings", KEEPING, ids=lambda settings: next(iter(settings)))
def test_a_run_that_is_kept_has_them(asked: list[bool], settings: dict[str, Any]) -> None:
    """The reason why a call has none is not worth another call there."""
    assert concluded(Limits(max_kernels=1), **settings).timing.kernels == KERNELS
    assert asked == [False]


@pytest.mark.parametrize(
    ("limits", "settings"),
    [
        (Limits(max_kernels=1), {}),
        (Limits(max_registers=64), {"timer": "scripted"}),
        (Limits(), {"timer": "scripted", "save": "main"}),
        (Limits(max_kernels=1), {"save": "main", "html": "page.html", "resources": "limits"}),
    ],
)
def test_no_other_run_asks(asked: list[bool], limits: Limits, settings: dict[str, Any]) -> None:
    assert concluded(limits, **settings).timing == TAKEN
    assert asked == []
