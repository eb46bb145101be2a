"""Reasons on the real thing: of a slower call the first names what was planted, of the same call none."""

from collections.abc import Callable

import pytest
import torch

from pytest_gpubench import GpuBench, LimitBroken
from tests.on_gpu.study.reasons import first_reasons
from tests.on_gpu.study.reasons_planted import COUNT, PLANTED, Planted, doubled, row_softmax, vector

OneCall = Callable[[torch.Tensor], torch.Tensor]
BESIDE: dict[str, tuple[OneCall, OneCall, str]] = {
    "num_warps that spill": (
        lambda x: row_softmax(x, 8),
        lambda x: row_softmax(x, 1),
        "softmax_kernel: num_warps 8 -> 1, local memory of a thread 0 B -> ",
    ),
    "a copy": (doubled, lambda x: doubled(x.clone()), "one more kernel: Memcpy"),
    "fewer blocks": (doubled, lambda x: doubled(x, blocks=16), f"doubling_kernel: blocks {COUNT // 1024} -> 16, on "),
}
"""A reference, a candidate, and the beginning of the first reason why it is slower."""


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_first_reason_names_the_cause_beside_an_older_run(planted: Planted) -> None:
    assert planted.words in first_reasons(planted)[0]


@pytest.mark.perf(min_speedup=1.0)
@pytest.mark.parametrize("planted", BESIDE)
def test_the_first_reason_names_the_cause_beside_a_reference(planted: str, gpu_bench: GpuBench) -> None:
    reference, candidate, words = BESIDE[planted]
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"planted": candidate}, reference, args=(vector(),))
    assert str(raised.value).splitlines()[1].startswith(f"with it: {words}")


@pytest.mark.perf(min_speedup=1.5)
@pytest.mark.parametrize("number", range(20))
def test_the_same_call_has_no_reason(number: int, gpu_bench: GpuBench) -> None:
    functions: list[OneCall] = [doubled, lambda x: torch.softmax(x.view(1024, -1), -1), torch.nn.functional.gelu]
    function = functions[number % len(functions)]
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"same": lambda x: function(x)}, function, args=(vector(),))
    assert len(str(raised.value).splitlines()) == 1
