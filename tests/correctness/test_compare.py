"""Candidate against reference: what passes, and what cannot even be compared."""

import math

import numpy
import pytest
import torch

from pytest_gpubench.correctness import Tolerance, chunks, compare_outputs
from tests.correctness.samples import COMPLEX, FLOATS, INTEGERS, compare


class TestLimits:
    """Every limit just inside and just outside."""

    @pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
    def test_whole_numbers_must_be_equal(self, dtype: torch.dtype) -> None:
        one, other = torch.tensor([1, 0, 1]).to(dtype), torch.tensor([1, 1, 1]).to(dtype)
        assert compare(one, one).passed
        difference = compare(one, other)
        assert (difference.passed, difference.where, difference.max_abs_diff) == (False, (1,), 1.0)
        assert (difference.found, difference.expected) == (one[1].item(), other[1].item())
        assert compare(one, other, tolerance=Tolerance(0.0, 1.0)).passed
        assert not compare(one, other, tolerance=Tolerance(0.0, 0.999)).passed

    @pytest.mark.parametrize(
        ("dtype", "one", "other", "diff"),
        [
            (torch.int64, -(2**63), 2**63 - 1, 2.0**64),
            (torch.int64, 2**63 - 1, -(2**63), 2.0**64),
            (torch.int64, 2**53, 2**53 + 1, 1.0),
            (torch.int64, -1, 0, 1.0),
            (torch.int64, -(2**62), 2**62, 2.0**63),
            (torch.uint64, 0, 2**64 - 1, 2.0**64),
            (torch.uint64, 2**63, 2**63 - 1, 1.0),
            (torch.uint64, 2**64 - 1, 2**64 - 2, 1.0),
            (torch.int32, -(2**31), 2**31 - 1, 2.0**32 - 1),
            (torch.int8, -128, 127, 255.0),
            (torch.uint8, 0, 255, 255.0),
        ],
    )
    def test_integers_do_not_overflow(self, dtype: torch.dtype, one: int, other: int, diff: float) -> None:
        found, expected = torch.tensor([one], dtype=dtype), torch.tensor([other], dtype=dtype)
        difference = compare(found, expected)
        assert (difference.max_abs_diff, difference.found, difference.expected) == (diff, one, other)
        assert f"found {one}, expected {other}" in difference.sentence
        assert compare(found, expected, tolerance=Tolerance(0.0, diff)).passed
        assert not compare(found, expected, tolerance=Tolerance(0.0, math.nextafter(diff, 0))).passed

    @pytest.mark.parametrize(
        ("found", "expected", "passed", "passed_equal_nan"),
        [
            (math.nan, math.nan, False, True),
            (math.nan, 1.0, False, False),
            (1.0, math.nan, False, False),
            (math.nan, math.inf, False, False),
            (math.inf, math.inf, True, True),
            (-math.inf, -math.inf, True, True),
            (math.inf, -math.inf, False, False),
            (math.inf, 1.0, False, False),
            (1.0, math.inf, False, False),
            (-1.0, -math.inf, False, False),
        ],
    )
    @pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX, torch.float8_e5m2])
    def test_what_is_not_finite(
        self, dtype: torch.dtype, found: float, expected: float, passed: bool, passed_equal_nan: bool
    ) -> None:
        """Infinity is near nothing but itself, however wide the tolerance; nan not even near itself, unless asked."""
        one, other = (torch.tensor([1.0, value]).to(dtype) for value in (found, expected))
        for rtol, atol in ((None, None), (0.0, 0.0), (0.5, 1e300), (2.0, 0.0)):
            difference = compare(one, other, tolerance=Tolerance(rtol, atol))
            assert difference.passed is passed, (rtol, atol)
            with_nan = compare(one, other, tolerance=Tolerance(rtol, atol, equal_nan=True))
            assert with_nan.passed is passed_equal_nan, (rtol, atol)
            if not passed:
                assert (difference.mismatched, difference.where) == (1, (1,))
                assert difference.max_abs_diff is not None
                assert math.isnan(difference.max_abs_diff) == (math.isnan(found) or math.isnan(expected))

    @pytest.mark.parametrize("dtype", COMPLEX)
    def test_complex(self, dtype: torch.dtype) -> None:
        expected = torch.tensor([3 + 4j, 1j], dtype=dtype)
        found = expected + torch.tensor([0, 0.3 + 0.4j], dtype=dtype)
        difference = compare(found, expected)
        assert difference.abs_diff == pytest.approx(0.5)
        assert (difference.where, difference.expected) == ((1,), 1j)
        assert compare(found, expected, tolerance=Tolerance(0.0, 0.51)).passed
        assert not compare(found, expected, tolerance=Tolerance(0.0, 0.49)).passed
        assert compare(expected.conj(), torch.tensor([3 - 4j, -1j], dtype=dtype)).passed
        assert not compare(expected.conj(), expected).passed
        assert compare(expected.conj().imag, torch.tensor([-4.0, -1.0], dtype=expected.real.dtype)).passed

    @pytest.mark.parametrize("name", ["float8_e8m0fnu", "float4_e2m1fn_x2"])
    def test_exponents_and_packed_floats_must_be_equal(self, name: str) -> None:
        if not hasattr(torch, name):
            pytest.skip(f"torch {torch.__version__} has no {name}")
        bits, dtype = torch.tensor([127, 128], dtype=torch.uint8), getattr(torch, name)
        assert compare(bits.view(dtype), bits.view(dtype)).passed
        assert compare(bits.view(dtype), bits.flip(0).view(dtype)).mismatched == 2


ARRAY = numpy.array([0.1, 0.2, 0.3], numpy.float32)


class EqualToAll:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class EqualInteger(int):
    __eq__ = EqualToAll.__eq__
    __hash__ = int.__hash__


@pytest.mark.parametrize(
    ("found", "expected", "passes"),
    [
        (EqualToAll(), 2.5, False),
        (EqualToAll(), 2, False),
        (EqualToAll(), None, False),
        (EqualToAll(), "text", False),
        (EqualInteger(1), 2, False),
        (EqualToAll(), EqualToAll(), True),
        (2, 2.0, True),
        (True, 1, True),
        (1.0, 1.0 + 1e-9, True),
        (1.0, 1.0 + 1e-6, False),
        (math.nan, math.nan, False),
        (1j, 1j + 1e-9, True),
        (2**70, 2**70 + 1, False),
        (ARRAY[:1], ARRAY, False),
        (ARRAY[:0], ARRAY[:1], False),
        (numpy.int64(2), 2, True),
        (numpy.float32(2), 2, True),
        (numpy.int64(3), 2, False),
        (numpy.True_, True, True),
        (numpy.True_, False, False),
        (numpy.int64(2), 2.5, False),
        (numpy.float16(0.1), 0.1, True),
        (numpy.float16(0.1), 0.11, False),
        (numpy.complex64(0.1j), 0.1j, True),
        (numpy.float32(0.1), 0.1 + 0j, False),
        (ARRAY, ARRAY * numpy.float32(1 + 1e-6), True),
        (ARRAY, ARRAY * numpy.float32(1 + 1e-3), False),
        (ARRAY, ARRAY.astype(float), False),
        (ARRAY[::-1], ARRAY[::-1].astype(">f4"), True),
        (numpy.broadcast_to(ARRAY[:1], 3), ARRAY[[0, 0, 0]], True),
        (ARRAY, torch.from_numpy(ARRAY), False),
        (numpy.array(["a"]), numpy.array(["a"]), True),
        (numpy.array(["a"]), numpy.array(["b"]), False),
        (
            numpy.ma.masked_array(ARRAY, [True, False, False]),
            numpy.ma.masked_array(ARRAY * [2, 1, 1], [True, False, False]),
            True,
        ),
    ],
)
def test_leaves_that_are_no_tensors(found: object, expected: object, passes: bool) -> None:
    """An object of another class is not asked whether it is equal."""
    assert compare_outputs(found, expected)[0].passed is passes


class TestStructure:
    @pytest.mark.parametrize(
        ("candidate", "reference", "problems"),
        [
            (1, (1,), {"out": "the candidate returns it, the", "out[0]": "the candidate does not return it"}),
            ((1,), (1, 2), {"out[1]": "the candidate does not return it"}),
            ({"a": 1, "b": 2}, {"b": 2}, {"out['a']": "the candidate returns it, the reference does not"}),
            (None, 1, {"out": "found None, expected 1"}),
            ("a", "b", {"out": "found 'a', expected 'b'"}),
            (torch.zeros(1), 0.0, {"out": "found a tensor, expected float"}),
            (None, torch.zeros(1), {"out": "found NoneType, expected a tensor: let it return its output, "}),
            (torch.zeros(2, 3), torch.zeros(3, 2), {"out": "shape (2, 3), expected (3, 2)"}),
            (torch.zeros(()), torch.zeros(1), {"out": "shape (), expected (1,)"}),
            (torch.zeros(1).half(), torch.zeros(1), {"out": "dtype torch.float16, expected torch.float32"}),
            (
                torch.zeros(1, device="meta"),
                torch.zeros(1),
                {"out": "device meta, expected cpu: let both compute on one device"},
            ),
            (torch.zeros(1, device="meta"), torch.zeros(1, device="meta"), {"out": "on device meta, which holds no"}),
            (torch.zeros(1).to_sparse(), torch.zeros(1), {"out": "layout torch.sparse_coo, expected torch.strided"}),
            (
                torch.zeros(1).int(),
                torch.zeros(()),
                {"out": "shape (1,), expected (); dtype torch.int32, expected torch.float32"},
            ),
        ],
    )
    def test_mismatches_are_told_apart(self, candidate: object, reference: object, problems: dict[str, str]) -> None:
        failed = {one.name: one for one in compare_outputs(candidate, reference) if not one.passed}
        assert set(failed) == set(problems)
        for name, problem in problems.items():
            assert problem in str(failed[name].problem)
            assert failed[name].line == f"{name} FAIL {failed[name].problem}"
            assert failed[name].sentence == f"{name}: {failed[name].problem}"

    def test_one_wrong_output_does_not_hide_the_others(self) -> None:
        x = torch.ones(3)
        differences = compare_outputs({"a": x, "b": x + 1, "c": (x,)}, {"c": [x], "b": x, "a": x})
        assert {one.name: one.passed for one in differences} == {
            "out['a']": True,
            "out['b']": False,
            "out['c'][0]": True,
        }

    def test_nothing_returned_is_no_difference(self) -> None:
        assert compare_outputs((), ()) == ()
        assert compare(None, None).line == "out PASS equal"

    def test_what_cannot_be_compared(self) -> None:
        class Sulky:
            __hash__ = None  # type: ignore[assignment]

            def __eq__(self, other: object) -> bool:
                raise TypeError("never")

            __repr__ = __eq__  # type: ignore[assignment]

        assert compare(Sulky(), Sulky()).problem == "Sulky and Sulky cannot be compared: never"
        assert compare(Sulky(), 1).problem == "found <Sulky>, expected 1"

    def test_keys_of_one_repr_are_outputs_of_their_own(self) -> None:
        class Key:
            def __repr__(self) -> str:
                return "key"

        keys = Key(), Key()
        found, expected = (dict(zip(keys, values, strict=True)) for values in ((1, 2), (3, 2)))
        assert [each.passed for each in compare_outputs(found, expected)] == [False, True]

    @pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
    @pytest.mark.parametrize("name", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
    def test_sparse_tensors_are_compared_by_their_parts(self, name: str) -> None:
        dense = torch.eye(4)
        one, other = getattr(dense, name)(), getattr(dense * 2, name)()
        assert all(difference.passed for difference in compare_outputs(one, one))
        failed = [difference for difference in compare_outputs(one, other) if not difference.passed]
        assert [(difference.name, difference.mismatched) for difference in failed] == [("out.values()", 4)]
        dense = dense.index_put((torch.tensor(0), torch.tensor(1)), torch.tensor(1.0))
        assert any("shape (5,)" in difference.sentence for difference in compare_outputs(getattr(dense, name)(), one))

    @pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
    def test_sparse_tensors_that_hold_an_element_in_two_parts(self) -> None:
        twice = torch.sparse_coo_tensor(
            torch.tensor([[0, 0, 2]]), torch.tensor([0.5, 0.5, 1.0]), (3,), check_invariants=True
        )
        assert not twice.is_coalesced()
        assert all(one.passed for one in compare_outputs(twice, torch.tensor([1.0, 0, 1]).to_sparse()))


@pytest.mark.parametrize("wrong", [(), (0,), (9,), (0, 9)])
def test_briefly_a_part_of_a_wrong_output_is_enough(monkeypatch: pytest.MonkeyPatch, wrong: tuple[int, ...]) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 2)
    found, expected = torch.zeros(10), torch.zeros(10)
    found[list(wrong)] = 1
    (whole,), (brief,) = (compare_outputs(found, expected, briefly=briefly) for briefly in (False, True))
    assert whole.passed == brief.passed == (not wrong)
    assert (whole.mismatched, brief.mismatched, brief.where) == (len(wrong), min(len(wrong), 1), None)
