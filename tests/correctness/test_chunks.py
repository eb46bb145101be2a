"""Chunks: they do not show in the results, and no temporary is larger."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pytest_gpubench.correctness import chunks
from pytest_gpubench.correctness.checksum import checksum
from pytest_gpubench.correctness.chunks import blocks
from tests.correctness.samples import chunk_sizes, compare, layouts, names, shapes


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda elements: monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", elements)


class TestChunks:
    @settings(max_examples=50, deadline=None)
    @given(seed=st.integers(0, 99), shape=shapes, chunk=chunk_sizes, name=names, with_golden=st.booleans())
    def test_the_chunk_does_not_matter(
        self, seed: int, shape: tuple[int, ...], chunk: int, name: str, with_golden: bool
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        golden = torch.randn(shape, generator=generator, dtype=torch.float64)
        expected, found = (
            layouts((golden + error * torch.randn(shape, generator=generator)).float())[name] for error in (1e-5, 2e-5)
        )
        options: dict[str, Any] = {"golden": golden} if with_golden else {}
        whole = compare(found, expected, **options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunks, "CHUNK_ELEMENTS", chunk)
            cut = compare(found, expected, **options)
        assert dataclasses.replace(whole, golden=None) == dataclasses.replace(cut, golden=None)
        if whole.golden and cut.golden:
            assert dataclasses.astuple(cut.golden) == pytest.approx(dataclasses.astuple(whole.golden))

    @settings(max_examples=50, deadline=None)
    @given(shape=st.lists(st.integers(0, 9), max_size=4).map(tuple), limit=st.integers(1, 50))
    def test_blocks_are_the_whole_once_and_small(self, shape: tuple[int, ...], limit: int) -> None:
        assume(math.prod(shape))
        seen = torch.zeros(shape)
        sizes = []
        for block in blocks(shape, limit):
            seen[block] += 1
            sizes.append(seen[block].numel())
        assert bool((seen == 1).all())
        assert max(sizes) <= limit
        assert len(sizes) <= 1 + 2 * math.prod(shape) / limit


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Note the largest tensor that is made, in bytes."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in given:
                self.largest = max(self.largest, leaf.untyped_storage().nbytes())
        return made


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *((dtype, "contiguous") for dtype in (torch.float64, torch.complex64, torch.uint64, torch.bool)),
        *itertools.product((torch.bfloat16, torch.int64), ("contiguous", "transposed", "strided", "expanded")),
    ],
)
@pytest.mark.parametrize("task", ["compare", "golden", "checksum"])
def test_no_temporary_is_larger_than_a_chunk(
    small_chunks: Callable[[int], None], task: str, dtype: torch.dtype, name: str
) -> None:
    """Outputs of 10 GB need no second copy of anything."""
    small_chunks(200)
    x = torch.randint(0, 2, (60, 50)).to(dtype)
    pair = [x[:1].expand(60, 50) if name == "expanded" else layouts(x)[name] for _ in range(2)]
    wide = {"bfloat16": torch.float64, "complex64": torch.complex128}.get(str(dtype).removeprefix("torch."), dtype)
    golden = pair[0].to(wide) if wide != dtype else pair[0]
    with Allocations() as allocations:  # type: ignore[no-untyped-call]
        if task == "compare":
            assert compare(*pair, poisoned=True).passed
        elif task == "golden":
            assert compare(*pair, golden=golden).passed
        else:
            assert checksum(pair[0]) == checksum(pair[1])
    assert 0 < allocations.largest <= 64 * 200
