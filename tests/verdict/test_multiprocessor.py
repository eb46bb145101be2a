"""Limits on what kernels take of a multiprocessor: both sides of each, by kernel and by GPU, and what says nothing."""

from typing import Any

import pytest

from pytest_gpubench import Kernel, Measurement, Timing, Verdict
from pytest_gpubench.results.model import Outcome, Resources
from pytest_gpubench.verdict.limits import BY_NAME, Limits
from tests.results.measured import kernel, resources, timing_of
from tests.verdict.judging import judge_structure

PASS, FAIL, INVALID, NOT_JUDGED = Outcome.PASS, Outcome.FAIL, Outcome.INVALID, Outcome.NOT_JUDGED
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(float*)"
COPY = kernel("Memcpy DtoD (Device -> Device)", kind="memcpy")


def timing(*kernels: Kernel, **others: Any) -> Timing:
    return timing_of((5.0,), "norm", **{"kernels": kernels, **others})


def taking(name: str = "norm_kernel", *kinds: Resources, **others: Any) -> Kernel:
    return kernel(name, resources=kinds or (resources(**others),))


def judged(asked: Limits, *kernels: Kernel, **others: Any) -> Verdict:
    [found] = judge_structure(timing(*kernels, **others), asked)
    return found


def shared(static_kib: int, dynamic_kib: int) -> dict[str, int]:
    return {"static_shared_bytes": static_kib * 1024, "dynamic_shared_bytes": dynamic_kib * 1024}


IDLE = "leaves {} % of the GPU idle in {} ({} of 132 blocks)"
ROOM = "has room for {} on a multiprocessor"
LAST, ONLY, LOCAL = "the last of its 2 waves", "its only wave", "takes {} of local memory a thread"


@pytest.mark.parametrize(
    ("limit", "takes", "outcome", "found", "wanted"),
    [
        ({"max_registers": 72}, {"registers": 72}, PASS, "takes 72 registers a thread", "at most 72"),
        ({"max_registers": 71}, {"registers": 72}, FAIL, "takes 72 registers a thread", "at most 71"),
        ({"max_local_bytes": 0}, {}, PASS, LOCAL.format("0 B"), "at most 0 B"),
        ({"max_local_bytes": 0}, {"local_bytes": 8}, FAIL, LOCAL.format("8 B"), "at most 0 B"),
        ({"max_local_bytes": 8}, {"local_bytes": 8}, PASS, LOCAL.format("8 B"), "at most 8 B"),
        ({"max_shared": "48KiB"}, shared(1, 47), PASS, "takes 48 KiB of shared memory a block", "at most 48 KiB"),
        ({"max_local_bytes": 10**5}, {"local_bytes": 100_001}, FAIL, LOCAL.format("100,001 B"), "at most 100,000 B"),
        ({"max_shared": 48 * 1024}, shared(2, 47), FAIL, "takes 49 KiB of shared memory a block", "at most 48 KiB"),
        ({"min_blocks_per_sm": 2}, {"blocks_per_sm": 2}, PASS, ROOM.format("2 blocks"), "at least 2"),
        ({"min_blocks_per_sm": 2}, {"blocks_per_sm": 1}, FAIL, ROOM.format("1 block"), "at least 2"),
        ({"max_tail": 0.25}, {"grid": (231, 1, 1)}, PASS, IDLE.format(25, LAST, 99), "at most 25 %"),
        ({"max_tail": 0.24}, {"grid": (231, 1, 1)}, FAIL, IDLE.format(25, LAST, 99), "at most 24 %"),
        ({"max_tail": 0}, {}, PASS, IDLE.format(0, LAST, 132), "at most 0 %"),
        ({"max_tail": 0.5}, {"grid": (33, 1, 1)}, FAIL, IDLE.format(75, ONLY, 33), "at most 50 %"),
    ],
)
def test_both_sides(limit: dict[str, Any], takes: dict[str, Any], outcome: Outcome, found: str, wanted: str) -> None:
    verdict = judged(Limits(**limit), taking(**takes))
    assert (verdict.outcome, verdict.sentence) == (outcome, f"norm: norm_kernel {found}, wanted {wanted}")
    assert Limits(**limit).need("resources")


A72, B64, SOFTMAX80 = taking("a", registers=72), taking("b", registers=64), taking(SOFTMAX, registers=80)
OF_THREE_KINDS = taking("a", *(resources(registers=number) for number in (40, 80, 60)))
OF_924, OF_923 = (taking("a", grid=(n, 1, 1), blocks_per_sm=10, resident_blocks=1320) for n in (924, 923))
FIVE_AND_THREE = taking("a", blocks_per_sm=5), taking("b", blocks_per_sm=3)


@pytest.mark.parametrize(
    ("limits", "kernels", "outcome", "words"),
    [
        (
            Limits(max_registers=64),
            (A72, B64, SOFTMAX80, COPY),
            FAIL,
            "norm: a takes 72 registers a thread, wanted at most 64; "
            "cunn_SoftMaxForward takes 80 registers a thread, wanted at most 64",
        ),
        (Limits(max_registers=64), (OF_THREE_KINDS,), FAIL, "norm: a takes 80 registers"),  # the worst of its launches
        (Limits(min_blocks_per_sm=2), FIVE_AND_THREE, PASS, "norm: b has room for 3 blocks"),  # the nearest
        (Limits(max_registers=64), (COPY,), PASS, "norm launches no kernel that max_registers=64 is for"),
        (
            Limits(min_blocks_per_sm={"H2000": 2, "A100": 2}),
            (A72,),
            NOT_JUDGED,
            "norm: no min_blocks_per_sm for NVIDIA H200, only for H2000 (did you mean H200?), A100",
        ),
        (
            Limits(max_registers={"*nrom*": 64, "*a*": 64}),
            (A72, SOFTMAX80),
            INVALID,
            "norm: max_registers={'*nrom*': 64, '*a*': 64} cannot be judged: it launches no kernel named *nrom*, only "
            "1 x a, 1 x cunn_SoftMaxForward",
        ),
        (
            Limits(max_local_bytes=0),
            (kernel("a"),),
            NOT_JUDGED,
            "norm was not judged by max_local_bytes=0, which needs an NVIDIA GPU with a driver of CUDA 12.3 or later",
        ),
        (
            Limits(max_registers={"H200": 64, "a": 16}),
            (A72, COPY),
            INVALID,
            "norm: max_registers={'H200': 64, 'a': 16} cannot be judged: a is a kernel, and a name without a wildcard "
            "is that of a GPU: write '*a*'",
        ),
        (Limits(max_registers={"*memcpy*": 16}), (A72, COPY), INVALID, "norm: max_registers={'*memcpy*': 16} cannot b"),
        (Limits(max_tail=0.3), (OF_924,), PASS, "norm: a leaves 30 % of the GPU idle in its only wave"),
        (Limits(max_tail=0.3), (OF_923,), FAIL, "norm: a leaves 30.08 % of the GPU idle"),  # in the last bit
    ],
)
def test_deciding_kernels_are_named(limits: Limits, kernels: tuple[Kernel, ...], outcome: Outcome, words: str) -> None:
    found = judged(limits, *kernels)
    assert found.outcome is outcome
    assert found.sentence.startswith(words)
    uncaptured = judged(limits, kernels[0], no_resources="it waits")
    why = ": it waits; leave this limit out where that is meant"
    assert outcome is not FAIL or (uncaptured.outcome, uncaptured.sentence.endswith(why)) == (INVALID, True)


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        # of several patterns the longest counts
        ({"*norm*": 64}, PASS),
        ({"*norm*": 63}, FAIL),
        ({"*NORM_kernel": 64, "*softmax*": 80}, PASS),
        ({"*": 63, "*norm*": 64}, FAIL),
        ({"*": 80, "*norm*": 63}, FAIL),
        ({"*": 80, "norm_?ernel": 64}, PASS),
        # by GPU
        ({"H200": 80}, PASS),
        ({"H200": 79, "A100": 99}, FAIL),
        ({"NVIDIA H200": 80, "H200": 63}, PASS),
        ({"H200": {"*norm*": 64}, "A100": 1}, PASS),
        ({"H200": {"*norm*": 63}, "A100": 99}, FAIL),
        ({"A100": 63}, NOT_JUDGED),
        ({"A100": {"*nrom*": 63}}, NOT_JUDGED),
    ],
)
def test_limits_by_kernel_and_by_gpu(asked: dict[str, Any], outcome: Outcome) -> None:
    kernels = taking("norm_kernel", registers=64), SOFTMAX80
    assert judged(Limits(max_registers=asked), *kernels).outcome is outcome


@pytest.mark.parametrize(
    ("others", "outcome"),
    [
        ({"timer": "wall"}, NOT_JUDGED),
        ({"timer": "events"}, INVALID),
        ({"samples_us": (), "unmeasured": "switched off"}, NOT_JUDGED),
    ],
)
@pytest.mark.parametrize("asked", [64, {"H200": 64}, {"A100": 64}])
def test_without_kernels_nothing_is_judged(others: dict[str, Any], outcome: Outcome, asked: Any) -> None:
    assert judged(Limits(max_registers=asked), **others).outcome is outcome


def test_values_in_tables() -> None:
    """Of the kernel that is farthest beyond its limit; of none, the limits."""
    item = Measurement(timing=timing(taking("a", registers=40), taking("b", registers=72, local_bytes=600)))
    cells = {
        "max_registers": ({"*": 64, "a*": 30}, "40 <= 30 registers"),
        "max_local_bytes": (0, "600 B <= 0 B local"),
        "max_shared": ("48KiB", "0 B <= 48 KiB shared"),
        "min_blocks_per_sm": ({"H200": 2}, "1 >= 2 blocks per SM"),
        "max_tail": (0.2, "0 % <= 20 % idle"),
    }
    for name, (asked, text) in cells.items():
        assert BY_NAME[name](asked).cell(item) == text
    bare = Measurement(timing=timing(kernel("a")))
    assert BY_NAME["max_registers"]({"*a*": 30, "*b*": 64, "*c*": 64}).cell(bare) == "<= 30 registers, <= 64 registers"
    assert BY_NAME["max_registers"]({"A100": 30}).cell(bare) == "only A100"
