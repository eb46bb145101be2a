"""What only a GPU shows: memory that is handed out again, Triton's writes, large outputs."""

import gc

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench.correctness import (
    Tolerance,
    aliases,
    changed,
    compare_outputs,
    poison_free_memory,
    snapshot,
)
from pytest_gpubench.correctness.one_pass import can_check
from pytest_gpubench.correctness.snapshot import checksum
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


@pytest.mark.parametrize("elements", [8, 1000, 2**18, 2**20 + 3, 2**24])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_that_are_never_written_are_found(dtype: torch.dtype, elements: int) -> None:
    """The candidate gets memory in which another's output lay, freed, and right: the poison is over it."""
    x = torch.randint(1, 100, (elements,), device="cuda").to(dtype)
    reference = x.clone()
    freed = x.clone()
    del freed
    poison_free_memory(reference, "cuda")
    output = copy_half(x)
    (difference,) = compare_outputs(output, reference, poisoned=True)
    assert difference.unwritten == difference.mismatched == elements - elements // 2
    assert unwritten(output) == {"out": elements - elements // 2}
    assert compare_outputs(x.clone(), reference, poisoned=True)[0].passed


def test_poison_reaches_every_output_behind_temporaries() -> None:
    """Whatever was freed before: several blocks of the size, larger ones and smaller ones."""
    blocks = [torch.zeros(size, device="cuda") for size in (2**22, 2**20, 2**20, 2**20, 2**12) for _ in range(4)]
    outputs = (torch.zeros(2**20, device="cuda"), torch.zeros(2**12, device="cuda"))
    del blocks
    poison_free_memory(outputs, "cuda")
    later = [torch.empty_like(output) for _ in range(3) for output in outputs]
    assert unwritten(later) == {f"out[{place}]": one.numel() for place, one in enumerate(later)}


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
    for wrong in (float("nan"), float("inf")):
        found[-1] = wrong
        (difference,) = compare_outputs(found, expected, Tolerance(1.0, 1.0))
        assert (difference.passed, difference.mismatched, difference.where) == (False, 1, (elements - 1,))
    expected[-1] = found[-1]
    assert compare_outputs(found, expected, Tolerance(1.0, 1.0))[0].passed  # infinities of one sign are equal


def test_a_negative_view_is_read_by_torch() -> None:
    x = torch.randn(1000, dtype=torch.complex64, device="cuda")
    negative = torch.view_as_real(x.conj().resolve_conj())[:, 1].contiguous()
    assert x.conj().imag.is_neg()
    assert not can_check(x.conj().imag)
    assert compare_outputs(x.conj().imag, negative)[0].passed


def test_poison_takes_no_more_memory_each_time() -> None:
    """As long as what is free beside four blocks is smaller than one."""
    gc.collect()
    torch.cuda.empty_cache()
    output, reserved = torch.empty(2**26, device="cuda"), []
    for _ in range(8):
        poison_free_memory(output, "cuda")
        reserved.append(torch.cuda.memory_reserved())
    assert len(set(reserved[4:])) == 1


def test_poison_stops_where_memory_is_short() -> None:
    free, _ = torch.cuda.mem_get_info()
    output = torch.empty(int(0.6 * free), dtype=torch.uint8, device="cuda")
    poison_free_memory(output, "cuda")
    del output
    torch.cuda.empty_cache()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_computed_nan_is_not_poison(dtype: torch.dtype) -> None:
    zero = torch.zeros(1000, device="cuda", dtype=dtype)
    for nan in (zero / zero, (zero - 1).sqrt(), zero * float("inf"), (zero.float() / zero.float()).to(dtype)):
        assert unwritten((nan, -nan, nan + 1, nan.abs())) == {}


def test_a_kernel_that_writes_its_input_is_noticed() -> None:
    x, y = torch.zeros(10**7, device="cuda"), torch.zeros(100, device="cuda")
    before = snapshot((x,), {"out": y})
    increment[(1,)](x, 9_876_543)
    assert x._version == 0
    assert changed(before) == ["args[0]"]
    assert aliases((x[5:], x + 1), (x,), {"out": y}) == [("out[0]", "args[0]")]


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
    before = snapshot((found,))
    found[0, 0] = 1 - int(found[0, 0].to(torch.complex64).real)
    assert changed(before) == ["args[0]"]


def test_devices_are_told_apart_but_golden_may_be_anywhere() -> None:
    x = torch.randn(1000, device="cuda")
    assert compare_outputs(x, x.cpu())[0].problem == "device cuda:0, expected cpu"
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
    before = snapshot((found,))
    expected[49_999, 99_999] = 1
    assert changed(before) == []
    assert torch.cuda.max_memory_allocated() - held < 2**29
