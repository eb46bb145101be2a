"""The doctor on a GPU: it says all it promises, and a kernel compared with itself is itself."""

import re

import pytest

from pytest_gpubench.cli import doctor, main
from pytest_gpubench.gpu.datasheets import datasheet_of
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.stats.speedup import speedup_of
from pytest_gpubench.timing.bandwidth import copy_bandwidth
from pytest_gpubench.timing.profiler import ProfilerTimer


def test_the_whole_visit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    print(out)
    for name in ("name", "UUID", "driver", "clocks", r"profiler \(CUPTI\)", "copy bandwidth, cold"):
        assert re.search(rf"^{name}: .+", out, re.MULTILINE), name
    sizes = re.findall(r"^  (\S+ [num]?s): (\S+)x .*told apart: (\S+) % slower with 20 reps", out, re.MULTILINE)
    assert len(sizes) + out.count("no room for it") == len(doctor.AIMED_US)
    assert all(0.9 < float(ratio) < 1.1 and 0 < float(share) < 50 for _, ratio, share in sizes)


def test_quick_is_only_the_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--quick"]) == 0
    assert "told apart" not in capsys.readouterr().out


@pytest.mark.parametrize("aimed_us", [2.0, 20.0, 200.0])
def test_a_kernel_is_as_fast_as_itself(aimed_us: float) -> None:
    device = find_device("cuda")
    noise = doctor.measure_noise(
        device, ProfilerTimer(device, "cold"), doctor.flipping(device, aimed_us, copy_bandwidth(device))
    )
    assert aimed_us / 3 < noise.timing.median_us < 3 * aimed_us
    assert (len(noise.log_ratios), noise.timing.launches) == (doctor.QUADS, 1)
    found = speedup_of(noise.log_ratios, doctor.ALPHA)
    assert found.interval is not None
    tick = noise.tick_us / noise.timing.median_us
    assert found.interval.low <= 1 + tick
    assert found.interval.high >= 1 - tick


def test_a_known_gpu_copies_at_a_plausible_part_of_its_datasheet() -> None:
    device = find_device("cuda")
    sheet = datasheet_of(device.facts)
    if sheet is None:
        pytest.skip(f"no datasheet is known for {device.facts.name}")
    reached = copy_bandwidth(device)
    assert reached is not None
    assert 0.5 < reached / 1e3 / sheet.gbps < 1.0
