"""Outputs that overlap inputs, and the bytes that a call moves."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.correctness import flatten, memory, moved_bytes
from pytest_gpubench.correctness.leaves import inputs_of
from pytest_gpubench.correctness.memory import overlaps


def overlapping(outputs: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None) -> list[str]:
    """Return each output that overlaps an input, with that input."""
    return [f"{one} {other}" for one, other in overlaps(flatten(outputs), inputs_of(args, kwargs))]


class TestOverlaps:
    def test_outputs_that_are_inputs(self) -> None:
        x, y = torch.zeros(4, 4), torch.zeros(4)
        outputs = {"view": x.t(), "row": x[1], "copy": x.clone(), "n": 3}
        assert overlapping(outputs, (x, [y]), {"out": y}) == ["out['view'] args[0]", "out['row'] args[0]"]
        assert overlapping(y, (x, [y]), {"out": y}) == ["out args[1][0]", "out kwargs['out']"]

    @pytest.mark.parametrize(
        ("one", "other", "overlap"),
        [
            (slice(0, 2), slice(2, 4), False),
            (slice(0, 3), slice(2, 4), True),
            (slice(0, 4), slice(1, 2), True),
            (slice(0, 0), slice(0, 4), False),
            (slice(0, 4, 2), slice(1, 4, 2), True),
        ],
    )
    def test_ranges(self, one: slice, other: slice, overlap: bool) -> None:
        for x in (torch.zeros(4, 4), torch.zeros(4)):
            assert bool(overlapping(x[one], (x[other],))) is overlap
            assert bool(overlapping(x[other], (x[one],))) is overlap

    @pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
    def test_gradients_sparse_and_meta(self) -> None:
        x = torch.ones(3, requires_grad=True)
        values = torch.ones(2)
        sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), values, (3,), is_coalesced=True, check_invariants=True)
        meta = torch.zeros(2, device="meta")
        found = overlapping((x.detach(), values, meta), (x, sparse, meta))
        assert found == ["out[0] args[0]", "out[1] args[1].values()"]


def test_memory_lives_as_long_as_its_tensor_has_it() -> None:
    x = torch.arange(4.0)
    ((_, found),) = memory.memory_of([("", x[1:3])], owned=True)
    found.bytes.zero_()
    assert x.tolist() == [0, 0, 0, 3]
    x.resize_(10**6)
    assert not memory.living([("", found)])
    ((_, found),) = memory.memory_of([("", x)], owned=True)
    assert memory.lying_in([("y", x.view(-1))], [("x", found)]) == [("y", "x")]
    del x
    assert not found.lives


def sparse() -> torch.Tensor:
    values = torch.ones(2, dtype=torch.float64)
    return torch.sparse_coo_tensor(torch.tensor([[0, 1]]), values, (9,), is_coalesced=True, check_invariants=True)


def test_many_tensors_are_looked_up_by_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read once: pairs of all would take seconds for a model's parameters."""
    tensors = [torch.zeros(2) for _ in range(20)]
    read, counted = memory.memory_of, list[int]()

    def counting(leaves: list[tuple[str, object]]) -> list[tuple[str, memory.MemoryRange]]:
        counted.append(len(leaves))
        return read(leaves)

    monkeypatch.setattr(memory, "memory_of", counting)
    names = [(str(number), tensor) for number, tensor in enumerate(tensors)]
    assert memory.overlaps([*names, ("text", "text")], names[:10]) == [(str(each), str(each)) for each in range(10)]
    assert sum(counted) == 31


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (lambda x: (), lambda x: None, 0),
        (lambda x: (3, None, "text"), lambda x: 4.0, 0),
        (lambda x: (x,), lambda x: None, 256),
        (lambda x: (x, x), lambda x: x, 256),
        (lambda x: (x, x.t()), lambda x: x.view(-1), 256),
        (lambda x: (x[:4],), lambda x: x[4:], 256),
        (lambda x: (x[:4],), lambda x: x[2:6], 192),
        (lambda x: (x,), lambda x: x.clone(), 512),
        (lambda x: ({"a": [x]},), lambda x: (x.half(), x.double()), 256 + 128 + 512),
        (lambda x: (x[::2],), lambda x: None, 128),
        (lambda x: (x[:, :1],), lambda x: None, 32),
        (lambda x: (x[:, 3],), lambda x: None, 32),
        (lambda x: (x[0, 0].expand(1000),), lambda x: None, 4),
        (lambda x: (x[0].expand(1000, 8),), lambda x: None, 32),
        (lambda x: (x.view(-1).unfold(0, 32, 1),), lambda x: None, 256),
        (lambda x: (x[:0],), lambda x: None, 0),
        (lambda x: (x.to("meta"),), lambda x: x.to("meta"), 0),
        (lambda x: (sparse(),), lambda x: None, 32),
        (lambda x: (x.requires_grad_(),), lambda x: (x * 2).detach(), 512),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_each_byte_of_memory_once(
    inputs: Callable[[torch.Tensor], tuple[object, ...]], outputs: Callable[[torch.Tensor], object], expected: int
) -> None:
    x = torch.zeros(8, 8)
    assert moved_bytes(inputs(x), {}, outputs(x)) == expected
    assert moved_bytes((), {"x": inputs(x)}, outputs(x)) == expected


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair)))))
def test_the_union_counts_each_byte_once(ranges: list[tuple[int, int]]) -> None:
    x = torch.zeros(64, dtype=torch.uint8)
    parts = [x[start + 20 : stop + 20] for start, stop in ranges]
    expected = len(set().union(*(range(start, stop) for start, stop in ranges)))
    assert moved_bytes(parts, {}, None) == moved_bytes(parts[::-1], {}, None) == expected
