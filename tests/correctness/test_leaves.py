"""Outputs by name."""

import gc
import weakref
from collections import OrderedDict

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from pytest_gpubench.correctness import compare_outputs, flatten
from pytest_gpubench.correctness.leaves import map_leaves
from tests.correctness.samples import PAIR, Known, State

ONES = torch.ones(2)


class TestNames:
    @pytest.mark.parametrize(
        ("outputs", "names"),
        [
            (1, ["out"]),
            (None, ["out"]),
            ((1, [2, 3]), ["out[0]", "out[1][0]", "out[1][1]"]),
            ({"loss": 1, 2: 3}, ["out['loss']", "out[2]"]),
            (OrderedDict(b=1, a=2), ["out['b']", "out['a']"]),
            (PAIR(1, (2,)), ["out.mean", "out.std[0]"]),
            (State(1), ["out.hidden", "out.cell"]),
            ([State({"x": PAIR(1, 2)}, 3)], ["out[0].hidden['x'].mean", "out[0].hidden['x'].std", "out[0].cell"]),
            (Known(1, (2,)), ["out[0]", "out[1][0]"]),
            ((), []),
            (State, ["out"]),
            ("text", ["out"]),
            (torch.zeros(2, 2), ["out"]),
            (torch.zeros(2, 2).max(dim=0), ["out[0]", "out[1]"]),
        ],
    )
    def test_names(self, outputs: object, names: list[str]) -> None:
        assert [name for name, _ in flatten(outputs)] == names

    def test_leaves_are_the_objects_themselves(self) -> None:
        x = torch.zeros(2)
        assert all(leaf is x for _, leaf in flatten((x, [x], State(x, x))))

    def test_a_field_that_was_never_set_is_left_out(self) -> None:
        state = State(1)
        object.__delattr__(state, "hidden")
        assert [name for name, _ in flatten(state)] == ["out.cell"]

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
    @pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
    def test_nested_tensors_are_taken_apart(self, layout: torch.layout) -> None:
        rows = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
        assert [difference.line for difference in compare_outputs(rows, rows)] == [
            "out[0] PASS max_diff=0",
            "out[1] PASS max_diff=0",
        ]

    @pytest.mark.parametrize(("other", "verdicts"), [(ONES, ["PASS", "PASS"]), (2 * ONES, ["PASS", "FAIL"])])
    def test_wrapped_tensors_are_compared(self, other: torch.Tensor, verdicts: list[str]) -> None:
        found, expected = TwoTensor(ONES, other), TwoTensor(ONES, ONES)  # type: ignore[no-untyped-call]
        differences = compare_outputs(found, expected)
        assert [(each.name, each.line.split()[1]) for each in differences] == [
            ("out.a", verdicts[0]),
            ("out.b", verdicts[1]),
        ]
        (difference,) = compare_outputs(ONES, expected)
        assert difference.problem == "wrapper None, expected TwoTensor"


def test_no_cycle_keeps_the_leaves() -> None:
    """Tensors of a GPU would stay until the next collection."""
    gc.disable()
    try:
        tensor = torch.zeros(3)
        kept = weakref.ref(tensor)
        flatten(map_leaves(lambda leaf: leaf, {"a": (tensor, [tensor])}))
        del tensor
        assert kept() is None
    finally:
        gc.enable()
