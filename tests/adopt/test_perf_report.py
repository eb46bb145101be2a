"""The cases of perf_report objects, and their references."""

import pytest
from triton.testing import Benchmark, Mark

from pytest_gpubench import BadRequest
from pytest_gpubench.adopt.perf_report import reference_of
from pytest_gpubench.adopt.timers import Timed
from pytest_gpubench.plugin.adopted import all_cases


def bench(x_names: list[str], x_vals: list[object], plot_name: str = "plot", **args: object) -> Benchmark:
    return Benchmark(x_names, x_vals, "p", ["torch", True], ["Torch", "Mine"], plot_name, args)


def function(**keywords: object) -> None:
    pass


@pytest.mark.parametrize(
    ("benchmarks", "names", "params", "keywords"),
    [
        (bench(["N"], [8, 16], M=4), ["[8]", "[16]"], {"N": 8, "M": 4}, {"N": 8, "M": 4}),
        (bench(["M", "N"], [8]), ["[8]"], {"M=N": 8}, {"M": 8, "N": 8}),
        (bench(["B", "T"], [(2, 8), [4, 8]]), ["[2-8]", "[4-8]"], {"B": 2, "T": 8}, {"B": 2, "T": 8}),
        ([bench(["N"], [8], "fwd")], ["[fwd-8]"], {"N": 8, "plot": "fwd"}, {"N": 8}),
        ([bench(["N"], [8]), bench(["N"], [8])], ["[plot-8]", "[plot-8-2]"], {"N": 8, "plot": "plot"}, {"N": 8}),
    ],
)
def test_a_case_is_an_x_value(
    benchmarks: object, names: list[str], params: dict[str, object], keywords: dict[str, object]
) -> None:
    cases = all_cases({"run": Mark(function, benchmarks), "other": 3})
    assert [case.name for case in cases] == [f"run{each}" for each in names]
    assert cases[0].params == params
    assert cases[0].keywords == keywords
    assert cases[0].providers == {"torch": "torch", "Mine": True}


def test_an_object_of_two_names_is_collected_once() -> None:
    mark = Mark(function, bench(["N"], [8]))
    assert [case.name for case in all_cases({"first": mark, "second": mark})] == ["second[8]"]


@pytest.mark.parametrize(
    ("names", "reference"),
    [
        (["triton", "torch"], "torch"),
        (["triton", "torch-compile", "torch"], "torch-compile"),
        (["liger", "PyTorch"], "PyTorch"),
        (["fused", "naive_softmax"], "naive_softmax"),
        (["mine", "prefix", "torchlike"], "mine"),
        (["cublas", "triton"], "cublas"),
    ],
)
def test_the_reference_is_the_first_that_is_called_so_or_the_first(names: list[str], reference: str) -> None:
    assert reference_of(names) == reference


def test_a_chosen_reference_has_to_be_a_provider() -> None:
    assert reference_of(["torch", "triton"], "triton") == "triton"
    with pytest.raises(BadRequest, match="reference='apex' is no provider: they are torch, triton"):
        reference_of(["torch", "triton"], "apex")


def test_providers_draw_the_same_inputs() -> None:
    import torch
    from triton.testing import do_bench

    def draw(N: int, p: str) -> None:
        x = torch.randn(N)
        do_bench(lambda: x)

    (case,) = all_cases({"a": Mark(draw, bench(["N"], [3]))})
    one, two = (case.capture(name, print) for name in case.providers)
    assert isinstance(one, Timed)
    assert isinstance(two, Timed)
    assert one.function().equal(two.function())
