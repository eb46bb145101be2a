"""Reasons: the first names what was planted, and nothing is said where nothing differs."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import Kernel, Measurement, PastChange, Speedup, Timing, Verdict
from pytest_gpubench.results.model import Code, Outcome, Overhead
from pytest_gpubench.results.observed import AllocatedMemory, Observed, Wait
from pytest_gpubench.verdict.reasons import (
    MOST_REASONS,
    explained,
    explained_by_neighbours,
    explained_by_references,
    explained_change,
    reasons,
)
from pytest_gpubench.verdict.regression import Change
from tests.results.measured import kernel, resources, timing_of

COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::bfloat16tofloat32_copy_kernel_cuda>(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<(int){}, at::native::CUDAFunctor_add<float>>(int)"
FAST, SLOW = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "ampere_sgemm_128x64_tn"
NORM = "layer_norm_kernel"


def measured(*kernels: Kernel, role: Literal["", "reference", "candidate"] = "", **others: Any) -> Measurement:
    """Return a measurement of a call with these kernels, which took their times together."""
    us = sum(each.median_us for each in kernels) or others.pop("us", 100.0)
    found = {
        name: others.pop(name) for name in ("overhead", "verdicts", "speedup", "change", "observed") if name in others
    }
    return Measurement(timing=timing_of([us] * 20, "norm", kernels=kernels, **others), role=role, **found)


def one(name: str = NORM, us: float = 57.0, launches: int = 1, **others: Any) -> Kernel:
    """Return a kernel of which every launch takes these resources."""
    return kernel(name, launches, us, resources=(resources(**others),))


def small(**others: Any) -> Kernel:
    """Return a kernel whose grid fills eight waves of an H200."""
    known = {"grid": (2112, 1, 1), "block": (128, 1, 1), "registers": 64, "blocks_per_sm": 2, "resident_blocks": 264}
    return one(**{**known, **others})


def launched(host_us: float | None) -> Overhead:
    return Overhead(label="norm", host_us=host_us, busy_us=57, span_us=60, eager_us=61, graph_us=None)


def took(peak_bytes: int) -> Observed:
    return Observed(memory=AllocatedMemory(1, peak_bytes, peak_bytes, 0))


def code(**constants: str) -> Code:
    return Code(constants=constants)


def against(reference_us: float) -> Speedup:
    return Speedup(
        ratio=reference_us / 57,
        interval=None,
        quads=9,
        alpha=0.01,
        reference="torch",
        reference_us=reference_us,
        seed=0,
    )


PLANTED: dict[str, tuple[Measurement, Measurement, str]] = {
    "spilled registers": (
        measured(small()),
        measured(small(us=90, local_bytes=600)),
        f"{NORM}: local memory of a thread 0 B -> 600 B",
    ),
    "registers that halve the blocks": (
        measured(small()),
        measured(small(us=90, registers=72, blocks_per_sm=1, resident_blocks=132)),
        f"{NORM}: registers 64 -> 72, so blocks per SM 2 -> 1",
    ),
    "shared memory that halves the blocks": (
        measured(small()),
        measured(small(us=90, dynamic_shared_bytes=131072, blocks_per_sm=1, resident_blocks=132)),
        f"{NORM}: shared memory 0 B -> 128 KiB, so blocks per SM 2 -> 1",
    ),
    "a copy": (
        measured(small()),
        measured(small(), one(COPY, 35.0)),
        "one more kernel: elementwise_kernel<direct_copy_kernel_cuda> (38 % of the time)",
    ),
    "a copy by the engine": (
        measured(small()),
        measured(small(), kernel("Memcpy DtoD (Device -> Device)", 1, 35.0, kind="memcpy")),
        "one more kernel: Memcpy DtoD (Device -> Device) (38 % of the time)",
    ),
    "a cast": (
        measured(small()),
        measured(small(us=60), one(CAST, 40.0)),
        "one more kernel: unrolled_elementwise_kernel<bfloat16tofloat32_copy_kernel_cuda> (40 % of the time)",
    ),
    "an allocation that is filled": (
        measured(small()),
        measured(small(), one(FILL, 19.0)),
        "one more kernel: vectorized_elementwise_kernel<FillFunctor> (25 % of the time)",
    ),
    "eager operators for a fused one": (
        measured(one("triton_poi_fused_add_mul_0", 50.0)),
        measured(one("triton_poi_fused_add_0", 50.0), one(ADD.format(4), 48.0, 2), one(COPY, 20.0)),
        "3 more kernels: 2 x vectorized_elementwise_kernel<CUDAFunctor_add> (41 % of the time), "
        "elementwise_kernel<direct_copy_kernel_cuda> (17 % of the time)",
    ),
    "more launches": (
        measured(one(us=10.0)),
        measured(one(us=640.0, launches=64)),
        f"{NORM}: launches 1 -> 64",
    ),
    "another kernel of a library": (
        measured(kernel(FAST, 1, 50.0), one("bias", 5.0)),
        measured(kernel(SLOW, 1, 200.0), one("bias", 5.0)),
        f"{SLOW} in place of {FAST} (50.00 us -> 200.0 us)",
    ),
    "lost vector loads": (
        measured(one(ADD.format(4), 50.0)),
        measured(one(ADD.format(1), 90.0)),
        "vectorized_elementwise_kernel<(int)1, CUDAFunctor_add> in place of "
        "vectorized_elementwise_kernel<(int)4, CUDAFunctor_add>",
    ),
    "a grid of fewer blocks than multiprocessors": (
        measured(small()),
        measured(small(us=400, grid=(32, 1, 1))),
        f"{NORM}: blocks 2112 -> 32, on 132 multiprocessors",
    ),
    "a tail wave": (
        measured(small(grid=(264, 1, 1))),
        measured(small(us=100, grid=(265, 1, 1))),
        f"{NORM}: blocks 264 -> 265, "
        "leaves 99.62 % of the GPU idle in the last of its 2 waves (1 of 264 blocks), was 0 %",
    ),
    "a tuned configuration": (
        measured(small()),
        measured(small(us=100, block=(256, 1, 1), grid=(1056, 1, 1), blocks_per_sm=1, resident_blocks=132)),
        f"{NORM}: blocks per SM 2 -> 1, threads per block 128 -> 256, blocks 2112 -> 1056",
    ),
    "more bytes": (
        measured(small(), moved_bytes=268435456),
        measured(small(us=110), moved_bytes=536870912),
        "moves at least 256 MiB -> 512 MiB",
    ),
    "more operations": (
        measured(small(), flops=10**9),
        measured(small(us=110), flops=2 * 10**9),
        "computes 1e+09 -> 2e+09 operations",
    ),
    "a wait": (
        measured(overhead=launched(12.0)),
        measured(overhead=launched(None)),
        "the host waits for the GPU within the call: no -> yes",
    ),
    "launching": (
        measured(overhead=launched(12.0), timer="wall"),
        measured(overhead=launched(85.0), timer="wall"),
        "launching it takes the host 12.00 us -> 85.00 us",
    ),
    "an allocation": (
        measured(small(), observed=took(2**20)),
        measured(small(), observed=took(65 * 2**20)),
        "allocates 1 MiB -> 65 MiB of GPU memory",
    ),
    "another tile": (
        measured(small(code=code(BLOCK="1024", num_warps="4"))),
        measured(small(us=90, code=code(BLOCK="512", num_warps="8"))),
        f"{NORM}: BLOCK 1024 -> 512, num_warps 4 -> 8",
    ),
    "a stride that is no constant": (
        measured(small(code=code(across="1"))),
        measured(small(us=90, code=code(down="1"))),
        f"{NORM}: across 1 -> variable, down variable -> 1",
    ),
    "narrow loads and stores": (
        measured(small(code=Code(loads=2, load_bytes=16, stores=2, store_bytes=16))),
        measured(small(us=90, code=Code(loads=8, load_bytes=4, stores=8, store_bytes=4))),
        f"{NORM}: loads in its code 2 of 16 B -> 8 of 4 B, stores 2 of 16 B -> 8 of 4 B",
    ),
    "a row that is loaded twice": (
        measured(small(code=Code(loads=2, load_bytes=16))),
        measured(small(us=90, code=Code(loads=4, load_bytes=16))),
        f"{NORM}: loads in its code 2 of 16 B -> 4 of 16 B",
    ),
    "atomics": (
        measured(small(code=Code(stores=1, store_bytes=4))),
        measured(small(us=90, code=Code(atomics=1))),
        f"{NORM}: atomics in its code 0 -> 1",
    ),
    "a wait by the host's clock": (
        measured(observed=Observed(), timer="wall"),
        measured(us=120, observed=Observed((Wait("x.item()", "a.py:3"),), {"cudaStreamSynchronize": 2}), timer="wall"),
        "the host waits for the GPU 0 -> 2 times in a call: x.item() (a.py:3)",
    ),
    "compiling in each call": (
        measured(observed=Observed(), timer="wall"),
        measured(us=120, observed=Observed(compilations=1), timer="wall"),
        "compiles 0 -> 1 kernels or graphs in each call",
    ),
    "memory of the driver": (
        measured(observed=Observed(), timer="wall"),
        measured(us=120, observed=Observed(driver_allocations={"cudaMalloc": 1, "cudaFree": 1}), timer="wall"),
        "takes GPU memory from the driver, or gives it back, 0 -> 2 times in a call (cudaMalloc, cudaFree)",
    ),
    "launches between events": (
        measured(observed=Observed(kernels={"fused": 1}), timer="events"),
        measured(us=120, observed=Observed(kernels={ADD.format(4): 2, COPY: 1}), timer="events"),
        "launches 1 -> 3 kernels and copies, more of vectorized_elementwise_kernel<CUDAFunctor_add>, "
        "elementwise_kernel<direct_copy_kernel_cuda>",
    ),
    "a lower clock": (
        measured(small(), sm_clock_mhz=(1980.0,)),
        measured(small(us=80), sm_clock_mhz=(1410.0,) * 20),
        "SM clock 1980 -> 1410 MHz: not the code",
    ),
    "throttling": (
        measured(small(), sm_clock_mhz=(1980.0,)),
        measured(small(us=80), sm_clock_mhz=(1410.0,) * 20, throttle_reasons=("SwPowerCap",)),
        "SM clock 1980 -> 1410 MHz, throttled (SwPowerCap): not the code",
    ),
    "throttling at an unknown clock": (
        measured(),
        measured(us=120, throttle_reasons=("HwThermalSlowdown",)),
        "throttled (HwThermalSlowdown)",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_the_first_reason_names_the_cause(planted: str) -> None:
    old, new, sentence = PLANTED[planted]
    found = reasons(old, new)
    assert [each[: len(sentence)] for each in found] == [sentence]


VERSIONS = [("triton", "3.6.0", "3.7.1"), ("ptxas", "12.8.93", "12.9.86")]


def test_changed_versions_are_a_reason_after_those_that_have_a_share() -> None:
    told = "triton 3.6.0 -> 3.7.1, ptxas 12.8.93 -> 12.9.86"
    assert reasons(measured(small()), measured(small(us=90)), VERSIONS) == (told,)
    old, new, sentence = PLANTED["registers that halve the blocks"]
    assert reasons(old, new, VERSIONS) == (sentence, told)


def test_the_largest_share_comes_first_and_three_are_told() -> None:
    old = measured(*(small(name=name, us=20.0) for name in "abcd"), sm_clock_mhz=(1980.0,))
    slower = dict(zip("abcd", (25.0, 60.0, 40.0, 21.0), strict=True))
    kernels = [small(name=name, us=us, registers=65) for name, us in slower.items()]
    found = reasons(old, measured(*kernels, sm_clock_mhz=(1900.0,) * 20))
    assert [each[:1] for each in found] == ["b", "c", "S"]
    assert found[0] == "b: registers 64 -> 65 (20.00 us -> 60.00 us)"
    assert [each[:1] for each in reasons(old, measured(*kernels), VERSIONS)] == ["b", "c", "t"]
    assert len(found) == MOST_REASONS


@pytest.mark.parametrize(("us", "said"), [(57.5, False), (58.0, True)])
def test_a_kernel_that_takes_no_longer_is_no_cause(us: float, said: bool) -> None:
    assert bool(reasons(measured(small()), measured(small(us=us, registers=72)))) == said


@pytest.mark.parametrize(("mhz", "said"), [(1921.0, False), (1920.0, True)])
def test_a_clock_that_is_lower_by_little_is_no_cause(mhz: float, said: bool) -> None:
    old, new = measured(sm_clock_mhz=(1980.0,)), measured(us=110, sm_clock_mhz=(mhz,) * 20)
    assert bool(reasons(old, new)) == said


@pytest.mark.parametrize(
    ("us", "said"), [(135.0, False), (136.0, True), (144.0, True), (145.0, False), (100.0, False), (80.0, False)]
)
def test_a_clock_clears_the_code_only_where_the_call_is_slower_by_as_much(us: float, said: bool) -> None:
    old, new = (measured(small(us=each), sm_clock_mhz=(mhz,) * 20) for each, mhz in [(100.0, 1400.0), (us, 1000.0)])
    assert reasons(old, new) == (f"SM clock 1400 -> 1000 MHz{': not the code' * said}",)
    assert reasons(old, new, VERSIONS)[0] == "SM clock 1400 -> 1000 MHz"


@pytest.mark.parametrize("has_kernels", [False, True])
def test_a_clock_does_not_clear_code_of_which_nothing_is_known(has_kernels: bool) -> None:
    """Without kernels, as of timer='events', and without what they take, as in an older run."""
    old, new = (
        measured(kernel(NORM, 1, us), sm_clock_mhz=(mhz,) * 20)
        if has_kernels
        else measured(us=us, sm_clock_mhz=(mhz,) * 20)
        for us, mhz in [(100.0, 1400.0), (140.0, 1000.0)]
    )
    assert reasons(old, new) == ("SM clock 1400 -> 1000 MHz",)


@pytest.mark.parametrize("turned", [False, True])
def test_of_launches_of_several_kinds_one_that_did_not_change_is_not_blamed(turned: bool) -> None:
    large, little = resources(grid=(10000, 1, 1), launches=2), resources(grid=(10, 1, 1), launches=2)
    more = msgspec.structs.replace(little, launches=3)
    after = (more, large) if turned else (large, more)
    old, new = kernel(NORM, 4, 57.0, resources=(large, little)), kernel(NORM, 5, 80.0, resources=after)
    assert reasons(measured(old), measured(new)) == ("layer_norm_kernel: launches 4 -> 5",)


def test_a_block_of_another_shape_has_as_many_threads() -> None:
    assert reasons(measured(small()), measured(small(us=80, block=(32, 4, 1)))) == ()


@pytest.mark.parametrize(("peak_bytes", "said"), [(2**20 - 1, False), (2**20, False), (2**20 + 2**19, True)])
def test_only_more_memory_is_a_reason(peak_bytes: int, said: bool) -> None:
    old, new = measured(small(), observed=took(2**20)), measured(small(), observed=took(peak_bytes))
    assert reasons(old, new) == (("allocates 1 MiB -> 1.5 MiB of GPU memory",) if said else ())


WAITING = Observed(runtime_waits={"cudaStreamSynchronize": 1})


@pytest.mark.parametrize(("us", "said"), [(101.0, False), (101.1, True)])
def test_what_a_call_does_is_part_of_times_that_are_no_sum_of_kernels(us: float, said: bool) -> None:
    old, new = measured(observed=Observed(), timer="wall"), measured(us=us, observed=WAITING, timer="wall")
    assert bool(reasons(old, new)) == said


def test_what_a_call_does_beside_its_kernels_is_told_after_them() -> None:
    old, new = measured(small(), observed=Observed()), measured(small(us=60, registers=72), observed=WAITING)
    assert [each.split()[0] for each in reasons(old, new)] == [f"{NORM}:", "the"]


def test_four_constants_are_named() -> None:
    old, new = (code(**dict.fromkeys("abcde", f"{value}")) for value in (1, 2))
    (found,) = reasons(measured(small(code=old)), measured(small(us=90, code=new)))
    assert found == f"{NORM}: a 1 -> 2, b 1 -> 2, c 1 -> 2, d 1 -> 2"


def test_five_changes_of_a_kernel_are_named_what_it_was_compiled_for_first() -> None:
    old, new = code(BLOCK="1", num_warps="8"), code(BLOCK="2", num_warps="1")
    changed = small(us=90, code=new, local_bytes=64, registers=255, dynamic_shared_bytes=1024, grid=(7, 1, 1))
    (found,) = reasons(measured(small(code=old)), measured(changed))
    assert found == (
        f"{NORM}: BLOCK 1 -> 2, num_warps 8 -> 1, local memory of a thread 0 B -> 64 B, registers 64 -> 255, "
        "shared memory 0 B -> 1 KiB"
    )


@pytest.mark.parametrize(("constants", "said"), [({}, True), ({"BLOCK": "2"}, False)])
def test_more_accesses_are_told_unless_the_tile_is_another(constants: dict[str, str], said: bool) -> None:
    old = Code(constants={"BLOCK": "1"}, loads=1, load_bytes=16, stores=1, store_bytes=16)
    new = msgspec.structs.replace(old, loads=2, stores=2, constants=old.constants | constants)
    (found,) = reasons(measured(small(code=old)), measured(small(us=90, code=new)))
    assert ("loads in its code 1 of 16 B -> 2 of 16 B, stores 1 of 16 B -> 2 of 16 B" in found) == said


def test_code_of_which_one_is_not_known_is_not_compared() -> None:
    assert reasons(measured(small()), measured(small(us=90, code=code(BLOCK="1")))) == ()


@pytest.mark.parametrize(("host_us", "said"), [(17.9, False), (18.0, True)])
def test_launching_that_takes_little_longer_is_no_cause(host_us: float, said: bool) -> None:
    assert bool(reasons(measured(overhead=launched(12.0)), measured(overhead=launched(host_us)))) == said


@pytest.mark.parametrize(("reference_us", "said"), [(95.1, False), (95.0, True)])
def test_a_speedup_that_fell_as_the_reference_is_faster(reference_us: float, said: bool) -> None:
    old, new = measured(speedup=against(100.0)), measured(speedup=against(reference_us))
    assert reasons(old, new) == ()
    told = ("its reference torch is faster: 100.0 us -> 95.00 us",) if said else ()
    assert reasons(old, new, metric="speedup") == told


def test_a_clock_that_both_arms_had_is_told_last_of_a_speedup() -> None:
    old, new = measured(small(), sm_clock_mhz=(1980.0,)), measured(small(us=60, registers=72), sm_clock_mhz=(990.0,))
    assert [each.split()[0] for each in reasons(old, new)] == ["SM", f"{NORM}:"]
    assert [each.split()[0] for each in reasons(old, new, metric="speedup")] == [f"{NORM}:", "SM"]


# a candidate beside its reference


def beside(reference: Sequence[Kernel], candidate: Sequence[Kernel]) -> tuple[str, ...]:
    return reasons(measured(*reference, role="reference"), measured(*candidate, role="candidate"))


def test_two_kernels_of_which_one_is_slower_are_no_reason() -> None:
    assert beside([small(name="softmax_warp_forward")], [small(name="_softmax", us=90, registers=40)]) == ()


def test_another_kernel_than_in_an_older_run_is_a_reason() -> None:
    assert reasons(measured(small(name="one")), measured(small(name="other", us=90))) == ("other in place of one",)


def test_a_copy_stands_for_no_other_kernel() -> None:
    (found,) = reasons(measured(small(), one("bias", 5.0)), measured(small(), one(COPY, 35.0)))
    assert found.startswith("one more kernel: elementwise_kernel<direct_copy_kernel_cuda> ")


def test_of_two_kernels_what_makes_one_slower_is_told() -> None:
    spilled = beside([small(name="softmax_warp_forward")], [small(name="_softmax", us=90, local_bytes=64)])
    assert spilled == ("_softmax in place of softmax_warp_forward: local memory of a thread 0 B -> 64 B",)
    narrow = beside(
        [small(name="add", code=Code(constants={"B": "1"}, loads=2, load_bytes=16))],
        [small(name="_add", us=90, code=Code(constants={"B": "2"}, loads=4, load_bytes=4, atomics=2))],
    )
    assert narrow == ("_add in place of add: loads in its code 2 of 16 B -> 4 of 4 B, atomics in its code 0 -> 2",)
    fewer = beside([small(name="softmax_warp_forward")], [small(name="_softmax", us=90, blocks_per_sm=1)])
    assert fewer == ("_softmax in place of softmax_warp_forward: threads per SM 256 -> 128",)


@pytest.mark.parametrize("number", range(20))
def test_nothing_is_said_where_only_times_differ(number: int) -> None:
    """The same call twice: its times, clocks and host times differ as those of the same call do."""
    old, new, _ = list(PLANTED.values())[number]
    for item in (old, new):
        slower = noisy(item, 1 + number / 10, 0.975, 1.3)
        assert reasons(item, slower) == reasons(slower, item) == ()


def noisy(item: Measurement, times: float, clocks: float, host: float) -> Measurement:
    """Return a measurement with all its times, clocks and host times changed."""
    timing = msgspec.structs.replace(
        item.timing,
        samples_us=tuple(us * times for us in item.timing.samples_us),
        sm_clock_mhz=tuple(mhz * clocks for mhz in item.timing.sm_clock_mhz),
        kernels=tuple(msgspec.structs.replace(each, median_us=each.median_us * times) for each in item.timing.kernels),
    )
    overhead = item.overhead
    if overhead is not None and overhead.host_us is not None:
        overhead = msgspec.structs.replace(overhead, host_us=overhead.host_us * host)
    return msgspec.structs.replace(item, timing=timing, overhead=overhead)


@given(
    item=st.sampled_from([each for old, new, _ in PLANTED.values() for each in (old, new)]),
    times=st.floats(0.1, 10),
    clocks=st.floats(0.971, 1.02),
    host=st.floats(0.7, 1.4),
    role=st.sampled_from(["", "candidate"]),
)
def test_noise_has_no_reason(item: Measurement, times: float, clocks: float, host: float, role: Any) -> None:
    other = msgspec.structs.replace(noisy(item, times, clocks, host), role=role)
    assert reasons(msgspec.structs.replace(item, role="reference" if role else ""), other) == ()


@given(*[st.sampled_from([each for old, new, _ in PLANTED.values() for each in (old, new)])] * 2)
def test_reasons_are_few_single_lines(old: Measurement, new: Measurement) -> None:
    found = reasons(old, new, VERSIONS)
    assert 1 <= len(found) <= MOST_REASONS
    assert all(len(each.splitlines()) == 1 for each in found)


def test_each_candidate_is_explained_by_the_reference_before_it() -> None:
    """As in the comparisons of a model's recorded calls."""
    failed = [judged("min_speedup")] * 2
    small_ones = [measured(small(), role="reference"), measured(small(), one(COPY, 35.0), role="candidate")]
    copied = [measured(one(COPY, 35.0), role="reference"), measured(one(COPY, 70.0, 2), role="candidate")]
    items = [*small_ones, *copied]
    items[1], items[3] = (
        msgspec.structs.replace(item, verdicts=verdicts)
        for item, verdicts in zip((items[1], items[3]), failed, strict=True)
    )
    copy = "elementwise_kernel<direct_copy_kernel_cuda>"
    assert [[each.reasons for each in item.verdicts] for item in explained_by_references(items)] == [
        [],
        [(f"one more kernel: {copy} (38 % of the time)",)],
        [],
        [(f"{copy}: launches 1 -> 2",)],
    ]


# verdicts and changes


def judged(kind: str, outcome: Outcome = Outcome.FAIL) -> tuple[Verdict, ...]:
    return (Verdict(kind=kind, asked="1", outcome=outcome, sentence="so"),)


OLD, NEW, WORDS = PLANTED["spilled registers"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        *[(kind, True) for kind in ("max_regression", "compare_fail", "max_time_us", "min_gbps", "min_tflops")],
        *[(kind, False) for kind in ("min_speedup", "min_weighted_speedup", "max_rel_std", "max_kernels", "validity")],
    ],
)
def test_what_is_slower_than_in_a_saved_run_has_reasons(kind: str, said: bool) -> None:
    new = msgspec.structs.replace(NEW, verdicts=judged(kind))
    (found,) = explained(new, OLD).verdicts
    assert found.reasons == ((WORDS,) if said else ())
    assert found.lines == ["so", *[f"with it: {WORDS}"] * said]


@pytest.mark.parametrize(
    ("outcome", "said"), [(each, each in (Outcome.FAIL, Outcome.INVALID)) for each in Outcome], ids=str
)
def test_only_what_fails_and_what_is_invalid_has_reasons(outcome: Outcome, said: bool) -> None:
    for kind in ("min_speedup", "min_weighted_speedup"):
        new = msgspec.structs.replace(NEW, verdicts=judged(kind, outcome), role="candidate")
        (found,) = explained(new, reference=msgspec.structs.replace(OLD, role="reference")).verdicts
        assert bool(found.reasons) == said
    change = Change("t.py::test_it", "norm", outcome, "so", old=OLD, new=NEW)
    assert explained_change(change, VERSIONS[:1]).reasons == ((WORDS, "triton 3.6.0 -> 3.7.1") if said else ())


def test_other_processes_are_told_after_what_differs_and_of_what_is_too_slow_alone() -> None:
    verdicts = (*judged("max_time_us"), *judged("max_kernels"), *judged("max_regression", Outcome.PASS))
    new = explained(msgspec.structs.replace(NEW, verdicts=verdicts), OLD)
    assert explained_by_neighbours(new, ()) is new
    found = explained_by_neighbours(new, ["pid 7 computes on the GPU"]).verdicts
    assert [each.reasons for each in found] == [(WORDS, "pid 7 computes on the GPU"), (), ()]


def test_a_regression_of_a_speedup_may_be_the_references() -> None:
    change = PastChange(baseline="main", metric="speedup", ratio=1.1, interval=None, old_us=100)
    old, new = measured(speedup=against(100.0)), measured(speedup=against(80.0), change=change)
    (found,) = explained(msgspec.structs.replace(new, verdicts=judged("max_regression")), old).verdicts
    assert found.reasons == ("its reference torch is faster: 100.0 us -> 80.00 us",)


def test_without_numbers_or_anything_to_compare_with_there_is_no_reason() -> None:
    nothing = Measurement(timing=Timing(label="a", timer="wall", cache="cold", device="GPU", unmeasured="why"))
    assert reasons(nothing, NEW, VERSIONS) == reasons(OLD, nothing, VERSIONS) == ()
    failed = msgspec.structs.replace(NEW, verdicts=judged("max_time_us"))
    assert explained(failed) is failed
