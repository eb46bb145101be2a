"""What only a GPU shows: memory that is handed out again, Triton's writes, large outputs."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench.correctness import Tolerance, compare_outputs
from pytest_gpubench.correctness.checksum import checksum
from pytest_gpubench.correctness.memory import bytes_at
from pytest_gpubench.correctness.one_pass import can_check
from pytest_gpubench.correctness.pool import PoisonedPool, pool_on
from tests.correctness.samples import unwritten

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int32)
WIDER = (torch.int64, torch.uint64, torch.uint16, torch.bool, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2)


@triton.jit
def increment(pointer, place):  # type: ignore[no-untyped-def]
    tl.store(pointer + place, tl.load(pointer + place) + 1)


def copy_half(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of which the second half is never written."""
    out = torch.empty_like(x)
    half = x.numel() // 2
    out[:half] = x[:half]
    return out


@pytest.fixture
def pool() -> Iterator[PoisonedPool]:
    found = PoisonedPool(torch.device("cuda", 0))
    yield found
    found.close()


@pytest.mark.parametrize("elements", [8, 1000, 2**18, 2**20 + 3, 2**24])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_that_are_never_written_are_found(pool: PoisonedPool, dtype: torch.dtype, elements: int) -> None:
    """The memory in which right outputs lay is filled again before the next call."""
    x = torch.randint(1, 100, (elements,), device="cuda").to(dtype)
    for _ in range(3):
        pool.fill()
        grown = pool.growths
        with pool.use():
            output, right = copy_half(x), x.clone()
    assert pool.growths == grown, "the last call found enough memory"
    (difference,) = compare_outputs(output, x, poisoned=True)
    assert difference.unwritten == difference.mismatched == elements - elements // 2
    assert unwritten(output) == {"out": elements - elements // 2}
    assert compare_outputs(right, x, poisoned=True)[0].passed


@pytest.mark.parametrize("elements", [1000, 2**18, 2**20])
def test_what_a_kernel_leaves_in_free_memory_is_filled(pool: PoisonedPool, elements: int) -> None:
    """Though nothing was allocated there, nor freed."""
    pool.reserve(torch.empty(elements, device="cuda"), 3)
    pool.fill()
    with pool.use():
        first = torch.empty(elements, device="cuda")
    place, size = first.data_ptr(), first.nbytes
    del first
    pool.fill()
    bytes_at(place, size, pool.device).fill_(7)
    pool.fill()
    with pool.use():
        again = torch.empty(elements, device="cuda")
    assert again.data_ptr() == place
    assert unwritten(again) == {"out": elements}


@pytest.mark.parametrize("elements", [1000, 2**20])
def test_a_tensor_that_nobody_told_of_is_left_alone(pool: PoisonedPool, elements: int) -> None:
    """As a call that caches something would; the pool is filled around it, and whole once it is gone."""
    x = torch.ones(elements, device="cuda")
    pool.reserve(x, 3)
    pool.fill()
    with pool.use():
        cached = x.clone()
    for _ in range(3):
        pool.fill()
        assert torch.equal(cached, x)
        with pool.use():
            assert unwritten(torch.empty(elements, device="cuda")) == {"out": elements}
    del cached
    pool.fill()
    with pool.use():
        outputs = [torch.empty(elements, device="cuda") for _ in range(4)]
    assert unwritten(tuple(outputs)) == {f"out[{number}]": elements for number in range(4)}
    assert not pool.is_reusable


def test_all_that_a_call_allocates_comes_from_the_pool(pool: PoisonedPool) -> None:
    """Its temporaries, what other streams and a backward pass allocate; and nothing does after it."""
    weight = torch.ones(2**16, device="cuda", requires_grad=True)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with pool.use():
        out = (weight * 3).exp()
        (gradient,) = torch.autograd.grad(out.sum(), weight)
        with torch.cuda.stream(stream):
            aside = torch.empty(100, device="cuda")
        stream.synchronize()
    outside = torch.empty(100, device="cuda")
    segments = [(each["address"], each["address"] + each["total_size"]) for each in pool._segments()]

    def is_inside(tensor: torch.Tensor) -> bool:
        return any(start <= tensor.data_ptr() < stop for start, stop in segments)

    assert [is_inside(each) for each in (out, gradient, aside, outside)] == [True, True, True, False]
    assert pool.allocations >= 4


@pytest.mark.parametrize("elements", [5, 128, 1000, 2**18, 2**18 + 1, 2**22 + 5])
@pytest.mark.parametrize(("first", "place", "outside"), [(True, -1, 1), (True, 0, 0), (False, -1, 0), (False, 0, 1)])
def test_a_write_beside_an_output(pool: PoisonedPool, elements: int, first: bool, place: int, outside: int) -> None:
    """Counted from its first element, or from behind its last."""
    sizes, times = ((elements,), 2) if first else ((2**23, 2**10), 1)
    pool.reserve(tuple(torch.empty(each, device="cuda") for each in sizes), times)
    pool.fill()
    with pool.use():
        out = torch.zeros(elements, device="cuda")
        increment[(1,)](out, place if first else elements + place)
    assert pool.overwritten(out) == ["out"] * outside


def test_what_temporaries_leave_beside_an_output_is_no_write_of_its_own(pool: PoisonedPool) -> None:
    pool.fill()
    with pool.use():
        out = torch.full((100,), 7.0, device="cuda").add_(1).sum()
    assert pool.overwritten(out) == []


def give_back(device: torch.device) -> None:
    """Let no pool be kept: one that is too large takes its place."""
    with pool_on(device) as other:
        assert other is not None
        other.reserve(torch.empty(2**26, device=device), 1)


@pytest.mark.parametrize(("elements", "is_kept"), [(2**20, True), (2**25 - 2**22, True), (2**25, False)])
def test_memory_goes_back_with_a_large_pool(elements: int, is_kept: bool) -> None:
    """A small one is kept: that of the first round is that of the others, and has room for what is smaller."""
    device, pools = torch.device("cuda", 0), set[int]()
    give_back(device)
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for number in (1, 1, 2, 8) if is_kept else (1, 1):
        with pool_on(device) as found:
            assert found is not None
            found.reserve(torch.empty(elements // number, device=device), 2)
            found.fill()
            with found.use():
                output = torch.empty(elements // number, device=device)
            assert unwritten(output) == {"out": elements // number}
            del output
        pools.add(id(found.pool))
        torch.cuda.empty_cache()
        assert (torch.cuda.memory_reserved() == before) is not is_kept
    assert len(pools - {id(None)}) == is_kept


@pytest.mark.parametrize("left", ["nothing", "an output", "more memory", "an error"])
def test_a_pool_in_which_something_was_left_is_not_kept(left: str) -> None:
    device, kept = torch.device("cuda", 0), list[torch.Tensor]()
    give_back(device)
    with suppress(KeyError), pool_on(device) as first:
        assert first is not None
        first.reserve(torch.empty(1000, device=device), 2)
        first.fill()
        with first.use():
            kept.append(torch.empty(2**27 if left == "more memory" else 1000, device=device))
        if left != "an output":
            kept.clear()
        first.fill()
        if left == "an error":
            raise KeyError
    with pool_on(device) as second:
        assert (second is first) is (left == "nothing")


GROWING = """
import torch
from pytest_gpubench.correctness.pool import pool_on
device, pools = torch.device("cuda", 0), []
for _ in range(4):
    with pool_on(device) as found:
        found.reserve(torch.empty(2**22, device=device), 1)
        found.fill()
        grown = found.growths
        with found.use():
            temporaries = [torch.empty(2**22 + number, device=device) for number in range(5)]
        pools.append((found, found.growths > grown))
        del temporaries
        found.fill()
print([(pools.index((pool, grew)), grew) for pool, grew in pools])
"""
BREAKING = """
import torch
from pytest_gpubench.correctness.pool import pool_on
with pool_on(torch.device("cuda", 0)) as pool:
    pool.reserve(torch.empty(100, device="cuda"), 1)
    torch.ones(4, device="cuda")[torch.tensor([9], device="cuda")]
print("alive")
"""


@pytest.mark.parametrize(
    ("code", "printed"),
    [(GROWING, "[(0, True), (1, False), (1, False), (1, False)]\n"), (BREAKING, "alive\n")],
    ids=["growing", "breaking"],
)
def test_after_a_pool_that_grew_the_next_is_kept_and_a_broken_gpu_ends_no_process(code: str, printed: str) -> None:
    """It gets as much memory at once; torch's destructor of a pool raises where the GPU is broken."""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout) == (0, printed), found.stderr[-2000:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("elements", [1, 4096, 10**6 + 1])
def test_differences_are_the_same_in_one_pass(dtype: torch.dtype, elements: int) -> None:
    """As where an output is not dense, which torch compares chunk by chunk."""
    expected = torch.randn(elements, device="cuda").to(dtype)
    found = (expected.float() + 0.1 * torch.rand(elements, device="cuda")).to(dtype)
    apart = torch.stack([found, expected], 1)
    assert can_check(found, expected)
    assert not can_check(apart[:, 0], expected) or elements == 1
    for tolerance in (Tolerance(0.0, 1.0), Tolerance(1.0, 0.2), Tolerance(0.0, 1e-3), Tolerance(0.5, 1e-6)):
        dense = compare_outputs(found, expected, tolerance)
        assert dense == compare_outputs(apart[:, 0], apart[:, 1], tolerance)
    largest = compare_outputs(found, expected, Tolerance(0.0, 0.0))[0].max_abs_diff or 0.0
    for atol in (0.5 * largest, largest * (1 - 1e-9), largest, largest * (1 + 1e-3)):
        tolerance = Tolerance(0.0, atol)
        (brief,) = compare_outputs(found, expected, tolerance, briefly=True)
        assert brief.passed == compare_outputs(found, expected, tolerance)[0].passed == (atol >= largest)
    for wrong in (float("nan"), float("inf")):
        found[-1] = wrong
        (difference,) = compare_outputs(found, expected, Tolerance(1.0, 1.0))
        assert (difference.passed, difference.mismatched, difference.where) == (False, 1, (elements - 1,))
        assert not compare_outputs(found, expected, Tolerance(1.0, 1.0), briefly=True)[0].passed
    expected[-1] = found[-1]
    assert compare_outputs(found, expected, Tolerance(1.0, 1.0))[0].passed  # infinities of one sign are equal


def test_a_negative_view_is_read_by_torch() -> None:
    x = torch.randn(1000, dtype=torch.complex64, device="cuda")
    negative = torch.view_as_real(x.conj().resolve_conj())[:, 1].contiguous()
    assert x.conj().imag.is_neg()
    assert not can_check(x.conj().imag)
    assert compare_outputs(x.conj().imag, negative)[0].passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_computed_nan_is_not_poison(dtype: torch.dtype) -> None:
    zero = torch.zeros(1000, device="cuda", dtype=dtype)
    for nan in (zero / zero, (zero - 1).sqrt(), zero * float("inf"), (zero.float() / zero.float()).to(dtype)):
        assert unwritten((nan, -nan, nan + 1, nan.abs())) == {}


def test_a_kernel_that_writes_its_input_is_noticed() -> None:
    x = torch.zeros(10**7, device="cuda")
    before = checksum(x)
    increment[(1,)](x, 9_876_543)
    assert x._version == 0
    assert checksum(x) != before


@pytest.mark.parametrize("words", [2, 4096, 4097, 2**24 + 5])
def test_a_checksum_tells_every_word_and_its_place(words: int) -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (words,), dtype=torch.int32, device="cuda")
    found = [checksum(x)]
    for place in sorted({0, words // 2, words - 1}):
        x[place] ^= 1
        found.append(checksum(x))
    x[[0, -1]] ^= -(2**31)  # two signs
    found.append(checksum(x))
    x[[0, -1]] = x[[-1, 0]]
    assert len({*found, checksum(x)}) == len(found) + 1
    assert checksum(x.clone()) == checksum(x)


@pytest.mark.parametrize("dtype", [*DTYPES, *WIDER], ids=str)
def test_every_dtype_is_compared(dtype: torch.dtype) -> None:
    expected = torch.randint(0, 2, (300, 70), device="cuda").to(dtype)
    found = expected.t().contiguous().t()
    assert compare_outputs(found, expected)[0].passed
    found[299, 69] = 1 - int(expected[299, 69].to(torch.complex64).real)
    (difference,) = compare_outputs(found, expected, poisoned=True)
    assert (difference.where, difference.mismatched, difference.max_abs_diff) == ((299, 69), 1, 1.0)
    before = checksum(found)
    found[0, 0] = 1 - int(found[0, 0].to(torch.complex64).real)
    assert checksum(found) != before


def test_devices_are_told_apart_but_golden_may_be_anywhere() -> None:
    x = torch.randn(1000, device="cuda")
    assert compare_outputs(x, x.cpu())[0].problem == "device cuda:0, expected cpu: let both compute on one device"
    assert compare_outputs(x, x, golden=x.double().cpu())[0].passed
    assert not compare_outputs(x + 1, x, golden=x.double().cpu())[0].passed


def test_large_outputs_need_no_second_copy() -> None:
    """10 GB against 10 GB, transposed; the wrong element lies beyond what 32 bits count."""
    if torch.cuda.mem_get_info()[0] < 24e9:
        pytest.skip("needs 24 GB of free GPU memory")
    expected = torch.zeros(50_000, 100_000, dtype=torch.float16, device="cuda")
    found = torch.zeros(100_000, 50_000, dtype=torch.float16, device="cuda").t()
    found[49_999, 99_998] = 1
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    (difference,) = compare_outputs(found, expected, tolerance=Tolerance(0.0, 0.5))
    assert (difference.where, difference.mismatched) == ((49_999, 99_998), 1)
    before = checksum(found)
    expected[49_999, 99_999] = 1
    assert checksum(found) == before
    assert torch.cuda.max_memory_allocated() - held < 2**29
