"""Outputs that overlap inputs."""

import pytest
import torch

from pytest_gpubench.correctness.leaves import flatten
from pytest_gpubench.correctness.memory import aliases, overlaps


class TestAliases:
    def test_outputs_that_are_inputs(self) -> None:
        x, y = torch.zeros(4, 4), torch.zeros(4)
        outputs = {"view": x.t(), "row": x[1], "copy": x.clone(), "n": 3}
        assert aliases(outputs, (x, [y]), {"out": y}) == [("out['view']", "args[0]"), ("out['row']", "args[0]")]
        assert aliases(y, (x, [y]), {"out": y}) == [("out", "args[1][0]"), ("out", "kwargs['out']")]

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
        x = torch.zeros(4, 4)
        assert bool(aliases(x[one], (x[other],))) is overlap

    @pytest.mark.parametrize(("stop", "start", "overlap"), [(4, 3, True), (3, 3, False), (1, 0, True), (4, 4, False)])
    def test_the_last_element_counts(self, stop: int, start: int, overlap: bool) -> None:
        x = torch.zeros(8)
        assert bool(aliases(x[:stop], (x[start : start + 1],))) is overlap
        assert bool(aliases(x[start : start + 1], (x[:stop],))) is overlap

    def test_outputs_of_two_calls(self) -> None:
        buffer = torch.zeros(4)
        assert overlaps(flatten((buffer, buffer.clone()), "first"), flatten((buffer[:2],), "second")) == [
            ("first[0]", "second[0]")
        ]

    @pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
    def test_gradients_sparse_and_meta(self) -> None:
        x = torch.ones(3, requires_grad=True)
        values = torch.ones(2)
        sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), values, (3,), is_coalesced=True, check_invariants=True)
        meta = torch.zeros(2, device="meta")
        assert aliases((x.detach(), values, meta), (x, sparse, meta)) == [
            ("out[0]", "args[0]"),
            ("out[1]", "args[1].values()"),
        ]
