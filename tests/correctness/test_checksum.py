"""Checksums depend on every bit and its place."""

import itertools
import math

import pytest
import torch

from pytest_gpubench.correctness import chunks, flatten
from pytest_gpubench.correctness.checksum import checksum
from pytest_gpubench.correctness.memory import overlaps
from tests.correctness.samples import COMPLEX, FLOAT8, FLOATS, INTEGERS


@pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8, *COMPLEX, *INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize("elements", [1, 7, 16, 1000])
def test_one_element(dtype: torch.dtype, elements: int) -> None:
    x = torch.zeros(elements).to(dtype)
    before = checksum(x)
    x[elements // 2] = 1
    assert checksum(x) != before
    x[elements // 2] = 0
    assert checksum(x) == before


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("distance", [1, 8, 2**11, 2**15])
@pytest.mark.parametrize("chunk", [2**9, 2**22])
def test_two_elements_change_places(
    dtype: torch.dtype, distance: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers whose low bits are 0, in one chunk or in two, at a distance that is a power of two."""
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", chunk)
    x = torch.zeros(2**16, dtype=dtype)
    x[0], x[distance] = 1, 2
    before = checksum(x)
    x[0], x[distance] = 2, 1
    assert checksum(x) != before


def test_sums_of_changes_that_cancel() -> None:
    seen = set()
    for where in itertools.product(range(4), repeat=2):
        x = torch.zeros(4, dtype=torch.int64)
        x[where[0]] += 1
        x[where[1]] -= 1
        seen.add(checksum(x))
    assert len(seen) == 1 + 12


def test_minus_zero_and_nan_are_bits() -> None:
    x = torch.tensor([0.0, math.nan])
    assert checksum(x) == checksum(x.clone()) != checksum(torch.tensor([-0.0, math.nan]))


def test_what_lies_beside_a_view_does_not_count() -> None:
    base = torch.zeros(10, 10)
    view = base[2:8, 3:7]
    before = checksum(view)
    base[0, 0] = base[3, 2] = 1
    assert checksum(view) == before
    base[3, 3] = 1
    assert checksum(view) != before


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions.*deprecated:UserWarning")
def test_tensors_whose_values_torch_copies() -> None:
    """Their memory is their own, not that of the copies, and other than that of their clones."""
    x, where = torch.ones(64), torch.tensor([[0, 0, 1]])
    twice = torch.sparse_coo_tensor(where, torch.ones(3), (2,), check_invariants=True)
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    args, copies = (quantized, twice), (quantized.clone(), twice.clone())
    assert overlaps(flatten(args), flatten(copies)) == []
    assert overlaps(flatten(args[:1]), flatten(args[:1], "args")) == [("out[0]", "args[0]")]
    assert checksum(quantized) == checksum(copies[0]) != checksum(quantized.copy_(2 * x))


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("elements", [3, 4])
def test_conjugates_have_the_checksum_of_their_elements(dtype: torch.dtype, elements: int) -> None:
    x = torch.full((elements,), 1 + 2j, dtype=dtype)
    assert x.conj().is_conj()
    assert checksum(x.conj()) == checksum(x.conj().resolve_conj()) != checksum(x)
    assert checksum(x.conj().imag) == checksum(torch.view_as_real(x.conj().resolve_conj())[:, 1])
