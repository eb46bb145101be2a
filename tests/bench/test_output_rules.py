"""Outputs that are no plain tensors of their own."""

import concurrent.futures
import io
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from pytest_gpubench import BadRequest, InvalidResult, UnfairComparison, bench
from pytest_gpubench.bench.output_rules import refuse_strange_tensors, work_left
from tests.bench.calls import Lazy, agreement_of, recorded


@pytest.mark.parametrize(
    ("outputs", "expected", "named"),
    [
        (torch.ones(2), torch.ones(2), None),
        (torch.nn.Parameter(torch.ones(2)), torch.ones(2), None),
        (torch.ones(2).as_subclass(Lazy), torch.ones(2), "out"),
        ({"a": [torch.ones(2), torch.ones(2).as_subclass(Lazy)]}, torch.ones(2), r"out\['a'\]\[1\]"),
        (torch.ones(2).as_subclass(Lazy), torch.ones(2).as_subclass(Lazy), None),
        (3.0, torch.ones(2), None),
    ],
)
def test_an_output_of_a_class_of_its_own(outputs: object, expected: object, named: str | None) -> None:
    sentence = rf"^{named} of 'mine' is a tensor of class Lazy, which may compute later, .*: return a plain"
    with nullcontext() if named is None else pytest.raises(InvalidResult, match=sentence):
        refuse_strange_tensors("mine", outputs, expected, work_left(expected))


ROW = torch.arange(8.0)
COMPLEX = torch.ones(2, dtype=torch.complex64)


def with_attribute(name: str) -> torch.Tensor:
    tensor = torch.ones(2)
    setattr(tensor, name, lambda: None)
    return tensor


@pytest.mark.parametrize(
    ("outputs", "expected", "error", "sentence"),
    [
        (with_attribute("later"), torch.ones(2), InvalidResult, "^out of 'mine' has an attribute of its own, 'later'"),
        ([with_attribute("later")], [torch.ones(2)], InvalidResult, r"^out\[0\] of 'mine' has an attribute"),
        (with_attribute("later"), with_attribute("later"), None, ""),
        (torch.ones(2), with_attribute("later"), None, ""),
        (with_attribute("_dynamo_dynamic_indices"), torch.ones(2), None, ""),
        (torch.ones(3, 2).t(), torch.ones(2, 3), None, ""),
        (torch.ones(1, 3).expand(1, 3), torch.ones(1, 3), None, ""),
        (ROW.chunk(2), ROW.chunk(2), None, ""),
        (ROW.view(2, 4).chunk(2, 1), [torch.ones(2, 2)] * 2, None, ""),
        (ROW[::2], ROW, None, ""),
    ],
)
def test_an_output_that_is_no_plain_tensor_of_its_own(
    outputs: object, expected: object, error: type[Exception] | None, sentence: str
) -> None:
    with nullcontext() if error is None else pytest.raises(error, match=sentence):
        refuse_strange_tensors("mine", outputs, expected, work_left(expected))


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    ("make", "work", "repair"),
    [
        (lambda: ROW[:1].expand(8), "out of 'mine' is expanded", "it .contiguous()"),
        (lambda: [ROW, ROW.unsqueeze(0).expand(3, 8)], r"out[1] of 'mine' is expanded", "it .contiguous()"),
        (lambda: COMPLEX.conj(), "out of 'mine' is conjugated only when it is read", "it .resolve_conj()"),
        (lambda: torch._neg_view(ROW), "out of 'mine' is negated only when it is read", "it .resolve_neg()"),
        (
            lambda: torch.sparse_coo_tensor(torch.zeros(1, 2), torch.ones(2), (2,), check_invariants=True),
            "out of 'mine' is not coalesced",
            "it .coalesce()",
        ),
        (lambda: (ROW, ROW), "out[1] of 'mine' has elements that are one in memory with others", "a copy"),
        (lambda: [torch.ones(3), ROW[:5], ROW[4:]], "out[2] of 'mine' has elements that are one", "a copy"),
        (lambda: ROW.unfold(0, 4, 1), "out of 'mine' has elements that are one in memory", "a copy"),
    ],
)
def test_work_left_to_whoever_reads_an_output(make: Callable[[], object], work: str, repair: str) -> None:
    outputs = make()
    with pytest.raises(
        UnfairComparison,
        match=f"^{re.escape(work)}.*, as no output of the reference (is|does): return {re.escape(repair)}",
    ):
        refuse_strange_tensors("mine", outputs, None, ())
    assert refuse_strange_tensors("mine", outputs, None, work_left(make())) == set(work_left(outputs))


def test_work_that_the_reference_left_is_known_of_its_copies() -> None:
    agreement = agreement_of(lambda x: (x[:1] * 2).expand(8), ROW)
    expected, recorder = agreement.run_reference(), recorded(agreement.reference, agreement)
    refuse_strange_tensors("mine", ROW[:1].expand(8), expected.outputs, expected.left)
    assert recorder.last_of("mine", expected).copied().left == expected.left != frozenset()


class Opaque(torch.Tensor):
    """A tensor without memory, whose class does not say what it wraps."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Opaque":
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, *args: Any) -> Any:
        return args[2][0]


HOLDER = SimpleNamespace(keys=[torch.ones(2)], layer=SimpleNamespace(values=torch.ones(2)))


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (torch.ones(2).to_mkldnn(), "is a tensor of MKL-DNN, whose elements only"),
        (
            Opaque(torch.ones(2)),
            "is a tensor of class Opaque, whose elements only its own class can read: return a plain tensor",
        ),
        (
            SimpleNamespace(x=torch.ones(2)),
            "is an object of class SimpleNamespace, whose tensors are not compared: .* in args=",
        ),
        (
            SimpleNamespace(x=torch.ones(2), given=HOLDER),
            "is an object of class SimpleNamespace, whose tensors are not",
        ),
        (HOLDER, None),
        (HOLDER.layer, None),
        (SimpleNamespace(x=numpy.ones(2)), None),
        ((torch.ones(0), torch.eye(2).to_sparse(), "text", {1}, torch.float32), None),
    ],
)
def test_an_output_that_cannot_be_compared(returned: object, told: str | None) -> None:
    """But an object among the arguments may be returned, or a part of one: what it holds is compared as theirs."""
    agreement = agreement_of(lambda holder: returned, HOLDER)
    with nullcontext() if told is None else pytest.raises(BadRequest, match=f"^out of the reference '<lambda>' {told}"):
        agreement.run_reference()


def test_an_object_that_setup_gives_is_no_output() -> None:
    """Results that calls write there are not compared."""
    holder = SimpleNamespace(values=torch.ones(8))
    agreement = agreement_of(lambda x, holder: holder, setup=lambda: (ROW, holder))
    with pytest.raises(BadRequest, match=r"^out of the reference '<lambda>' is an object of class SimpleNamespace"):
        agreement.run_reference()


@dataclass
class Holder:
    value: object


async def sleeping() -> None: ...


HOLDS_ITSELF = Holder(None)
HOLDS_ITSELF.value = [HOLDS_ITSELF, io.StringIO("text")]
CYCLE: list[object] = [torch.ones(1)]
CYCLE.append(CYCLE)


@pytest.mark.parametrize("value", [CYCLE, Holder(CYCLE), HOLDS_ITSELF])
def test_a_container_that_holds_itself_is_refused(value: object) -> None:
    with pytest.raises(BadRequest, match=r"^the output of .*'<lambda>' has a container that holds itself"):
        agreement_of(lambda x: value, ROW).run_reference()
    with pytest.raises(BadRequest, match=r"^args.* has a container that holds itself"):
        agreement_of(lambda x: ROW, value).run_reference()


LATER: dict[str, Callable[[ThreadPool], object]] = {
    "generator": lambda pool: Holder(x for x in [1]),
    "coroutine": lambda pool: sleeping(),
    "map": lambda pool: (1, [map(abs, [1])]),
    "Future": lambda pool: {"x": concurrent.futures.Future[None]()},
    "torch's Future": lambda pool: torch.futures.Future(),
    "ApplyResult": lambda pool: pool.apply_async(abs, (1,)),
    "": lambda pool: HOLDS_ITSELF,  # a file can be iterated over, too, but its work is not that of the call
}


@pytest.mark.parametrize("kind", LATER)
def test_work_that_is_done_after_the_call_is_refused(kind: str) -> None:
    told = rf"^'<lambda>' returns a {kind.rpartition(' ')[2]}, whose work may not be done by then: "
    with ThreadPool(1) as pool, pytest.raises(BadRequest, match=told) if kind else nullcontext():
        bench.measure(lambda: LATER[kind](pool), timer="wall", device="cpu", cache="hot", reps=2)
