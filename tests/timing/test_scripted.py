"""Scripted samples: any numbers, converted to floats when a function is decorated."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from pytest_gpubench import BadRequest, scripted
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.calls import make_call


@pytest.mark.parametrize(
    "samples",
    [(2, 3), (np.float64(2), np.float32(3)), (Fraction(2), Fraction(3)), np.array([2.0, 3.0]), (np.int64(2), 3)],
)
def test_numbers_become_floats(samples: Any) -> None:
    found = [rep.elapsed_us for rep in reps_of(scripted(samples)(lambda: 0), 2)]
    assert found == [2.0, 3.0]
    assert all(type(each) is float for each in found)


def test_the_script_is_that_of_the_code_that_runs() -> None:
    """A partial may have one of its own."""

    class Scripted:
        @scripted([4.0])
        def __call__(self) -> None: ...

        @scripted([5.0])
        def method(self) -> None: ...

    made = Scripted()
    given = partial(scripted([6.0])(partial(made)))
    functions: list[Callable[[], object]] = [made, made.method, partial(made), partial(partial(made.method)), given]
    assert [reps_of(each, 1)[0].elapsed_us for each in functions] == [4.0, 5.0, 4.0, 5.0, 6.0]


def reps_of(function: Callable[[], object], number: int) -> Sequence[Rep]:
    call = make_call(function)
    with make_timer("scripted", cpu_device(), "hot").session() as session:
        for _ in range(number):
            session.take(call, 0.0)
    return session.reps()


@pytest.mark.parametrize(
    "samples", [[], [True], [np.True_], ["10"], "10", 5, None, [None], [1e308], [10**400], [0], [-1], [float("nan")]]
)
def test_other_samples_are_refused(samples: Any) -> None:
    with pytest.raises(BadRequest, match=r"^scripted\(samples_us=.*\): it takes at least one sample, each a number"):
        scripted(samples)


@pytest.mark.parametrize("kernels", [[], 5, [5], None, ""])
def test_kernels_are_names(kernels: Any) -> None:
    with pytest.raises(BadRequest, match=r"^scripted\(kernels=.*\): it takes names of kernels, at least one"):
        scripted([1.0], kernels)


@pytest.mark.parametrize("function", [max, int])
def test_a_function_that_takes_no_attribute_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(BadRequest, match="takes no attribute; wrap it in a function"):
        scripted([1.0])(function)


def test_a_producer_runs_before_each_call_and_one_name_is_one_kernel() -> None:
    calls: list[str] = []

    @scripted([1.0], "softmax")
    def timed() -> None:
        calls.append("timed")

    call = make_call(timed)
    producer = Producer(lambda: calls.append("produced"))
    with make_timer("scripted", cpu_device(), producer).session() as session:
        session.take(call, 0.0)
        session.take(call, 0.0)
    assert calls == ["produced", "timed"] * 2
    assert [record.name for rep in session.reps() for record in rep.records] == ["softmax"] * 2
