"""Kernels in Triton's interpreter reach no memory but that of their tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_gpubench import WrongResult
from pytest_gpubench.timing.interpreter import watching_launches

tl: Any = pytest.importorskip("triton.language")
interpreter: Any = pytest.importorskip("triton.runtime.interpreter")


def store(x: Any, out: Any, n: Any, far: Any) -> None:
    at = tl.arange(0, 8) + far
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def add(x: Any, out: Any, n: Any, far: Any) -> None:
    at = tl.arange(0, 8) + far
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def swap(x: Any, out: Any, n: Any, far: Any) -> None:
    tl.atomic_cas(out + n - 1 + far, tl.load(out), 2 * tl.load(x))


def pointed(x: Any, out: Any, n: Any) -> None:
    at = tl.arange(0, 8)
    to = tl.load(out).to(tl.pointer_type(tl.float32))
    tl.store(to + at, 2 * tl.load(x + at, mask=at < 6), mask=at < n)


def run(kernel: Callable[..., None], x: torch.Tensor, out: torch.Tensor, *numbers: int) -> int:
    with watching_launches() as launches:
        interpreter.InterpretedFunction(kernel)[(1,)](x, out, *numbers)
    return launches.number


@pytest.mark.parametrize("kernel", [store, add, swap])
@pytest.mark.parametrize(("n", "far"), [(6, 0), (8, 0), (7, 2**20), (6, -91)])  # never in x: memory is aligned to 64
def test_a_write_beyond_a_tensor_is_refused(kernel: Callable[..., None], n: int, far: int) -> None:
    """Whether it is just beyond, far away or before: it would break the heap, and end the process."""
    x, out = torch.ones(6), torch.zeros(6)
    if (n, far) == (6, 0):
        assert run(kernel, x, out, n, far) == 1
        assert out.any()
        return
    n = n + far if far > 0 else n
    with pytest.raises(
        WrongResult, match=rf"^the kernel '{kernel.__name__}' writes past (out|x), .* beyond its memory"
    ):
        run(kernel, x, out, n, far)


def test_a_kernel_may_be_given_addresses_of_other_tensors() -> None:
    x, out = torch.ones(6), torch.zeros(6)
    assert run(pointed, x, torch.tensor([out.data_ptr()]), 6) == 1
    assert out.eq(2).all()
    with pytest.raises(WrongResult, match=r"^the kernel 'pointed' writes past (out|x), "):
        run(pointed, x, torch.tensor([out.data_ptr()]), 8)


def test_other_tensors_are_not_looked_for_where_a_mask_ends_the_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers of 8 bytes may be addresses; to look for the tensors there takes longer than the launch."""
    monkeypatch.setattr("pytest_gpubench.timing.interpreter.gc", None)
    x, out = torch.ones(6, dtype=torch.int64), torch.zeros(6, dtype=torch.int64)
    assert run(store, x, out, 6, 0) == 1
    assert out.eq(2).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_a_read_beyond_a_tensor_shows(dtype: torch.dtype) -> None:
    """Zeros of a heap that is not used yet would hide it."""

    def copy(x: Any, out: Any) -> None:
        tl.store(out + tl.arange(0, 8), tl.load(x + tl.arange(0, 8)))

    x, out = torch.zeros(6, dtype=dtype), torch.zeros(8, dtype=dtype)
    assert run(copy, x, out) == 1
    assert out[:6].eq(0).all()
    assert out[6:].ne(0).all()


def described(x: Any, out: Any) -> None:
    read, write = (tl.make_tensor_descriptor(each, [6, 8], [8, 1], [8, 8]) for each in (x, out))
    write.store([0, 0], read.load([0, 0]) * 2)


def by_blocks(x: Any, out: Any) -> None:
    read, write = (tl.make_block_ptr(each, (6, 8), (8, 1), (0, 0), (8, 8), (1, 0)) for each in (x, out))
    tl.store(write, tl.load(read, boundary_check=(0, 1), padding_option="zero") * 2, boundary_check=(0, 1))


def test_blocks_and_descriptors_end_where_their_tensors_end() -> None:
    x, out = torch.ones(6, 8), torch.zeros(6, 8)
    assert run(described if hasattr(tl, "make_tensor_descriptor") else by_blocks, x, out) == 1
    assert out.eq(2).all()


@pytest.mark.parametrize(("dtype", "is_told"), [(torch.bfloat16, True), (torch.float16, False)])
def test_a_wrong_output_says_that_the_interpreter_cannot_compute_in_bfloat16(dtype: torch.dtype, is_told: bool) -> None:
    """Once, though the launches of a comparison are watched within those of a call."""
    x, out = torch.ones(6, dtype=dtype), torch.zeros(6, dtype=dtype)

    def compare() -> None:
        with watching_launches() as launches, watching_launches() as inner:
            assert run(store, x, out, 6, 0) == 1
            assert inner is launches
            raise WrongResult("wrong")

    with pytest.raises(WrongResult) as wrong:
        compare()
    notes = [each for each in getattr(wrong.value, "__notes__", ()) if "bfloat16" in each]
    assert len(notes) == is_told
