"""References for which a candidate need compute nothing, and what their first results are compared with."""

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy
import pytest
import torch

from pytest_gpubench import BadRequest, UnfairComparison, WrongResult
from pytest_gpubench.bench.guarded import GuardedCall
from pytest_gpubench.timing.calls import Backward
from tests.bench.calls import agreement_of, double

X = torch.arange(4.0)


@pytest.mark.parametrize(
    ("outputs", "raised", "noted"),
    [
        (torch.full((3,), 1e-6), True, False),
        ((torch.full((3,), 1e-6), torch.zeros(2)), True, False),
        ((torch.full((3,), 1e-6), torch.ones(2)), False, True),
        ((torch.full((3,), 1e-6), torch.arange(2)), False, True),
        (numpy.full(3, 1e-6, numpy.float32), True, False),
        (torch.zeros(3), False, False),
        (torch.ones(3), False, False),
        (torch.arange(3.0), False, False),
        (3, False, False),
    ],
)
def test_outputs_that_zeros_would_match(outputs: object, raised: bool, noted: bool) -> None:
    agreement = agreement_of(lambda: outputs)
    with (
        pytest.raises(
            UnfairComparison, match=r"^a candidate that computes nothing would pass: .* would tell \(or golden"
        )
        if raised
        else nullcontext()
    ):
        agreement.refuse_flat(agreement.run_reference())
    assert bool(agreement.remarks) is noted
    replace(agreement, golden="float64").refuse_flat(agreement.run_reference())


def test_an_argument_that_zeros_would_match_has_its_name() -> None:
    agreement = agreement_of(lambda x: x.mul_(1e-6), torch.ones(3))
    with pytest.raises(UnfairComparison, match=r"would pass: out lies .*; args\[0\] lies "):
        agreement.refuse_flat(agreement.run_reference())


def test_an_argument_that_is_returned_unwritten_is_looked_at_before_the_reference_is_called_again() -> None:
    agreement = agreement_of(lambda x, out: torch.mul(x, 2, out=out), torch.ones(3), torch.zeros(3))
    expected = agreement.run_reference()
    with pytest.raises(WrongResult, match=r"^mine is wrong: out: 3 of 3 elements"):
        agreement.check("mine", lambda x, out: out, expected)


@pytest.mark.parametrize(
    ("errors", "hinted"), [((1e-4,), True), ((1.0,), False), ((1e-4, 1e-4), True), ((1e-4, 1.0), False)]
)
def test_only_what_may_all_be_rounding_says_how_to_judge_rounding(errors: tuple[float, ...], hinted: bool) -> None:
    agreement = agreement_of(lambda x: tuple(double(x) for _ in errors), torch.arange(8.0))
    with pytest.raises(WrongResult) as caught:
        agreement.check("near", lambda x: tuple(double(x) + error for error in errors), agreement.run_reference())
    hint = '; if only rounding differs, compare with golden="float64", or give rtol= and atol='
    assert str(caught.value).endswith(hint) is hinted
    assert str(caught.value).count("rounding") == hinted


def test_what_the_reference_returned_at_first_is_no_output_of_a_candidate() -> None:
    kept = torch.empty(4)
    hidden = itertools.repeat(kept)  # what functions hold would be put back
    agreement = agreement_of(lambda x: torch.mul(x, 2, out=next(hidden)), torch.arange(4.0))
    expected = agreement.run_reference()
    with pytest.raises(UnfairComparison, match=r"^out of 'mine' is memory of the reference's out"):
        agreement.check("mine", lambda x: next(hidden), expected)


def test_an_input_is_no_output_of_a_candidate_where_the_reference_fills_a_buffer_of_its_own() -> None:
    """That the buffer is put back as inputs are does not make it one."""
    out = torch.zeros(4)
    agreement = agreement_of(lambda x: torch.mul(x, 1, out=out), torch.arange(4.0))
    expected = agreement.run_reference()
    with pytest.raises(UnfairComparison, match=r"^out of 'mine' is memory of args\[0\], .*: return a copy$"):
        agreement.check("mine", lambda x: x, expected)
    agreement.check("mine", torch.clone, expected)


def test_each_output_may_be_an_input_where_that_of_the_reference_is_one() -> None:
    agreement = agreement_of(lambda x: (x, x.clone()), torch.arange(4.0))
    expected = agreement.run_reference()
    with pytest.raises(UnfairComparison, match=r"^out\[1\] of 'mine' is memory of args\[0\], .*: return a copy$"):
        agreement.check("mine", lambda x: (x, x), expected)
    agreement.check("mine", lambda x: (x, x.clone()), expected)


def fill(x: torch.Tensor, cache: Any) -> torch.Tensor:
    cache.keys[0].copy_(x)
    return x * 2


def train(x: torch.Tensor, holder: Any, factor: float = 1.0) -> Any:
    loss = (x * holder.weight).sum()
    (factor * loss).backward()
    return loss.detach()


def drop(x: torch.Tensor, holder: Any) -> torch.Tensor:
    holder.weight.grad = None
    return x * 2


def train_sparse(x: torch.Tensor, holder: Any, coalesce: bool = False, factor: float = 1.0) -> Any:
    loss: Any = torch.nn.functional.embedding(torch.tensor([1, 1, 2]), holder.weight, sparse=True).sum() + x.sum()
    (factor * loss).backward()
    if coalesce:
        holder.weight.grad = holder.weight.grad.coalesce()
    return loss.detach()


def sparse_of() -> SimpleNamespace:
    return SimpleNamespace(weight=torch.ones(4, 2, requires_grad=True))


def sparse_with_gradient() -> SimpleNamespace:
    holder = sparse_of()
    train_sparse(X, holder)
    return holder


def zero(x: torch.Tensor, holder: Any) -> torch.Tensor:
    gradient = holder.weight.grad
    (gradient._values() if gradient.is_sparse else gradient).zero_()
    return x * 2


def write_sparse(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y._values().zero_()
    return x * 2


def cache_of() -> SimpleNamespace:
    return SimpleNamespace(keys=[torch.zeros(4), torch.zeros(4)], length=0)


def exchange(x: torch.Tensor, cache: Any) -> torch.Tensor:
    cache.keys[0] = x * 1
    return x * 2


def append(x: torch.Tensor, cache: Any) -> torch.Tensor:
    getattr(cache, "keys", cache).append(x * 1)
    return x * 2


def advance(x: torch.Tensor, cache: Any) -> torch.Tensor:
    cache.length += 1
    return x * 2


def layer_of() -> SimpleNamespace:
    return SimpleNamespace(_space=None, _spaces={}, _keys=[])


def work(x: torch.Tensor, layer: Any) -> torch.Tensor:
    layer._space, layer._new, layer._spaces[4] = x + 1, x + 1, x + 1
    return x * 2


def work_openly(x: torch.Tensor, layer: Any) -> torch.Tensor:
    layer.space = x + 1
    return x * 2


def work_by_name(x: torch.Tensor, spaces: Any, factor: float = 1.0) -> torch.Tensor:
    spaces["layer._space"] = x + factor
    return x * 2


def keep(x: torch.Tensor, layer: Any) -> torch.Tensor:
    layer._keys.append(x * 1)
    return x * 2


def holder_of(gradient: torch.Tensor | None = None) -> SimpleNamespace:
    holder = SimpleNamespace(weight=torch.ones(4, requires_grad=True))
    holder.weight.grad = gradient
    return holder


@pytest.mark.parametrize("backward", ["forward", "both"])
@pytest.mark.parametrize(
    ("reference", "candidate", "other", "told"),
    [
        (fill, fill, cache_of, None),
        (fill, lambda x, cache: x * 2, cache_of, ".keys[0]: the candidate leaves it"),
        (fill, lambda x, cache: fill(x, cache) + cache.keys[1].copy_(x) * 0, cache_of, ".keys[1]: the c"),
        (fill, lambda x, cache: fill(x + 1, cache) - 2, cache_of, ".keys[0]: 4 of 4 elements"),
        (exchange, exchange, cache_of, None),
        (exchange, fill, cache_of, None),
        (fill, exchange, cache_of, None),
        (exchange, lambda x, cache: exchange(x + 1, cache) - 2, cache_of, ".keys[0]: 4 of 4 elements"),
        (exchange, lambda x, cache: x * 2, cache_of, ".keys[0]: the candidate leaves it"),
        (append, append, cache_of, None),
        (append, lambda x, cache: append(x + 1, cache) - 2, cache_of, ".keys[2]: 4 of 4 elements"),
        (append, lambda x, cache: x * 2, cache_of, ".keys[2]: the candidate leaves nothing"),
        (lambda x, cache: x * 2, append, cache_of, ".keys[2]: the candidate overwrites it"),
        (append, append, list, None),
        (append, lambda x, cache: append(x + 1, cache) - 2, list, "[0]: 4 of 4 elements"),
        (advance, advance, cache_of, None),
        (advance, lambda x, cache: x * 2, cache_of, ".length: the candidate leaves it"),
        (advance, lambda x, cache: advance(advance(x, cache) / 2, cache), cache_of, ".length: found 2, exp"),
        (lambda x, layer: x * 2, work, layer_of, None),
        (lambda x, layer: x * 2, work_openly, layer_of, ".space: the cand"),
        (work_by_name, work_by_name, dict, None),
        (work_by_name, lambda x, spaces: work_by_name(x, spaces, 2), dict, "['layer._space']: 4 of 4 elements"),
        (keep, lambda x, layer: keep(keep(x, layer) / 2, layer), layer_of, "._keys[1]: the candidate overwrites it"),
        (train, train, holder_of, None),
        (train, lambda x, holder: x.sum(), holder_of, ".weight.grad: the candidate leaves it"),
        (train, lambda x, holder: train(x, holder, 2.0), holder_of, ".weight.grad: 3 of 4 elements"),
        (train, lambda x, holder: train(x, holder, 2.0), lambda: holder_of(X + 1), ".weight.grad: 3 of 4"),
        (lambda x, holder: x.sum(), train, holder_of, ".weight.grad: the candidate overwrites it"),
        (lambda x, y: y.grad.copy_(x) + 1, lambda x, y: x + 1, lambda: SimpleNamespace(grad=X * 0), ".grad: the cand"),
        (drop, drop, lambda: holder_of(X + 1), None),
        (zero, drop, lambda: holder_of(X + 1), ".weight.grad: the candidate leaves nothing"),
        (drop, zero, lambda: holder_of(X + 1), ".weight.grad: the reference leaves nothing"),
        (zero, zero, sparse_with_gradient, None),
        (zero, drop, sparse_with_gradient, ".weight.grad.values(): the candidate leaves nothing"),
        (drop, zero, sparse_with_gradient, ".weight.grad: the reference leaves nothing"),
        (drop, lambda x, holder: x * 2, lambda: holder_of(X + 1), ".weight.grad: the reference leaves nothing"),
        (lambda x, holder: x * 2, drop, lambda: holder_of(X + 1), ".weight.grad: the candidate leaves nothing"),
        (train_sparse, partial(train_sparse, coalesce=True), sparse_of, None),
        (train_sparse, partial(train_sparse, factor=2.0), sparse_of, ".weight.grad.values(): "),
        (train_sparse, train_sparse, sparse_with_gradient, None),
        (train_sparse, partial(train_sparse, factor=2.0), sparse_with_gradient, ".weight.grad.values(): 4 of 4 elem"),
        (lambda x, y: x * 2, write_sparse, X.to_sparse, ".values(): the candidate overwrites it"),
    ],
)
def test_what_an_object_among_the_arguments_holds_and_gradients_are_outputs(
    reference: Callable[..., object],
    candidate: Callable[..., object],
    other: Callable[[], object],
    told: str | None,
    backward: Backward,
) -> None:
    """Also in memory with margins. Where a backward run is timed it leaves gradients itself: they are no outputs."""
    agreement = agreement_of(reference, torch.arange(4.0), other(), backward=backward)
    is_wrong = told is not None and (backward == "forward" or "weight" not in told)
    expected = agreement.run_reference()
    wrong = re.escape(f"mine is wrong: args[1]{told}")
    with pytest.raises(WrongResult, match=f"^{wrong}") if is_wrong else nullcontext():
        agreement.check("mine", candidate, expected)
        GuardedCall(agreement, "mine", candidate, expected, None).check()
    name = "args[1]" + (told or "").split(":")[0].replace("grad.values()", "grad")
    agreement = agreement_of(reference, torch.arange(4.0), other(), backward=backward, overwrites=(name,))
    agreement.check("mine", candidate, agreement.run_reference())


@pytest.mark.parametrize("given", [None, torch.ones(4)])
def test_a_gradient_that_the_reference_returns_is_compared_as_its_output(given: torch.Tensor | None) -> None:
    def through_autograd(x: Any) -> torch.Tensor:
        x.grad = None
        x.sin().sum().backward()
        return cast(torch.Tensor, x.grad)

    x = torch.arange(4.0, requires_grad=True)
    x.grad = given
    agreement = agreement_of(through_autograd, x)
    expected = agreement.run_reference()
    agreement.check("mine", lambda x: x.detach().cos(), expected)
    agreement.check("mine", through_autograd, expected)
    with pytest.raises(WrongResult, match=r"^mine is wrong: out: 3 of 4 elements"):
        agreement.check("mine", lambda x: x.detach() + 1, expected)


@pytest.mark.parametrize("backward", ["forward", "both"])
@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_sparse_gradient_is_compared_as_the_output_or_the_backward_runs(
    has_gradient: bool, backward: Backward
) -> None:
    def through_autograd(x: torch.Tensor, holder: Any) -> Any:
        if has_gradient:
            holder.weight.grad._values().fill_(5)
        else:
            train_sparse(x, holder, coalesce=True)
        return holder.weight.grad if backward == "forward" else x * 2

    def directly(x: torch.Tensor, holder: Any) -> Any:
        made = SimpleNamespace(weight=holder.weight.detach().requires_grad_())
        made.weight.grad = holder.weight.grad.clone() if has_gradient else None
        return through_autograd(x, made)

    holder = sparse_of()
    if has_gradient:
        train_sparse(X, holder, coalesce=True)
    agreement = agreement_of(through_autograd, X, holder, backward=backward)
    expected = agreement.run_reference()
    agreement.check("mine", directly, expected)
    with pytest.raises(WrongResult, match=r"^mine is wrong: out"):
        agreement.check("mine", lambda x, holder: directly(x, holder) * 3, expected)


def test_a_reference_without_room_for_one_more_call_leaves_the_candidate_wrong() -> None:
    calls = itertools.count()

    def reference(x: torch.Tensor) -> torch.Tensor:
        if next(calls):
            raise torch.OutOfMemoryError("no room")
        return x * 2

    agreement = agreement_of(reference, X)
    with pytest.raises(WrongResult, match=r"^mine is wrong: out: 3 of 4 elements"):
        agreement.check("mine", lambda x: x * 3, agreement.run_reference())


def test_a_candidate_that_changes_what_the_reference_uses_is_named_too() -> None:
    state = {"scale": 2.0}
    agreement = agreement_of(lambda x: x * state["scale"], X)
    told = r" 3 of 4 elements\), or mine changed what it uses \(out FAIL max_diff=6, 3 of 4 elements\), so nothing can"
    with pytest.raises(UnfairComparison, match=f"^the reference '<lambda>' computes something else when .*{told}"):
        agreement.check("mine", lambda x: state.update(scale=3.0) or x * 0, agreement.run_reference())


def test_a_reference_that_leaves_something_else_in_each_call_is_told_how_to_leave_that_out() -> None:
    times = itertools.count(1.0)
    agreement = agreement_of(lambda x, seen: seen.append(next(times)) or x * 2, X, [])
    told = r"; if args\[1\]\[0\] need not agree, give overwrites=\('args\[1\]\[0\]',\)$"
    with pytest.raises(UnfairComparison, match=told):
        agreement.check("mine", agreement.reference, agreement.run_reference())


@pytest.mark.parametrize("make", [object, lambda: MappingProxyType({"a": torch.ones(2)})])
def test_an_object_that_is_never_equal_to_another_is_to_be_left_out(make: Callable[[], object]) -> None:
    agreement = agreement_of(lambda x: (x * 2, make()), X)
    told = rf"^out\[1\] of the reference '<lambda>' is an object of class {type(make()).__name__}, .*: leave it out$"
    with pytest.raises(UnfairComparison, match=told):
        agreement.check("mine", agreement.reference, agreement.run_reference())


def test_golden_has_the_gradients_that_a_call_leaves() -> None:
    x, weight = torch.arange(4.0), torch.ones(4, requires_grad=True)
    step = lambda x, weight: train(x, SimpleNamespace(weight=weight))  # noqa: E731
    agreement = replace(agreement_of(step, x, weight), golden="float64")
    found = agreement.check("mine", step, agreement.run_reference())
    assert [(each.name, each.golden is not None) for each in found] == [("out", True), ("args[1].grad", True)]


def test_a_reference_that_cannot_be_given_float64_says_what_to_do() -> None:
    agreement = replace(agreement_of(torch.nn.Linear(4, 2), torch.arange(4.0)), golden="float64")
    with pytest.raises(RuntimeError) as caught:
        agreement.check("mine", agreement.reference, agreement.run_reference())
    (note,) = getattr(caught.value, "__notes__", [])
    assert note.startswith('gpu_bench: raised by the reference in the run of golden="float64"')
    assert note.endswith("give these in args= too, or a function as golden=")


@pytest.mark.parametrize("count", [itertools.count(1), itertools.repeat(2)])
def test_a_reference_that_computes_something_else_in_each_call_is_named_instead_of_the_candidate(
    count: Iterator[int],
) -> None:
    agreement = agreement_of(lambda x: x * next(count), torch.arange(4.0))
    is_repeated = next(count) == next(count)
    with pytest.raises(WrongResult if is_repeated else UnfairComparison) as caught:
        agreement.check("mine", lambda x: x * 9, agreement.run_reference())
    assert str(caught.value).startswith(
        "mine is wrong" if is_repeated else "the reference '<lambda>' computes something"
    )


def in_place(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2)


@pytest.mark.parametrize("again", [False, True])
def test_golden_is_not_given_the_memory_that_outputs_lie_in(again: bool) -> None:
    x = torch.arange(4.0)
    agreement = replace(agreement_of(in_place, setup=lambda: (x if again else x.clone(),)), golden="float64")
    agreement.check("mine", in_place, agreement.run_reference())


@pytest.mark.parametrize("who", ["the reference 'reference'", "'mine'", "golden=", "setup"])
def test_every_function_has_to_leave_switches_as_it_found_them_but_setup(who: str) -> None:
    """As it found them when the comparison began."""
    threads = torch.get_num_threads()

    def acting(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
        def reference(x: torch.Tensor) -> torch.Tensor:
            torch.set_num_threads(threads + 2 if name == who else torch.get_num_threads())
            return x.double() * 2

        return reference

    def setup() -> tuple[torch.Tensor]:
        acting("setup")(X)
        return (X,)

    given: dict[str, Any] = {"setup": setup} if who == "setup" else {}
    agreement = agreement_of(acting("the reference 'reference'"), *([] if given else [X]), **given)
    agreement = replace(agreement, golden=acting("golden="))
    torch.set_num_threads(threads + 1)
    refused = pytest.raises(UnfairComparison, match=rf"^{who} changed torch\.set_num_threads from {threads + 1}")
    try:
        with nullcontext() if who == "setup" else refused, agreement.leaving_state():
            agreement.check("mine", acting("'mine'"), agreement.run_reference())
        assert torch.get_num_threads() == threads + 1 + (who == "setup")
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("golden", ["float64", lambda x: x.detach().double() * 2])
def test_golden_has_the_gradients_of_the_references_outputs_unless_it_is_a_function(golden: Any) -> None:
    agreement = agreement_of(double, torch.arange(4.0, requires_grad=True))
    agreement = replace(agreement, golden=golden, grads=True)
    expected = agreement.run_reference()
    found = agreement.check("mine", lambda x: x + x, expected)
    by_golden = golden == "float64"
    assert [(each.name, each.golden is not None) for each in found] == [("out", True), ("grad args[0]", by_golden)]
    with pytest.raises(WrongResult, match=r"^mine is wrong: grad args\[0\]: 4 of 4|against golden"):
        agreement.check("mine", lambda x: x + x.detach(), expected)


@pytest.mark.parametrize(("factor", "is_doubted"), [(2.0, False), (2.1, False), (3.0, True)])
def test_a_golden_that_disagrees_with_the_reference_is_doubted(factor: float, is_doubted: bool) -> None:
    agreement = replace(agreement_of(double, X), golden=lambda x: x.double() * factor)
    agreement.check("mine", double, agreement.run_reference())
    assert [each.startswith("golden= and the reference disagree") for each in agreement.remarks] == [True] * is_doubted


def with_seed() -> tuple[torch.Tensor]:
    torch.manual_seed(3)
    return (torch.ones(1000),)


@pytest.mark.parametrize("setup", [None, with_seed, lambda: (torch.rand(1000) + 0.5,)])
def test_every_call_draws_the_same_and_the_test_draws_on_where_it_was(setup: Callable[[], object] | None) -> None:
    drop, state = torch.nn.functional.dropout, torch.get_rng_state()
    agreement = agreement_of(lambda x: drop(x, 0.5), *([] if setup else [torch.ones(1000)]), setup=setup)
    with agreement.leaving_state():
        expected = agreement.run_reference()
        agreement.check("mine", lambda x: x * drop(torch.ones(1000), 0.5), expected)
        with pytest.raises(WrongResult, match=r"^less is wrong: out: "):
            agreement.check("less", lambda x: drop(x, 0.4) * 1.2, expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_candidate_without_gradients_is_wrong_and_a_reference_without_them_a_bad_request() -> None:
    agreement = replace(agreement_of(double, torch.arange(4.0, requires_grad=True)), grads=True)
    with pytest.raises(WrongResult, match=r"^mine is wrong: grad args\[0\]: found NoneType, .*, undetached if"):
        agreement.check("mine", lambda x: x.detach() * 2, agreement.run_reference())
    with pytest.raises(BadRequest, match=r"^grads=True compares .*, or the reference's outputs have none"):
        replace(agreement, reference=lambda x: x.detach() * 2).run_reference()


def test_a_list_that_is_an_argument_too_is_returned_as_the_call_left_it() -> None:
    agreement = agreement_of(lambda kept: kept.append(X) or kept, [])
    agreement.run_reference()
    ran = agreement.run_with(agreement.reference, "mine", *agreement.fresh())
    agreement.fresh()
    assert ran.outputs == [X]
