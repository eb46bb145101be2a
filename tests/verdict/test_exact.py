"""Exact limits: kept and broken, just inside and just outside, in which words; and what may be asked for."""

from typing import Any

import numpy as np
import pytest

from pytest_gpubench import BadRequest, Kernel, Timing, Verdict
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.results.observed import AllocatedMemory, Observed, Wait
from pytest_gpubench.verdict.limits import Limits
from tests.results.measured import timing_of
from tests.verdict.judging import judge_structure

FORBIDDABLE = ("memcpy", "memset", "sync", "alloc")
ALLOCATES = "allocates GPU memory, wanted none: "
NOT_COUNTED = "takes its GPU memory from an allocator that does not count: use torch's own, or leave this limit out"
PASS, FAIL, INVALID, NOT_JUDGED = Outcome.PASS, Outcome.FAIL, Outcome.INVALID, Outcome.NOT_JUDGED
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, X>(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, X>(int)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(X)::{lambda()#3}>(X)::{lambda(int)#1}>(int)"  # noqa: E501
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(float*)"


def timing(*kernels: tuple[int, str] | tuple[int, str, str], timer: str = "profiler", **others: Any) -> Timing:
    found = tuple(
        Kernel(name=row[1], kind=row[2] if len(row) == 3 else "kernel", launches=row[0], median_us=1.0)  # type: ignore[arg-type]
        for row in kernels
    )
    return timing_of((5.0,), timer=timer, **{"kernels": found, **others})


def judged(
    asked: Limits, taken: Timing, observed: Observed | None = None, differing: list[str] | None = None
) -> Verdict:
    [found] = judge_structure(taken, asked, observed=observed, differing=differing)
    return found


def memory(allocations: int = 0, peak_bytes: int = 0, kept_bytes: int = 0) -> AllocatedMemory:
    return AllocatedMemory(allocations, 512 * allocations, peak_bytes, kept_bytes)


SYNC, ALLOC = Limits(forbid="sync"), Limits(forbid=["alloc"])
TWO = timing((1, "a"), (2, "b"))
NETWORK = timing((1, SOFTMAX), (1, ADD))
COPIED = timing((3, "Memcpy DtoD (Device -> Device)", "memcpy"), (1, "Memset (Device)", "memset"))
FUSED_ADD = "vectorized_elementwise_kernel<CUDAFunctor_add>"


@pytest.mark.parametrize(
    ("limits", "taken", "outcome", "words"),
    [
        (Limits(max_kernels=2), TWO, FAIL, "launches 3 kernels, wanted at most 2: 1 x a, 2 x b"),
        (Limits(max_kernels=3), TWO, PASS, "launches 3 kernels, wanted at most 3"),
        (Limits(max_kernels=1), COPIED, PASS, "launches 0 kernels, wanted at most 1"),
        (Limits(max_kernels=1), timing((1, "a")), PASS, "launches 1 kernel, wanted at most 1"),
        # full names or short ones, whatever the case; each pattern has to match the whole of a name
        (Limits(kernels="*softmax*"), NETWORK, PASS, "launches kernels named *softmax*"),
        (Limits(kernels=["cunn_SoftMaxForward"]), NETWORK, PASS, "launches kernels named cunn_SoftMaxForward"),
        (Limits(kernels=("void at::native::*",)), NETWORK, PASS, "launches kernels named void at::native::*"),
        (Limits(kernels={FUSED_ADD}), NETWORK, PASS, f"launches kernels named {FUSED_ADD}"),
        (
            Limits(kernels=("*gemm*", "*softmax*", "softmax*")),
            NETWORK,
            FAIL,
            f"launches no kernel named *gemm* or softmax*, only 1 x cunn_SoftMaxForward, 1 x {FUSED_ADD}",
        ),
        (Limits(forbid_kernels=("*gemm*", "softmax*")), NETWORK, PASS, "launches no kernel named *gemm* or softmax*, "),
        (
            Limits(forbid_kernels=("*gemm*", "*SoftMax*")),
            timing((2, SOFTMAX), (1, ADD)),
            FAIL,
            "launches 2 x cunn_SoftMaxForward, wanted no kernel named *gemm* or *SoftMax*",
        ),
        (Limits(forbid_kernels={FUSED_ADD}), NETWORK, FAIL, f"launches 1 x {FUSED_ADD}, wanted no kernel named"),
        # by the copy engine or by torch's kernels: `.contiguous()` of a transposed tensor is a kernel
        (
            Limits(forbid="memcpy"),
            timing((1, ADD), (2, "Memcpy DtoD (Device -> Device)", "memcpy"), (1, COPY)),
            FAIL,
            "copies memory 3 times, wanted none: 2 x Memcpy DtoD (Device -> Device), "
            "1 x elementwise_kernel<direct_copy_kernel_cuda>",
        ),
        (Limits(forbid="memcpy"), timing((1, ADD), (1, "Memset (Device)", "memset")), PASS, "copies no memory, as"),
        (Limits(forbid="memset"), timing((1, ADD), (1, "Memset (Device)", "memset")), FAIL, "1 x Memset (Device)"),
        (SYNC, timing((1, "Memcpy DtoH (Device -> Pageable)", "memcpy")), FAIL, "waits for copies to memory that is"),
        (SYNC, timing((1, "Memcpy DtoH (Device -> Pinned)", "memcpy")), PASS, "never waits for the GPU"),
        (Limits(forbid="memset"), timing((1, FILL)), FAIL, "1 x vectorized_elementwise_kernel<FillFunctor>"),
        (Limits(forbid="memset"), timing((1, "Memcpy DtoD", "memcpy"), (1, ADD)), PASS, ", as wanted"),
    ],
)
def test_kernels_and_copies(limits: Limits, taken: Timing, outcome: Outcome, words: str) -> None:
    found = judged(limits, taken, Observed())
    assert found.outcome is outcome
    assert found.sentence.startswith("softmax ")
    assert words in found.sentence


ITEM = Wait("if x.sum().item() > 0:", "kernels.py:12")


WAITS = "waits for the GPU {}, wanted never: "
ABOVE = "of GPU memory above what was in use, outputs included, wanted at most"
TAKES_NONE = Observed(memory=memory())


@pytest.mark.parametrize(
    ("asked", "observed", "outcome", "words"),
    [
        # a wait that torch and the profiler both see is one
        (SYNC, Observed(), PASS, "never waits for the GPU, as wanted"),
        (SYNC, Observed((ITEM,), {"cudaStreamSynchronize": 1}), FAIL, f"{WAITS.format('1 time')}{ITEM}"),
        (SYNC, Observed((ITEM, ITEM)), FAIL, f"{WAITS.format('2 times')}2 x {ITEM}"),
        (
            SYNC,
            Observed((), {"cudaEventSynchronize": 1}),
            FAIL,
            f"{WAITS.format('1 time')}1 x cudaEventSynchronize of the CUDA runtime, 1 from code outside of torch",
        ),
        (
            SYNC,
            Observed((ITEM,), {"cudaStreamSynchronize": 2, "cudaMemcpy": 1}),
            FAIL,
            f"{WAITS.format('3 times')}{ITEM}; 2 x cudaStreamSynchronize, 1 x cudaMemcpy of the CUDA runtime, 2 from "
            "code that cannot be told",
        ),
        (ALLOC, TAKES_NONE, PASS, "allocates no GPU memory, as wanted"),
        (ALLOC, Observed(memory=memory(2)), FAIL, f"{ALLOCATES}2 allocations of torch's, 1 KiB together, outputs inc"),
        (
            ALLOC,
            Observed(memory=memory(), driver_allocations={"cudaMalloc": 1, "cudaFree": 1}),
            FAIL,
            f"{ALLOCATES}1 x cudaMalloc, 1 x cudaFree of the CUDA runtime",
        ),
        (ALLOC, Observed(driver_allocations={"cudaMalloc": 1}), FAIL, f"{ALLOCATES}1 x cudaMalloc of the CUDA runtime"),
        (ALLOC, Observed(), INVALID, NOT_COUNTED),
        (Limits(max_memory="1KiB"), Observed(memory=memory(1, 1024)), PASS, f"takes 1 KiB {ABOVE} 1 KiB"),
        (Limits(max_memory="1KiB"), Observed(memory=memory(1, 1025)), FAIL, f"takes 1.001 KiB {ABOVE} 1 KiB"),
        (Limits(max_memory=10**5), Observed(memory=memory(1, 100_001)), FAIL, f"takes 100,001 B {ABOVE} 100,000 B"),
        (Limits(max_memory="0.5 KB"), Observed(memory=memory(1, 501)), FAIL, f"takes 501 B {ABOVE} 500 B"),
        (Limits(max_memory=1023), Observed(memory=memory(1, 1024)), FAIL, f"takes 1 KiB {ABOVE} 1023 B"),
        (Limits(max_memory=0), TAKES_NONE, PASS, f"takes 0 B {ABOVE} 0 B"),
        # a leak breaks any limit
        (Limits(max_memory="1GiB"), Observed(memory=memory(1, 512, 512)), FAIL, "keeps 512 B of GPU memory after each"),
        (Limits(max_memory="1GiB"), Observed(), INVALID, NOT_COUNTED),
    ],
)
def test_waits_and_memory(asked: Limits, observed: Observed, outcome: Outcome, words: str) -> None:
    found = judged(asked, timing((1, ADD)), observed)
    assert found.outcome is outcome
    assert found.sentence.startswith(f"softmax {words}")
    assert outcome is not PASS or found.found in found.sentence


@pytest.mark.parametrize(
    ("forbidden", "found"),
    [
        (("sync", "memcpy", "sync"), {"sync": PASS, "memcpy": FAIL}),
        (set(FORBIDDABLE), {"alloc": PASS, "memcpy": FAIL, "memset": PASS, "sync": PASS}),  # of a set in this order
    ],
)
def test_each_forbidden_thing_has_a_verdict_of_its_own(forbidden: Any, found: dict[str, Outcome]) -> None:
    verdicts = judge_structure(timing((1, COPY)), Limits(forbid=forbidden), observed=Observed(memory=memory()))
    expected = [(f"forbid={thing!r}", outcome) for thing, outcome in found.items()]
    assert [(each.limit, each.outcome) for each in verdicts] == expected


@pytest.mark.parametrize(
    ("differing", "outcome", "words"),
    [
        ([], PASS, "returns the same bits in every call"),
        (["out[0]", "args[1]"], FAIL, "does not repeat itself bit by bit: out[0], args[1] differs from call to call"),
        (None, NOT_JUDGED, "was not called again to compare its outputs"),
    ],
)
def test_deterministic(differing: list[str] | None, outcome: Outcome, words: str) -> None:
    found = judged(Limits(deterministic=True), timing((1, ADD)), differing=differing)
    assert (found.limit, found.outcome, found.sentence) == ("deterministic=True", outcome, f"softmax {words}")


EVERYTHING = Limits(
    max_kernels=1, forbid=("memcpy", "memset", "sync", "alloc"), max_memory="1GiB", kernels="*", deterministic=True
)


def test_a_call_that_was_not_measured_is_not_judged() -> None:
    """The reason is in every sentence."""
    idle = timing(samples_us=(), unmeasured="switched off by --gpu-bench-disable")
    found = judge_structure(idle, EVERYTHING)
    assert len(found) == 8
    assert {each.outcome for each in found} == {NOT_JUDGED}
    assert all(each.sentence.endswith(": switched off by --gpu-bench-disable") for each in found)
    on_cpu = judge_structure(timing(timer="wall"), EVERYTHING)
    assert {each.outcome for each in on_cpu} == {NOT_JUDGED}


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        (Limits(forbid="sync"), "forbid='sync'"),
        (Limits(forbid="alloc"), "forbid='alloc'"),
        (Limits(max_memory="1MiB"), "max_memory='1MiB'"),
    ],
)
def test_a_limit_that_needs_a_gpu_is_named(asked: Limits, limit: str) -> None:
    """Where a call was not measured, that says why; on a CPU it needs a GPU all the same."""
    said = f"softmax was not judged by {limit}"
    assert judged(asked, timing(timer="wall")).sentence == f"{said}, which needs a GPU"
    idle: dict[str, Any] = {"samples_us": (), "unmeasured": "it was switched off"}
    assert judged(asked, timing(timer="wall", **idle)).sentence == f"{said}, which needs a GPU: it was switched off"
    assert judged(asked, timing(**idle)).sentence == f"{said}: it was switched off"


@pytest.mark.parametrize("timer", ["events", "graph"])
def test_a_timer_that_sees_no_kernels_is_no_pass(timer: str) -> None:
    for asked in (Limits(max_kernels=9), Limits(forbid="memcpy"), Limits(kernels="*"), Limits(forbid_kernels="x")):
        found = judged(asked, timing(timer=timer), Observed(), [])
        assert found.outcome is INVALID
        assert "use timer='profiler'" in found.sentence


@pytest.mark.parametrize("enforced", [True, False])
def test_verdicts_say_whether_they_are_enforced(enforced: bool) -> None:
    observed = Observed(memory=memory())
    found = judge_structure(timing((1, ADD)), EVERYTHING, enforced, observed=observed, differing=[])
    assert [each.enforced for each in found] == [enforced] * 8
    assert {each.outcome for each in found} == {PASS}


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        (Limits(), False),
        (Limits(max_kernels=1, kernels="*", forbid=("memcpy", "memset"), deterministic=True), False),
        (Limits(forbid=("memcpy", "sync")), True),
        (Limits(forbid="alloc"), True),
        (Limits(max_memory=0), True),
    ],
)
def test_when_a_call_has_to_be_watched(asked: Limits, needed: bool) -> None:
    assert asked.need("observation") is needed


KERNELS_OR_GPUS = "kernels, as in {'*softmax*': 64}, or GPUs, as in {'H200': 64}"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_kernels", 0, "it must be at least 1"),
        ("max_kernels", True, "it must be a whole number"),
        ("max_kernels", 1.0, "it must be a whole number"),
        ("forbid", (), "it must be a text or several, of memcpy, memset, sync, alloc"),
        ("forbid", ("malloc",), "'malloc' is not known; legal are memcpy, memset, sync, alloc"),
        ("forbid", ("memcpy", 1), "it must be a text or several"),
        ("forbid", True, "it must be a text or several"),
        ("max_memory", "1 potato", "units are B, KiB, MiB, GiB, TiB, KB, MB, GB, TB"),
        ("max_memory", "GiB", "a text such as '1GiB'"),
        ("max_memory", "1", "it needs a unit, as in 1B or 1GiB"),
        ("max_memory", -1, "it must be at least 0"),
        ("max_memory", 1.5, "it must be a whole number of bytes"),
        ("kernels", (), "it must be a text or several, with wildcards, as in ('*softmax*',)"),
        ("kernels", (1,), "it must be a text or several"),
        ("kernels", b"softmax", "it must be a text or several"),
        ("forbid_kernels", (), "it must be a text or several, with wildcards, as in ('*flash_attn*',)"),
        ("deterministic", 1, "it must be True or False"),
        ("max_instructions", 0, "it must be above 0 and finite"),
        ("max_dram_bytes", "0.9x", "it must be at least 1x"),
        ("max_dram_bytes", 0, "it must be at least 1; or"),
        ("max_dram_bytes", "many", "or '1.1x' of what has to be read"),
        ("max_counters", {}, "it must map counters to numbers"),
        ("max_counters", {"flops": 0}, "'flops' is no counter: use one of instructions, "),
        ("max_counters", {"smsp__inst_executed.avg": 0}, "is no sum over a call's kernels"),
        ("max_counters", {"atomics": -1}, "at least 0"),
        ("max_registers", 0, "it must be at least 1"),
        ("max_registers", 64.0, "it must be a whole number"),
        ("max_registers", "64", "it must be a whole number"),
        ("max_registers", {}, f"a mapping must name {KERNELS_OR_GPUS}"),
        ("max_registers", {1: 64}, f"a mapping must name {KERNELS_OR_GPUS}"),
        ("max_registers", {"*norm*": 64, "H200": 64}, f"{KERNELS_OR_GPUS}, not both: a name with a wildcard is that"),
        ("max_registers", {"H200": {"A100": 64}}, "what a GPU has must be a limit, or one for each kernel, as in {'*s"),
        ("max_registers", {"*norm*": {"H200": 64}}, "it must be a whole number"),
        ("max_registers", {"H200": {}}, f"a mapping must name {KERNELS_OR_GPUS}"),
        ("max_registers", {"H200": {"*norm*": 0}}, "it must be at least 1"),
        ("max_local_bytes", -1, "it must be at least 0"),
        ("max_shared", "48", "it needs a unit, as in 48B or 48GiB"),
        ("max_shared", {}, "as in {'*softmax*': '48KiB'}"),
        ("min_blocks_per_sm", 0, "it must be at least 1"),
        ("max_tail", 20, "that is 2000 %, and it must be a fraction below 1: 0.2 is 20 %"),
        ("max_tail", -0.1, "it must be above 0 and finite"),
        ("max_tail", "0.2", "it must be a number"),
        ("max_tail", np.array([0.1, 0.2]), "it must be a number"),
    ],
)
def test_invalid_arguments(name: str, value: object, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Limits(**{name: value})
    assert str(caught.value).startswith(f"perf({name}={value!r}): ")
    assert words in str(caught.value)
