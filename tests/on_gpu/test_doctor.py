"""The doctor on a GPU: it says all it promises, and a kernel compared with itself is itself."""

import json
import re
from pathlib import Path

import pytest

from pytest_gpubench.cli import main, noise
from pytest_gpubench.gpu.datasheets import datasheet_of
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.report.facts import device_facts
from pytest_gpubench.structure.ncu import NeverCounted, find_ncu
from pytest_gpubench.timing.peaks import copy_bandwidth


def test_the_whole_visit(capsys: pytest.CaptureFixture[str]) -> None:
    """Clocks, say, have a line where this GPU's NVML knows them."""
    known = device_facts(find_device("cuda").facts)
    assert {"UUID", "driver"} <= known.keys()
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    print(out)
    for name in ("name", *known, "profiler (CUPTI)", "copy bandwidth, cold"):
        assert re.search(rf"^{re.escape(name)}: .+", out, re.MULTILINE), name


def test_quick_is_only_the_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--quick"]) == 0
    assert "copy bandwidth" not in capsys.readouterr().out


@pytest.mark.slow
def test_how_small_a_slowdown_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 % is seen in calls of 20 us and more; two of the five processes suffice to show it."""
    monkeypatch.setattr(noise, "NOISE_PROCESSES", 2)
    path = tmp_path / "noise.json"
    assert main(["doctor", "--noise", "--json", str(path)]) == 0
    print(capsys.readouterr().out)
    calls = json.loads(path.read_text())["calls"]
    assert len(calls) == 4
    for call, aimed_us in zip(calls, (2, 20, 200, 2000), strict=True):
        assert aimed_us / 3 < call["median_us"] < 3 * aimed_us
        assert len(call["medians_us"]) == 2
        assert 0 < call["slowdown_seen"] < (0.2 if aimed_us < 10 else 0.03)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_how_well_counters_repeat(capsys: pytest.CaptureFixture[str]) -> None:
    """Instructions are the same in most calls, and differ by less than a limit of 0.1 % in all."""
    try:
        find_ncu()
    except NeverCounted as error:
        pytest.skip(str(error))
    assert main(["doctor", "--counters"]) == 0
    out = capsys.readouterr().out
    print(out)
    same, calls, spread = re.search(r"^instructions +(\d+) of (\d+) calls +([\d.]+)", out, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert int(calls) == 12
    assert int(same) >= 9
    assert float(spread) < 0.1


def test_a_known_gpu_copies_at_a_plausible_part_of_its_datasheet() -> None:
    device = find_device("cuda")
    sheet = datasheet_of(device.facts)
    if sheet is None:
        pytest.skip(f"no datasheet is known for {device.facts.name}")
    reached = copy_bandwidth(device)
    assert reached is not None
    assert 0.5 < reached / 1e3 / sheet.gbps < 1.0
