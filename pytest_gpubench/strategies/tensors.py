"""Tensors of a given dtype, layout and values, made on the device from a seed."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from hypothesis.strategies import SearchStrategy

from pytest_gpubench.bounds import true_or_false
from pytest_gpubench.strategies.arguments import check_name, count_at_least, parsed
from pytest_gpubench.strategies.choices import LAYOUTS, VALUES, WHOLE_VALUES, DtypeLike, find_dtype

SEEDS = 2**16
PADDING = 16
"""Elements between the rows of a sliced tensor, and the distance of the elements of a transposed vector."""

LAYOUT_OFFSET_BYTES = 256
PEAK = 30.0
"""The height of a row's peak above the rest, whose softmax is then about 1e-12 in all."""

RARE = 1024
"""One value in so many, and at least one, is infinite or NaN."""


OutOfMemoryPolicy = Callable[[str, Mapping[str, int], Callable[[], object]], object]
"""Returns what its third argument makes, or rejects the example where that has no room.

The first two, a text and sizes, are for the report.
"""
out_of_memory_policies: list[OutOfMemoryPolicy] = []
"""The policies of the running searches, the innermost last."""


@dataclass(frozen=True)
class Description:
    """The call that makes a tensor, printed by hypothesis instead of the tensor."""

    text: str
    pasted: str
    """The call to write in @example."""

    def __call__(self, printer: Any, cycle: bool) -> None:
        """Print the call: IPython's and hypothesis's printers call a value's `_repr_pretty_`."""
        printer.text(self.text)


def tensors(
    shape: int | Sequence[int] | SearchStrategy[Any],
    dtype: DtypeLike | SearchStrategy[torch.dtype] = torch.float32,
    layout: str | SearchStrategy[str] = "contiguous",
    *,
    values: str | SearchStrategy[str] = "normal",
    device: torch.device | str | None = None,
    requires_grad: bool = False,
) -> SearchStrategy[torch.Tensor]:
    """Draw a shape, dtype, layout, kind of values and a seed, and make the tensor with `tensor`.

    A failing example prints the call of `tensor` that makes the same one. Shrinks as the given strategies do, and
    towards the seed 0.

    * `shape` is a shape or a strategy for one, such as `shapes()`.
    * `dtype`, `layout` and `values` are one dtype or name, or strategies: `dtypes()`, `layouts()`, `values()`.
    * `device` None means the GPU if there is one and Triton's interpreter is not on, else the CPU.
    * `requires_grad` makes the tensor a leaf that collects a gradient.

    Raises InvalidArgument for what `tensor` refuses.
    """
    fixed = {"shape": shape, "dtype": dtype, "layout": layout, "values": values}
    given = {name: value for name, value in fixed.items() if not isinstance(value, SearchStrategy)}
    _checked_arguments(**{"shape": (1,), "dtype": torch.float32, "layout": "contiguous", "values": "zeros"} | given)
    if "dtype" in given and "values" in given:
        _checked_arguments(shape=(1,), layout="contiguous", dtype=given["dtype"], values=given["values"])
    if parsed(requires_grad, "requires_grad", true_or_false) and "dtype" in given:
        _check_gradient(find_dtype(dtype))
    place = None if device is None else _device(device)
    drawn = {name: value if isinstance(value, SearchStrategy) else st.just(value) for name, value in fixed.items()}
    return st.builds(
        _draw, **drawn, seed=st.integers(0, SEEDS - 1), device=st.just(place), requires_grad=st.just(requires_grad)
    )


def tensor(
    shape: int | Sequence[int],
    dtype: DtypeLike = torch.float32,
    layout: str = "contiguous",
    values: str = "normal",
    seed: int = 0,
    *,
    device: torch.device | str | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Make the tensor that `tensors` drew with these arguments: for `@example` and for tests without hypothesis.

    The same arguments make the same tensor on devices of one type. The values do not depend on the layout, but for
    "expanded".

    `layout` is one of:

    * "contiguous": packed, beginning at an address that is aligned;
    * "transposed": the last two dimensions lie the other way round; a vector is the column of a matrix;
    * "sliced": a window of a tensor with longer rows; a vector is every second element of another;
    * "expanded": the first dimension is one slice, repeated with stride 0; not to be written to;
    * "offset": packed, in the middle of its storage, at an address that is a multiple of 256;
    * "unaligned": packed, at an address that is no multiple of 16.

    What lies in the storage around the tensor is NaN, or the largest number: kernels that read it show.

    `values` is one of:

    * "normal": the standard normal distribution; of whole numbers those from -8 to 8 (from 0 where unsigned);
    * "zeros";
    * "equal_rows": normal, each row (along the last dimension) the same;
    * "peaked": logits, normal, but one in each row is larger by 30;
    * "large": of either sign, between a quarter and half of the largest number that the dtype has;
    * "denormal": of either sign, not 0, smaller than the smallest normal number;
    * "inf", "nan": normal, but one in 1024, and at least one, is infinite (of either sign) or NaN.

    `device` None means the GPU if there is one and Triton's interpreter is not on, else the CPU. Raises
    InvalidArgument for an unknown argument and for values that the dtype cannot hold.
    """
    lazy = lazy_tensor(shape, dtype, layout, values, seed, device=device, requires_grad=requires_grad)
    made: torch.Tensor = lazy.make()
    return made


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that is made when the test is called; see `lazy_tensor`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    values: str
    seed: int
    device: torch.device | None
    requires_grad: bool

    def make(self) -> torch.Tensor:
        """Return the tensor, a new one each time."""
        device, is_expanded, shape = self.device, self.layout == "expanded", self.shape
        if device is None:
            interpreted = os.environ.get("TRITON_INTERPRET", "0").strip().lower() in ("1", "true", "yes", "on", "y")
            is_gpu = not interpreted and torch.cuda.is_available()
            device = torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu")
        packed = (1, *shape[1:]) if is_expanded and shape else shape
        made = _filled_tensor(packed, self.dtype, self.values, self.seed, device)
        if is_expanded:
            made = made.expand(shape)
        elif self.layout != "contiguous":
            made = _window(shape, self.dtype, self.layout, device).copy_(made)
        made.requires_grad_(self.requires_grad)
        made._repr_pretty_ = Description(self.text, repr(self))  # type: ignore[attr-defined]
        return made

    @property
    def text(self) -> str:
        """The call of `tensor` that makes the tensor."""
        text = f"tensor(shape={self.shape!r}, dtype={self.dtype}, layout={self.layout!r}, values={self.values!r}"
        text += f", seed={self.seed}" + (f", device={str(self.device)!r}" if self.device is not None else "")
        return text + (", requires_grad=True)" if self.requires_grad else ")")

    @property
    def _repr_pretty_(self) -> Description:
        return Description(repr(self), repr(self))

    def __repr__(self) -> str:
        return f"lazy_{self.text}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self!r} has no {name!r}: it is made into a tensor in a test under @given that uses gpu_bench; "
            "anywhere else, call its make()"
        )


def lazy_tensor(
    shape: int | Sequence[int],
    dtype: DtypeLike = torch.float32,
    layout: str = "contiguous",
    values: str = "normal",
    seed: int = 0,
    *,
    device: torch.device | str | None = None,
    requires_grad: bool = False,
) -> Any:
    """Describe a tensor for `@example`, in which `tensor` would make it where the test is defined.

    A test under @given that uses gpu_bench is called with the tensor that `tensor` makes with these arguments, a new
    one for each call, also inside of tuples, lists and dicts. Raises InvalidArgument as `tensor` does.
    """
    sides, found = _checked_arguments(shape, dtype, layout, values)
    count_at_least(seed, "seed")
    if parsed(requires_grad, "requires_grad", true_or_false):
        _check_gradient(found)
    return LazyTensor(sides, found, layout, values, seed, None if device is None else _device(device), requires_grad)


def made_of(value: Any) -> Any:
    """Return an argument with every lazy tensor in it made; the same object if there is none."""
    if isinstance(value, LazyTensor):
        return value.make()
    if isinstance(value, dict):
        made = {key: made_of(part) for key, part in value.items()}
        return value if all(made[key] is part for key, part in value.items()) else made
    if not isinstance(value, (tuple, list)):
        return value
    parts = [made_of(part) for part in value]
    if all(part is before for part, before in zip(parts, value, strict=True)):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def _draw(**arguments: Any) -> torch.Tensor:
    lazy: LazyTensor = lazy_tensor(**arguments)
    if not out_of_memory_policies:
        return lazy.make()
    sizes = {f"shape[{axis}]": side for axis, side in enumerate(lazy.shape)}
    return cast(torch.Tensor, out_of_memory_policies[-1](lazy.text, sizes, lazy.make))


def _checked_arguments(
    shape: object, dtype: object, layout: object, values: object
) -> tuple[tuple[int, ...], torch.dtype]:
    found = find_dtype(dtype)
    check_name(layout, "layout", LAYOUTS)
    allowed: Sequence[str] = WHOLE_VALUES
    if found.is_floating_point:
        allowed = [name for name in VALUES if name != "inf" or found != torch.float8_e4m3fn]  # it has no infinity
    if check_name(values, "values", VALUES) not in allowed:
        raise InvalidArgument(f"values={values!r} cannot be held by {found}: choose from {', '.join(allowed)}")
    sides = shape if isinstance(shape, Sequence) and not isinstance(shape, str) else (shape,)
    return tuple(count_at_least(side, f"shape[{axis}]") for axis, side in enumerate(sides)), found


def _check_gradient(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise InvalidArgument(f"requires_grad=True, but {dtype} has no gradient: choose a float dtype")


def _device(asked: torch.device | str) -> torch.device:
    try:
        return torch.device(asked)
    except (RuntimeError, TypeError) as error:
        message = f"device={asked!r} is not known to torch: give a device such as 'cuda' or 'cpu', or None"
        raise InvalidArgument(message) from error


def _window(shape: tuple[int, ...], dtype: torch.dtype, layout: str, device: torch.device) -> torch.Tensor:
    """Return a part of a larger tensor to write values to; around it are NaN, or the largest number."""

    def around(size: Sequence[int]) -> torch.Tensor:
        value = math.nan if dtype.is_floating_point else _largest_integer(dtype)
        return torch.full(size, value, dtype=dtype, device=device)

    number = math.prod(shape)
    if layout in ("offset", "unaligned") or not shape:
        start = max(1, LAYOUT_OFFSET_BYTES // dtype.itemsize) if layout != "unaligned" else 1
        return around([number + 2 * start])[start : start + number].view(shape)
    if len(shape) == 1:
        return around([*shape, PADDING if layout == "transposed" else 2])[:, 0]
    if layout == "transposed":
        return around([*shape[:-2], shape[-1], shape[-2]]).transpose(-1, -2)
    return around([*shape[:-1], shape[-1] + PADDING])[..., : shape[-1]]


def _filled_tensor(
    shape: tuple[int, ...], dtype: torch.dtype, values: str, seed: int, device: torch.device
) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    if values == "zeros":
        return torch.zeros(shape, dtype=dtype, device=device)
    if values == "equal_rows":
        row = _filled_tensor(shape[-1:], dtype, "normal", seed, device)
        return row.expand(shape).contiguous()
    if not dtype.is_floating_point:
        return _fill_whole(shape, dtype, values, generator)
    if values == "denormal":
        return _fill_denormal(shape, dtype, generator)
    computed = torch.bfloat16 if dtype.itemsize == 1 else dtype  # torch cannot compute in a float8
    if values == "large":
        made = torch.rand(shape, dtype=computed, device=device, generator=generator)
        made.add_(1).mul_(torch.finfo(dtype).max / 4)
        return made.mul_(_signs(shape, generator).mul_(2).sub_(1)).to(dtype)
    made = torch.randn(shape, dtype=computed, device=generator.device, generator=generator)
    if values != "normal" and made.numel():
        _mark(made, values, generator)
    return made.to(dtype)


def _mark(made: torch.Tensor, values: str, generator: torch.Generator) -> None:
    """Raise a peak in each row, or put infinities or NaN in."""

    def drawn(below: int, size: Sequence[int]) -> torch.Tensor:
        return torch.randint(below, size, device=made.device, generator=generator)

    if values == "peaked":
        rows = made.view(-1, made.shape[-1] if made.ndim else 1)
        where = drawn(rows.shape[1], (rows.shape[0], 1))
        rows.scatter_add_(1, where, torch.full_like(where, PEAK, dtype=made.dtype))
        return
    places = drawn(made.numel(), (-(-made.numel() // RARE),))
    odd = torch.tensor([math.inf, -math.inf] if values == "inf" else [math.nan] * 2, dtype=made.dtype)
    made.view(-1)[places] = odd.to(made.device)[places % 2]


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(2, shape, dtype=torch.int8, device=generator.device, generator=generator)


def _fill_denormal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Put floats with exponent 0 together from their bits."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    mantissa = round(1 / torch.finfo(dtype).eps)
    made = torch.randint(1, mantissa, shape, dtype=bits, device=generator.device, generator=generator)
    sign = 128 if bits == torch.uint8 else torch.iinfo(bits).min
    return made.bitwise_or_(_signs(shape, generator).to(bits).mul_(sign)).view(dtype)


def _fill_whole(shape: tuple[int, ...], dtype: torch.dtype, values: str, generator: torch.Generator) -> torch.Tensor:
    largest = _largest_integer(dtype)
    low, high = (largest // 4 + 1, largest // 2 + 1) if values == "large" else (-8, 9)
    if dtype == torch.bool:
        low, high = 0, 2
    elif dtype == torch.uint8:
        low = max(0, low)
    made = torch.randint(low, high, shape, dtype=dtype, device=generator.device, generator=generator)
    if values == "large" and dtype not in (torch.bool, torch.uint8):
        made.mul_(_signs(shape, generator).to(dtype).mul_(2).sub_(1))
    return made


def _largest_integer(dtype: torch.dtype) -> int:
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max
