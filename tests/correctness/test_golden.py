"""Candidate and reference against golden, and golden itself."""

import dataclasses
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy
import pytest
import torch

from pytest_gpubench import BadRequest
from pytest_gpubench.correctness import Tolerance, compare_outputs, flatten, float64_by_default, widened
from tests.correctness.samples import COMPLEX, FLOAT8, FLOATS, Halved, State, compare


class TestGolden:
    golden = torch.linspace(1, 2, 1001, dtype=torch.float64)[:-1]

    @property
    def unit(self) -> float:
        return float(2.0**-7)  # bfloat16's last place from 1 to 2

    def off_by(self, errors: torch.Tensor | float) -> torch.Tensor:
        return (self.golden + errors).to(torch.float32)

    @pytest.mark.parametrize("factor", [1.0, 2.0, 5.0])
    def test_max_error_just_inside_and_outside(self, factor: float) -> None:
        """One element may be as wrong as the factor says, and the last place of float32 more."""
        reference, golden = torch.ones(1000), torch.ones(1000, dtype=torch.float64)
        reference[500] += 2**-10
        candidate = torch.ones(1000)
        candidate[7] += factor * 2**-10 + 2**-23
        options: dict[str, Any] = {"golden": golden, "golden_factor": factor}
        inside = compare(candidate, reference, **options)
        assert inside.passed, inside.sentence
        candidate[7] += 2**-23
        outside = compare(candidate, reference, **options)
        assert (outside.passed, outside.where, outside.mismatched) == (False, (7,), 1)
        assert outside.allowed == factor * 2**-10 + 2**-23
        assert outside.abs_diff == outside.allowed + 2**-23

    def test_rms_error_just_inside_and_outside(self) -> None:
        """As wrong everywhere as the reference is in one place is too wrong, though no element is."""
        golden = torch.ones(1000, dtype=torch.float64)
        reference, candidate = torch.ones(1000), torch.ones(1000)
        reference[0] += 2**-10
        allowed = 2 * 2**-10 / math.sqrt(1000) + 2**-23
        candidate += int(allowed / 2**-23) * 2**-23
        assert compare(candidate, reference, golden=golden).passed
        candidate += 2**-23
        difference = compare(candidate, reference, golden=golden)
        assert (difference.passed, difference.mismatched, difference.where) == (False, 0, None)
        assert difference.golden is not None
        assert difference.golden.allowed_rms_diff == pytest.approx(allowed)
        numbers = re.search(
            r"largest error is (\S+), the reference's (\S+); its RMS error (\S+), the reference's (\S+), allowed (\S+) "
            r"\((\S+) times",
            difference.sentence,
        )
        assert numbers
        assert [float(number) for number in numbers.groups()] == [
            pytest.approx(number, rel=5e-4)
            for number in dataclasses.astuple(difference.golden)[: len(numbers.groups())]
        ]

    @pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8, *COMPLEX])
    def test_where_the_reference_is_exact_one_unit_in_the_last_place_is_allowed(self, dtype: torch.dtype) -> None:
        real = dtype.to_real()
        values = torch.tensor([1.0, 2.0, 0.5, 8.0, 1.5, 0.0]).repeat(20).to(real)
        bits = values.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[real.itemsize])
        golden = values.to(dtype).to(torch.complex128 if dtype.is_complex else torch.float64)
        for steps, passed in ((0, True), (1, True), (2, False)):
            candidate = (bits + steps).view(real).to(dtype)
            assert compare(candidate, values.to(dtype), golden=golden).passed is passed, steps

    @pytest.mark.parametrize(("elements", "passed"), [(1, True), (99, True), (100, False)])
    def test_the_errors_of_few_elements_are_chance(self, elements: int, passed: bool) -> None:
        """A sum of millions is off by some last places in any order; here the reference happens to be exact."""
        golden = torch.full((elements,), 612.0, dtype=torch.float64)
        reference = golden.float()
        assert compare(reference * (1 + 1e-6), reference, golden=golden).passed is passed
        wrong = compare(reference * (1 + 2e-6), reference, golden=golden)
        assert not wrong.passed
        assert ("or 1.3e-06 of so few elements" in wrong.sentence) is passed

    def test_a_candidate_that_rounds_otherwise_passes_and_a_wrong_one_does_not(self) -> None:
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randn(64, 64, dtype=torch.float64, generator=generator) for _ in range(2))
        a, b = a.bfloat16().double(), b.bfloat16().double()
        reference = (a.float() @ b.float()).bfloat16()
        truncated = ((a @ b).float().view(torch.int32) & -(2**16)).view(torch.float32).bfloat16()
        assert compare(truncated, reference, golden=a @ b).passed
        assert not compare(reference * 1.01, reference, golden=a @ b).passed
        assert not compare(reference.roll(1), reference, golden=a @ b).passed

    @pytest.mark.parametrize(
        ("candidate", "reference", "golden", "passed"),
        [
            (math.inf, math.inf, 1e5, True),  # both overflow in float16
            (math.inf, 65504.0, 1e5, True),  # the reference saturates, golden's rounding does not
            (65504.0, math.inf, 1e5, False),
            (65504.0, math.inf, 65515.0, True),
            (65472.0, math.inf, 65515.0, False),
            (65472.0, math.inf, 65505.0, False),  # 33 off, and the last place is 32
            (65472.0, math.inf, 65503.0, True),
            (-math.inf, math.inf, 1e5, False),
            (math.inf, math.inf, math.inf, True),
            (-math.inf, math.inf, math.inf, False),
            (1.0, math.inf, math.inf, False),
            (1.0, math.inf, 1.0, True),  # better than the reference
            (2.0, math.inf, 1.0, False),
            (1.0, math.nan, 1.0, True),
            (2.0, math.nan, 1.0, False),
            (math.nan, math.nan, 1.0, False),
            (math.nan, 1.0, 1.0, False),
            (math.nan, math.nan, math.nan, False),
            (1.0, math.nan, math.nan, False),
        ],
    )
    def test_what_is_not_finite(self, candidate: float, reference: float, golden: float, passed: bool) -> None:
        """An error that is not finite in the reference excuses no other element, and none of another size."""
        found, expected = (torch.tensor([3.0, value], dtype=torch.float16) for value in (candidate, reference))
        truth = torch.tensor([3.0, golden], dtype=torch.float64)
        difference = compare(found, expected, golden=truth)
        assert difference.passed is passed
        if passed:
            assert compare(found + found.new_tensor([0.5, 0.0]), expected, golden=truth).where == (0,)
        lenient = compare(found, expected, golden=truth, tolerance=Tolerance(equal_nan=True))
        assert lenient.passed is (passed or (math.isnan(candidate) and math.isnan(reference)))

    def test_whole_numbers_must_be_the_reference_s_or_golden_s(self) -> None:
        reference, golden = torch.tensor([5, 900, 3]), torch.tensor([5, 100, 3])
        assert compare(reference, reference, golden=golden).passed
        assert compare(golden, reference, golden=golden).passed
        difference = compare(torch.tensor([5, 101, 3]), reference, golden=golden)
        assert (difference.passed, difference.where, difference.allowed) == (False, (1,), 0.0)

    @pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
    def test_structures_sparse_ones_and_plain_numbers(self) -> None:
        def outputs(error: float, dtype: torch.dtype) -> object:
            return {"x": (torch.eye(3, dtype=dtype) * (1 + error)).to_sparse_csr(), "y": 1.0 + error, "z": "text"}

        reference, golden = outputs(1e-4, torch.float32), outputs(0, torch.float64)
        assert all(one.passed for one in compare_outputs(outputs(1.9e-4, torch.float32), reference, golden=golden))
        failed = [
            one.name
            for one in compare_outputs(outputs(3e-4, torch.float32), reference, golden=golden)
            if not one.passed
        ]
        assert failed == ["out['x'].values()", "out['y']"]

    @pytest.mark.parametrize(
        ("golden", "dtype", "fits"),
        [
            (torch.float64, torch.float64, True),
            (torch.float64, torch.float32, True),
            (torch.float32, torch.float16, True),
            (torch.float32, torch.float8_e4m3fn, True),
            (torch.float16, torch.float8_e4m3fn, False),  # a hundred times finer
            (torch.float16, torch.bfloat16, False),
        ],
    )
    def test_golden_is_a_thousand_times_finer(self, golden: torch.dtype, dtype: torch.dtype, fits: bool) -> None:
        found = torch.ones(2).to(dtype)
        with nullcontext() if fits else pytest.raises(BadRequest, match="which cannot tell how wrong"):
            assert compare(found, found, golden=torch.ones(2).to(golden)).passed

    @pytest.mark.parametrize(
        ("golden", "options", "words"),
        [
            ((torch.ones(2).double(),), {}, "golden= lacks 'out'"),
            (torch.ones(3).double(), {}, r"golden 'out' has shape \(3,\), the reference's \(2,\)"),
            (torch.ones(2), {}, r"golden 'out' is float32, which cannot tell how wrong float32 is: give it in float64"),
            (torch.ones(2).long(), {}, "golden 'out' is int64"),
            (torch.ones(2, dtype=torch.complex128), {}, "golden 'out' is complex128"),
            (torch.ones(2).double().to_sparse(), {}, "golden 'out' is a torch.sparse_coo tensor"),
            ("float64", {}, "golden 'out' is a str, which the reference's is not"),
            (torch.ones(2).double(), {"tolerance": Tolerance(0.1, 0.1)}, "golden= and rtol=, atol= are two ways"),
        ],
    )
    def test_a_golden_that_does_not_fit_is_refused(self, golden: object, options: dict[str, Any], words: str) -> None:
        with pytest.raises(BadRequest, match=words):
            compare(torch.ones(2), torch.ones(2), golden=golden, **options)

    def test_the_text_has_both_errors(self) -> None:
        golden = torch.ones(4, dtype=torch.float64)
        reference = torch.ones(4) + 2**-12
        assert compare(reference, reference, golden=golden).line == (
            "out PASS max_diff=0.00024 (the reference's 0.00024)"
        )


def in_float64(function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object] | None = None) -> Any:
    """Return what a function returns for its arguments in float64."""
    wide, wide_kwargs = widened(args, kwargs)
    with float64_by_default():
        return function(*wide, **wide_kwargs)


class TestInFloat64:
    def test_floats_become_wide_and_nothing_else_does(self) -> None:
        x, index = torch.ones(3, requires_grad=True), torch.tensor([0, 2])
        half, pair = torch.ones(3).half(), torch.ones(3, dtype=torch.complex64)
        seen: dict[str, Any] = {}

        def function(*args: object, **kwargs: object) -> None:
            seen.update(flatten((args, kwargs), "seen"))

        in_float64(function, (x, State({"index": index}, half)), {"pair": [pair], "same": x, "n": 3})
        assert {name: getattr(leaf, "dtype", leaf) for name, leaf in seen.items()} == {
            "seen[0][0]": torch.float64,
            "seen[0][1].hidden['index']": torch.int64,
            "seen[0][1].cell": torch.float64,
            "seen[1]['pair'][0]": torch.complex128,
            "seen[1]['same']": torch.float64,
            "seen[1]['n']": 3,
        }
        assert seen["seen[0][0]"].requires_grad
        assert seen["seen[0][0]"].is_leaf
        assert seen["seen[1]['same']"] is seen["seen[0][0]"]
        assert not seen["seen[0][1].cell"].requires_grad
        assert half.dtype == torch.float16

    def test_parts_that_are_made_when_they_are_asked_for_are_not_taken_for_each_other(self) -> None:
        """Each would be freed before the next is made, in the same place."""
        containers = tuple(Halved(torch.full((3,), 2.0 * number)) for number in range(20))
        wide, _ = widened(containers)
        assert [float(each.part[0]) for each in wide] == list(range(20))  # type: ignore[attr-defined]

    def test_arrays_of_numpy_are_wide_too(self) -> None:
        given = numpy.ones(2, numpy.float32), numpy.float16(2), numpy.ones(2, int), numpy.array(["text"])
        wide, _ = widened(given)
        assert [numpy.asarray(each).dtype.kind + str(numpy.asarray(each).itemsize) for each in wide] == [
            "f8",
            "f8",
            "i8",
            "U16",
        ]
        assert not any(numpy.shares_memory(one, other) for one, other in zip(wide[:3], given[:3], strict=True))

    def test_strides_are_kept(self) -> None:
        in_float64(
            lambda x: pytest.fail("other strides") if x.stride() != (1, 4) else None, (torch.ones(3, 4).t().t().T,)
        )

    def test_dtypes_asked_for_and_made_inside_are_wide(self) -> None:
        def function(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
            return (x @ torch.ones(3)).to(dtype)

        assert in_float64(function, (torch.ones(2, 3), torch.float16)).dtype == torch.float64
        assert torch.get_default_dtype() == torch.float32

    def test_the_inputs_of_the_test_stay_as_they_are(self) -> None:
        def overwrite(*args: torch.Tensor) -> torch.Tensor:
            for arg in args:
                arg.zero_()
            raise KeyError("after all")

        inputs = torch.ones(2), torch.ones(2).double(), torch.ones(2).int()
        with pytest.raises(KeyError):
            in_float64(overwrite, inputs)
        assert all(bool((one == 1).all()) for one in inputs)
        assert torch.get_default_dtype() == torch.float32
