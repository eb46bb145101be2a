"""Reads and writes beyond a tensor: those that are planted are named, and nothing else is taken for one."""

import re
from pathlib import Path

import pytest

from pytest_gpubench import GpuBench, WrongResult
from tests.on_gpu.hosts import RealHost
from tests.on_gpu.margins_honest import HONEST
from tests.on_gpu.margins_planted import HARMLESS, PLANTED, Planted

BREAKS = """
import torch
from tests.on_gpu.margins_planted import PLANTED
from tests.on_gpu.test_margins import compare

def test_it(gpu_bench):
    garbage = [torch.randint(2**62, (2**16,), device=gpu_bench.device) for _ in range(8)]
    del garbage  # what lies behind small tensors then is no index
    (planted,) = [each for each in PLANTED if each.name == NAME]
    compare(gpu_bench, planted)
"""
"""A test of a kernel that may break the GPU: a fresh process names the tensor."""


def compare(gpu_bench: GpuBench, planted: Planted) -> None:
    candidate, reference, args = planted.make(gpu_bench.device)
    gpu_bench.compare(
        {"it": candidate},
        reference,
        args,
        overwrites=planted.overwrites or False,
        vary=False,
        reps=12,
        rtol=1e-3,
        atol=1e-3,
    )


def is_named(planted: Planted, sentence: str) -> bool:
    names = "|".join(map(re.escape, planted.tensors))
    return re.search(rf"it {planted.verb} past .*({names})(?!\w)", sentence) is not None


@pytest.mark.slow  # a minute together
@pytest.mark.parametrize("planted", [each for each in PLANTED if not each.may_fault], ids=lambda each: each.name)
def test_what_is_planted_is_named(gpu_bench: GpuBench, planted: Planted) -> None:
    with pytest.raises(WrongResult) as raised:
        compare(gpu_bench, planted)
    assert is_named(planted, str(raised.value))


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(each, id=each.name, marks=() if "int64" in each.name else pytest.mark.slow)
        for each in PLANTED
        if each.may_fault
    ],
)
def test_a_fresh_process_names_the_tensor(planted: Planted, tmp_path: Path) -> None:
    host = RealHost(tmp_path)
    host.write(BREAKS.replace("NAME", repr(planted.name)))
    status, output = host.run()
    assert status == 1, output
    assert [line for line in re.findall("WrongResult: .*", output) if is_named(planted, line)], output


@pytest.mark.slow
@pytest.mark.parametrize("harmless", HARMLESS, ids=lambda each: each.name)
def test_a_read_that_no_output_shows_passes(gpu_bench: GpuBench, harmless: Planted) -> None:
    compare(gpu_bench, harmless)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's, of what it compiles
@pytest.mark.parametrize("name", HONEST)
def test_calls_of_libraries_pass(gpu_bench: GpuBench, name: str) -> None:
    function, args = HONEST[name](gpu_bench.device)
    gpu_bench.compare({"it": lambda *args: function(*args)}, function, args, reps=12, rtol=1e-3, atol=1e-3)
