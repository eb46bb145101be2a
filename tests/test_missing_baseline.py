"""What becomes of a test that there is nothing to compare with."""

import pytest

from pytest_gpubench import Measurement, NoBaseline
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.public_call import enforce_missing
from pytest_gpubench.results.counterpart import Missing
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.settings import Settings
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.regression import Change
from tests.results.measured import clocked, unmeasured

MEASURED = Measurement(timing=clocked("softmax", 10.0))
IDLE = Measurement(timing=unmeasured("softmax", "it ran in Triton's interpreter, whose time means nothing"))
NEW = Missing("no test", "test_it is not in the baseline")
ELSEWHERE = Missing("host", "no run on the CPU is in the baseline")


def warnings(settings: Settings, *missing: Missing, item: Measurement = MEASURED) -> list[str]:
    """Return what is noted of what is missing."""
    test = CurrentTest("test_it", settings, Limits())
    changes = [Change("test_it", "softmax", Outcome.NOT_JUDGED, "", new=item, missing=each) for each in missing]
    enforce_missing(test, settings, cpu_device(), changes)
    return test.warnings


@pytest.mark.parametrize("missing", [NEW, ELSEWHERE])
@pytest.mark.parametrize("policy", ["fail", "warn", "ignore"])
@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_what_is_missing_fails_a_test_only_on_a_device_that_was_asked_for(
    missing: Missing, policy: str, device: str
) -> None:
    word = "error" if policy == "fail" and missing is ELSEWHERE else policy
    option = "host_mismatch" if missing is ELSEWHERE else "missing_baseline"
    settings = Settings(device=device, **{option: word})  # type: ignore[arg-type] # one of its words
    if policy == "fail" and device == "cpu":
        with pytest.raises(NoBaseline, match=f"^{missing.sentence} .--gpu-bench-{option.replace('_', '-')}=warn goes"):
            warnings(settings, missing)
        return
    said = {"fail": 1, "warn": 1, "ignore": 0}[policy]
    found = warnings(settings, missing, missing)
    assert len(found) == said
    assert all(text.startswith(missing.sentence) for text in found)
    assert all(("is not enforced on a CPU that nobody asked for" in text) is (policy == "fail") for text in found)


def test_where_nothing_is_enforced_what_was_not_measured_misses_nothing() -> None:
    """The reason why it was not measured is said already."""
    for settings in (Settings(), Settings(missing_baseline="fail"), Settings(missing_baseline="warn")):
        assert warnings(settings, NEW, ELSEWHERE, item=IDLE) == []
    with pytest.raises(NoBaseline):
        warnings(Settings(device="cpu", missing_baseline="fail"), NEW, item=IDLE)
