"""Tensors: laid out and filled as named, the same from the same seed, printed as the call that makes them."""

import gc
import weakref
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, seed, settings
from hypothesis.errors import InvalidArgument

from pytest_gpubench import strategies as gst

WHOLE_VALUES = ("normal", "zeros", "equal_rows", "large")
WHOLES = ("int8", "int16", "int32", "int64", "uint8", "bool")
FLOATS = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
SHAPES = [(), (0,), (1,), (5,), (3, 0), (0, 3), (3, 781), (2, 3, 17)]
LAYOUTS = pytest.mark.parametrize("layout", gst.LAYOUTS)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    bits = [torch.empty(each.shape, dtype=each.dtype).copy_(each).view(-1).view(torch.uint8) for each in (one, other)]
    return torch.equal(*bits)


class TestLayouts:
    @LAYOUTS
    @pytest.mark.parametrize("dtype", [*FLOATS, *WHOLES])
    def test_values_do_not_depend_on_the_layout(self, layout: str, dtype: str) -> None:
        for shape, values in product(SHAPES[1:], WHOLE_VALUES if dtype in WHOLES else gst.VALUES):
            if (dtype, values) == ("float8_e4m3fn", "inf"):  # it has none
                continue
            made = gst.tensor(shape, dtype, layout, values, 3, device="cpu")
            assert (made.shape, made.dtype) == (shape, getattr(torch, dtype)), values
            expected = gst.tensor(shape, dtype, "contiguous", values, 3, device="cpu")
            if layout == "expanded":
                assert same(made, made[:1].expand(shape)), (shape, values)
            else:
                assert same(made, expected), (shape, values)

    def test_strides_and_beginnings(self) -> None:
        made = {layout: gst.tensor((2, 3, 17), "bfloat16", layout, device="cpu") for layout in gst.LAYOUTS}
        assert {layout: (each.stride(), each.storage_offset()) for layout, each in made.items()} == {
            "contiguous": ((51, 17, 1), 0),
            "transposed": ((51, 1, 3), 0),
            "sliced": ((99, 33, 1), 0),
            "expanded": ((0, 17, 1), 0),
            "offset": ((51, 17, 1), 128),
            "unaligned": ((51, 17, 1), 1),
        }
        assert {layout for layout, each in made.items() if each.data_ptr() % 16} == {"unaligned"}

        strides = {layout: gst.tensor((5,), layout=layout, device="cpu").stride() for layout in gst.LAYOUTS}
        assert strides == {
            "contiguous": (1,), "transposed": (16,), "sliced": (2,), "expanded": (0,), "offset": (1,), "unaligned": (1,)
        }  # fmt: skip
        unaligned = [gst.tensor((7,), dtype, "unaligned", "zeros", device="cpu") for dtype in (*FLOATS, *WHOLES)]
        assert all(each.data_ptr() % 16 for each in unaligned)

    @pytest.mark.parametrize("layout", ["transposed", "sliced", "offset", "unaligned"])
    @pytest.mark.parametrize("shape", [(5,), (4, 6)])
    def test_what_lies_around_is_poisoned(self, layout: str, shape: tuple[int, ...]) -> None:
        made = gst.tensor(shape, "float32", layout, "zeros", device="cpu")
        storage = torch.empty(0).set_(made.untyped_storage())
        assert storage.isnan().sum() == storage.numel() - made.numel()
        whole = gst.tensor(shape, "int8", layout, "zeros", device="cpu")
        assert set(torch.empty(0, dtype=torch.int8).set_(whole.untyped_storage()).tolist()) <= {0, 127}


class TestValues:
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_floats(self, dtype: str) -> None:
        def made(values: str) -> torch.Tensor:
            return gst.tensor((40, 300), dtype, values=values, seed=1, device="cpu").double()

        info = torch.finfo(getattr(torch, dtype))
        assert abs(made("normal").mean()) < 0.05
        assert abs(made("normal").std() - 1) < 0.05
        assert not made("zeros").any()
        assert bool((made("equal_rows") == made("equal_rows")[0]).all())
        assert len(set(made("equal_rows")[0].tolist())) > 10
        peaks = made("peaked") > 15
        assert peaks.sum(1).tolist() == [1] * 40
        assert len(set(peaks.int().argmax(1).tolist())) > 10
        large = made("large")
        assert bool(((large.abs() >= 0.24 * info.max) & (large.abs() <= 0.51 * info.max)).all())
        assert 0.4 < (large < 0).double().mean() < 0.6
        denormal = made("denormal")
        assert bool(((denormal.abs() < info.smallest_normal) & (denormal != 0)).all())
        assert 0.4 < (denormal < 0).double().mean() < 0.6
        assert 1 <= made("nan").isnan().sum() <= 12
        assert gst.tensor((1,), dtype, values="nan", device="cpu").float().isnan().all()
        if dtype != "float8_e4m3fn":
            assert 1 <= made("inf").isinf().sum() <= 12
            assert gst.tensor((1,), dtype, values="inf", device="cpu").float().isinf().all()

    @pytest.mark.parametrize("dtype", WHOLES)
    def test_whole_numbers(self, dtype: str) -> None:
        normal = gst.tensor((900,), dtype, device="cpu").long()
        least = 0 if dtype in ("uint8", "bool") else -8
        assert (int(normal.min()), int(normal.max())) == (least, 1 if dtype == "bool" else 8)
        large = gst.tensor((900,), dtype, values="large", device="cpu").double()
        if dtype != "bool":
            assert large.abs().min() >= torch.iinfo(getattr(torch, dtype)).max / 4
            assert bool((large < 0).any()) == (dtype != "uint8")

    @pytest.mark.parametrize("values", gst.VALUES)
    def test_the_seed_alone_decides(self, values: str) -> None:
        torch.manual_seed(1)
        one = gst.tensor((4, 33), values=values, seed=7, device="cpu")
        state = torch.get_rng_state()
        torch.manual_seed(2)
        assert same(one, gst.tensor((4, 33), values=values, seed=7, device="cpu"))
        torch.manual_seed(1)
        assert torch.equal(state, torch.get_rng_state()), "torch's own generator is left alone"
        if values != "zeros":
            assert not same(one, gst.tensor((4, 33), values=values, seed=8, device="cpu"))

    @LAYOUTS
    def test_a_leaf_collects_its_gradient(self, layout: str) -> None:
        made = gst.tensor((4, 6), layout=layout, device="cpu", requires_grad=True)
        assert made.is_leaf
        torch.autograd.backward((made * 3).sum())
        assert made.grad is not None
        assert bool((made.grad == 3).all())


class TestUnderGiven:
    def test_a_failing_example_prints_the_call_that_makes_it(self) -> None:
        @seed(0)
        @settings(database=None, deadline=None, phases=[Phase.generate, Phase.shrink])
        @given(
            x=gst.tensors(gst.shapes(max_bytes="64KiB"), gst.dtypes("bfloat16"), gst.layouts("sliced"), values="peaked")
        )
        def fails(x: torch.Tensor) -> None:
            assert x.shape[1] < 100

        with pytest.raises(AssertionError) as caught:
            fails()
        text = "\n".join(getattr(caught.value, "__notes__", []))
        line = "tensor(shape=(1, 100), dtype=torch.bfloat16, layout='sliced', values='peaked', seed=0)"
        assert f"x={line}," in text
        again = eval(line, {"torch": torch, "tensor": gst.tensor})
        assert again.shape == (1, 100)
        assert again.stride() == (116, 1)

    def test_tensors_of_earlier_examples_are_let_go(self) -> None:
        alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
        most = []

        @settings(database=None, deadline=None, max_examples=50)
        @given(x=gst.tensors(gst.shapes(max_bytes="1MiB"), gst.dtypes(), gst.layouts(), values=gst.values()))
        def passes(x: torch.Tensor) -> None:
            alive.add(x)
            most.append(len(alive))

        gc.disable()  # a tensor in a cycle of references would wait for the collector
        try:
            passes()
        finally:
            gc.enable()
        assert max(most) <= 2

    def test_every_name_is_drawn(self) -> None:
        seen: set[object] = set()

        @settings(max_examples=400, database=None, deadline=None)
        @given(gst.dtypes(), gst.layouts(), gst.values())
        def collect(dtype: torch.dtype, layout: str, values: str) -> None:
            seen.update({dtype, layout, values})

        collect()
        usual = set(gst.VALUES) - {"denormal", "inf", "nan"}
        assert seen == {torch.float32, torch.float16, torch.bfloat16, *gst.LAYOUTS, *usual}


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: gst.layouts("diagonal"), "layout='diagonal' is not known: choose from contiguous, transposed"),
    (lambda: gst.values("odd"), "values='odd' is not known: choose from normal, zeros"),
    (lambda: gst.dtypes("float32", "complex64"), r"dtypes\(\)\[1\]='complex64' is not known: choose from float32"),
    (lambda: gst.tensors((3, -1)), r"shape\[1\]=-1 is not valid: it must be at least 0"),
    (lambda: gst.tensors("a"), r"shape\[0\]='a' is not valid: it must be a whole number"),  # type: ignore[arg-type]
    (lambda: gst.tensors(3, layout="odd"), "layout='odd' is not known"),
    (lambda: gst.tensors(3, "int8", values="denormal"), "values='denormal' cannot be held by torch.int8: choose from"),
    (lambda: gst.tensors(3, "float8_e4m3fn", values="inf"), "values='inf' cannot be held by torch.float8_e4m3fn"),
    (lambda: gst.tensors(3, "int8", requires_grad=True), "torch.int8 has no gradient"),
    (lambda: gst.tensors(3, requires_grad=1), "requires_grad=1 is not valid: it must be True or False"),  # type: ignore[arg-type]
    (lambda: gst.tensors(3, device="tpu?"), "device='tpu.' is not known to torch"),
    (lambda: gst.tensor(3, seed=-1), "seed=-1 is not valid: it must be at least 0"),
    (lambda: gst.tensor(3, "int8", requires_grad=True), "torch.int8 has no gradient"),
    (lambda: gst.lazy_tensor(2, "int4"), "dtype='int4' is not known"),
    (lambda: gst.lazy_tensor(2, "int8", values="inf"), "values='inf' cannot be held"),
    (lambda: gst.lazy_tensor(2, device="abacus"), "device='abacus' is not known"),
    (lambda: gst.lazy_tensor(2, "int8", requires_grad=True), "has no gradient"),
]


class TestRefused:
    @pytest.mark.parametrize(("ask", "reason"), REFUSED)
    def test_invalid_arguments(self, ask: Callable[[], Any], reason: str) -> None:
        with pytest.raises(InvalidArgument, match=reason):
            ask()

    @pytest.mark.parametrize(("capability", "fine"), [((8, 8), False), ((8, 9), True), (None, True)])
    def test_float8_on_a_gpu_without_it(
        self, capability: tuple[int, int] | None, fine: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)

        @settings(max_examples=1, database=None)
        @given(gst.dtypes("float8_e5m2"))
        def draws(dtype: torch.dtype) -> None:
            assert dtype == torch.float8_e5m2

        if fine:
            draws()
        else:
            with pytest.raises(InvalidArgument, match=r"has compute capability 8\.8 .* leave it out of dtypes"):
                draws()


def made_on() -> str:
    try:
        return gst.tensor((1,)).device.type
    except (AssertionError, RuntimeError):  # there is no GPU in truth
        return "cuda"


class TestDevice:
    @pytest.mark.parametrize(
        ("interpret", "gpu", "expected"),
        [("0", True, "cuda"), (None, True, "cuda"), ("1", True, "cpu"), (None, False, "cpu"), ("0", False, "cpu")],
    )
    def test_the_gpu_unless_kernels_are_interpreted(
        self, interpret: str | None, gpu: bool, expected: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        if interpret is not None:
            monkeypatch.setenv("TRITON_INTERPRET", interpret)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        assert made_on() == expected


class TestLazyTensors:
    def test_it_makes_what_tensor_makes(self) -> None:
        options: dict[str, Any] = {"dtype": "float16", "layout": "sliced", "seed": 3, "device": "cpu"}
        lazy = gst.lazy_tensor((4, 5), **options, requires_grad=True)
        made, expected = lazy.make(), gst.tensor((4, 5), **options, requires_grad=True)
        assert same(made.detach(), expected.detach())
        assert (made.stride(), made.requires_grad) == (expected.stride(), True)
        assert lazy.make() is not made
        assert eval(repr(lazy), {"lazy_tensor": gst.lazy_tensor, "torch": torch}) == lazy

    def test_nothing_is_made_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "randn", lambda *args, **kwargs: pytest.fail("it was made"))
        gst.lazy_tensor((4, 5))

    def test_who_takes_it_for_a_tensor_is_told(self) -> None:
        with pytest.raises(AttributeError, match=r"has no 'sum': .* call its make\(\)"):
            gst.lazy_tensor((2,)).sum()
        assert not hasattr(gst.lazy_tensor((2,)), "__torch_function__")
