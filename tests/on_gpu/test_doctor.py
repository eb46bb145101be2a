"""The doctor on a GPU: it says all it promises, and a kernel compared with itself is itself."""

import re

import pytest

from pytest_gpubench.cli import main
from pytest_gpubench.gpu.datasheets import datasheet_of
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.report.facts import device_facts
from pytest_gpubench.timing.peaks import copy_bandwidth
from tests.results.measured import present


def test_the_whole_visit(capsys: pytest.CaptureFixture[str]) -> None:
    """Clocks, say, have a line where this GPU's NVML knows them."""
    known = device_facts(find_device("cuda").facts)
    assert {"UUID", "driver"} <= known.keys()
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    print(out)
    for name in ("name", *known, "profiler (CUPTI)", "copy bandwidth, cold"):
        assert re.search(rf"^{re.escape(name)}: .+", out, re.MULTILINE), name


def test_a_known_gpu_copies_at_a_plausible_part_of_its_datasheet() -> None:
    device = find_device("cuda")
    sheet = datasheet_of(device.facts)
    if sheet is None:
        pytest.skip(f"no datasheet is known for {device.facts.name}")
    reached = present(copy_bandwidth(device))
    assert 0.5 < reached / 1e3 / sheet.gbps < 1.0
