"""What untimed calls show: resources and waits, where a limit asks for them and where a run is kept."""

import itertools
from typing import Any

import msgspec
import pytest
import torch

from pytest_gpubench import Measurement, ProfilerBusy, Timing
from pytest_gpubench.bench import request
from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.request import MeasureRequest, with_work
from pytest_gpubench.bench.work import Work
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import Call, call_of
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.verdict.limits import Limits
from tests.bench.calls import agreement_of, double
from tests.results.measured import kernel, resources, timing_of

TAKEN = timing_of((5.0,), kernels=(kernel("a"),))
KERNELS = (kernel("a", resources=(resources(registers=72),)),)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Find 72 registers in every call; the list has the calls."""
    found: list[str] = []

    def find(timing: Timing, call: Call, device: Device) -> Timing:
        found.append(call.label)
        return msgspec.structs.replace(timing, kernels=KERNELS)

    monkeypatch.setattr(request, "with_resources", find)
    return found


def concluded(limits: Limits, **settings: Any) -> Measurement:
    asked_for = MeasureRequest(Settings(**settings), cpu_device(), limits, (), {})
    return asked_for.conclude(Measurement(timing=TAKEN), call_of("softmax", lambda: None))


@pytest.mark.parametrize("asks", ["auto", "limits"])
def test_a_limit_asks_and_is_judged_by_them(asked: list[str], asks: str) -> None:
    found = concluded(Limits(max_registers=64), resources=asks)
    assert (asked, found.timing.kernels) == (["softmax"], KERNELS)
    assert [each.outcome for each in found.verdicts] == [Outcome.FAIL]


@pytest.mark.parametrize(
    ("limits", "settings", "asks"),
    [
        (Limits(max_kernels=1), {"save": "main"}, True),
        (Limits(max_kernels=1), {"autosave": True}, True),
        (Limits(max_kernels=1), {"compare": "main"}, True),
        (Limits(max_kernels=1), {"json": "run.json"}, True),
        (Limits(max_kernels=1), {"html": "page.html"}, True),
        (Limits(max_kernels=1), {}, False),
        (Limits(max_registers=64), {"timer": "scripted"}, False),
        (Limits(), {"timer": "scripted", "save": "main"}, False),
        (Limits(max_kernels=1), {"save": "main", "html": "page.html", "resources": "limits"}, False),
    ],
)
def test_a_run_that_is_kept_has_them_and_no_other(
    asked: list[str], limits: Limits, settings: dict[str, Any], asks: bool
) -> None:
    assert concluded(limits, **settings).timing.kernels == (KERNELS if asks else TAKEN.kernels)
    assert asked == ["softmax"] * asks


@pytest.mark.parametrize(
    ("moved", "share", "read"), [(100, 0.25, 25), (100, 0.0, 0), (100, None, None), (None, None, None)]
)
def test_what_has_to_be_read_is_a_part_of_what_is_moved(
    moved: int | None, share: float | None, read: int | None
) -> None:
    assert with_work(TAKEN, Work(moved, share)).read_bytes == read


@pytest.mark.parametrize(("step", "outcome"), [(1, Outcome.FAIL), (0, Outcome.PASS)])
def test_outputs_that_have_to_repeat_are_compared(step: int, outcome: Outcome) -> None:
    numbers = itertools.count(0, step)
    call = call_of("f", lambda: torch.tensor(float(next(numbers))))
    found = MeasureRequest(Settings(), cpu_device(), Limits(deterministic=True), (), {}).conclude(
        Measurement(timing=TAKEN), call
    )
    assert [each.outcome for each in found.verdicts] == [outcome]


# waits, memory and launches

OBSERVED = Observed(compilations=1)


@pytest.fixture
def observing(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Observe the same in every call; raises the first error of the list instead."""
    errors: list[Exception] = []

    def find(call: Call, device: Device) -> Observed:
        if errors:
            raise errors[0]
        return OBSERVED

    monkeypatch.setattr(request, "observe", find)
    return errors


def observed(timing: Timing, limits: Limits, **settings: Any) -> Observed | None:
    asked_for = MeasureRequest(Settings(**settings), cpu_device(), limits, (), {})
    return asked_for.conclude(Measurement(timing=timing), call_of("softmax", lambda: None)).observed


@pytest.mark.parametrize(
    ("timing", "limits", "settings", "found"),
    [
        (TAKEN, Limits(max_memory=1), {}, True),
        (TAKEN, Limits(), {"save": "main"}, False),
        (timing_of((5.0,), timer="wall"), Limits(), {"save": "main"}, True),
        (timing_of((5.0,), timer="wall"), Limits(), {}, False),
        (timing_of((5.0,), timer="wall"), Limits(), {"save": "main", "resources": "limits"}, False),
        (timing_of((5.0,), timer="scripted"), Limits(max_memory=1), {"save": "main", "timer": "scripted"}, False),
    ],
)
@pytest.mark.usefixtures("observing")
def test_what_is_part_of_a_time_without_kernels_is_kept(
    timing: Timing, limits: Limits, settings: dict[str, Any], found: bool
) -> None:
    assert observed(timing, limits, **settings) == (OBSERVED if found else None)


def test_a_profiler_of_the_tests_own_leaves_out_reasons_but_no_verdict(observing: list[Exception]) -> None:
    observing.append(ProfilerBusy("busy"))
    assert observed(timing_of((5.0,), timer="wall"), Limits(), save="main") is None
    with pytest.raises(ProfilerBusy):
        observed(timing_of((5.0,), timer="wall"), Limits(max_memory=1))


def test_all_candidates_are_judged_by_the_same_peaks_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each measurement of a peak that failed is tried again."""
    asked: list[object] = []
    monkeypatch.setattr(request, "measured_peaks", lambda *given: asked.append(given))
    agreement, settings = agreement_of(double, torch.ones(4)), Settings(device="cpu", timer="wall", reps=2, warmup=1)
    calls = {name: make_call(double, agreement.arguments, label=name) for name in ("reference", "a", "b")}
    given, limits = (agreement.arguments.args, None), Limits(min_gbps=1e-9)
    found = CompareRequest(settings, cpu_device(), limits, given, calls, agreement).measure(lambda text: None)
    for name, each in found.result.candidates.items():
        assert each.verdicts[0].sentence.startswith(f"{name} cannot be judged")
    assert len(asked) == 1
