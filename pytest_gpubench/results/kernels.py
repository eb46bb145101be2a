"""Kernels by their names: short names, shares of a call, and kernels that only one of two calls launches."""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

import msgspec

from pytest_gpubench.results.model import Kernel, Resources, Timing

LONGEST = 80
"""Characters of a library's kernel name, which may spell out its whole configuration, that are kept."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one kernel, or several together, took of a call."""

    name: str
    """Short, and different for different kernels."""
    kernels: int = 1
    """The number of different kernels that it stands for."""
    launches: int
    """Launches in one call."""
    median_us: float
    """As in `Kernel`; of several the sum."""
    mean_us: float | None
    """As in `Kernel`; of several the sum."""
    share: float
    """Its share of the sum over all kernels: of their means, or of their medians if no means were kept."""
    resources: tuple[Resources, ...] = ()
    """As in `Kernel`; empty of several."""


def breakdown(timing: Timing, most: int) -> tuple[Share, ...]:
    """Return the time of each kernel, copy and memset of a call, the longest first; empty if none were seen.

    The means sum to the timing's mean and the shares to 1, but for float rounding; the medians sum to the timing's
    median only roughly, as the median of a sum is not the sum of the medians. most: where they are more than this, the
    shortest are one.
    """
    names = distinct_names(kernel.name for kernel in timing.kernels)
    times_us = [kernel.mean_us for kernel in timing.kernels if kernel.mean_us is not None]
    if len(times_us) < len(timing.kernels):
        times_us = [kernel.median_us for kernel in timing.kernels]
    total_us = sum(times_us) or 1.0
    shares = [
        Share(
            name=names[kernel.name],
            launches=kernel.launches,
            median_us=kernel.median_us,
            mean_us=kernel.mean_us,
            share=time_us / total_us,
            resources=kernel.resources,
        )
        for kernel, time_us in zip(timing.kernels, times_us, strict=True)
    ]
    shares.sort(key=lambda share: -share.share)
    if len(shares) > most:
        rest = shares[most - 1 :]
        means_us = [share.mean_us for share in rest if share.mean_us is not None]
        together = Share(
            name=f"{len(rest)} more",
            kernels=len(rest),
            launches=sum(share.launches for share in rest),
            median_us=sum(share.median_us for share in rest),
            mean_us=sum(means_us) if len(means_us) == len(rest) else None,
            share=sum(share.share for share in rest),
        )
        shares[most - 1 :] = [together]
    return tuple(shares)


def listed(kernels: Iterable[Kernel]) -> str:
    """Return kernels as a list with their launches: `1 x a, 2 x b`."""
    kernels = list(kernels)
    names = distinct_names(kernel.name for kernel in kernels)
    return ", ".join(f"{kernel.launches} x {names[kernel.name]}" for kernel in kernels)


def is_named(name: str, pattern: str) -> bool:
    """Tell whether a pattern matches the whole of a kernel's name, in full or short, in upper or lower case."""
    return any(fnmatchcase(each.lower(), pattern.lower()) for each in (name, short_name(name)))


def distinct_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name for each kernel, by its full one: the short one, where others have it a longer or the full one."""
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(short_name(name), []).append(name)
    found: dict[str, str] = {}
    for short, same in alike.items():
        found |= _apart(same) if len(same) > 1 else {same[0]: short}
    return found


# short names

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\(unnamed namespace\)|_GLOBAL__N_\w+)::")
OPERATOR = re.compile(r"operator\s*(?:\(\)|->|<=>|<<|>>|<=|>=|<|>)")
LAMBDA = re.compile(r"^[{\[(]?\s*(?:lambda|'lambda)|^\$_\d")
WRAPPERS = re.compile(
    r"(?:\w*gpu_kernel\w*|gpu_index_kernel|ReduceOp|func_wrapper_t|[AB]?(?:Unary|Binary)Functor|enable_\w+)$"
)
"""Templates that leave a kernel's work to one of their arguments."""
SILENT = re.compile(
    r"""(?:float|double|int|uint|char|bool|short|long|unsigned|signed|void|size_t|u?int\d+_t|__half2?|half(?:2|_t)?|Half
        |(?:__nv_)?bfloat16\d?(?:_t)?|BFloat16|tfloat32_t|float_[eu]\w+_t|__nv_fp\w+|Float8_\w+
        |complex|[Aa]rray|tuple|integral_constant|C|Int|OpaqueType|T\d*|memory|std|true|false
        |\w*OffsetCalculator|(?:Load|Store)With\w+|\w*Params\w*|\w*Metadata|\w*[Tt]raits\w*|\w*Policy\w*|\w*Tensor\w*)$""",
    re.VERBOSE,
)
"""Template arguments that do not tell what a kernel does: types, shapes, the way its data are laid out."""
BLAND = frozenset({"kernel", "Kernel", "run", "main", "static_kernel"})
"""Names that say something only together with the namespace they are in."""
SPELT_OUT = re.compile(r"(?:nvjet|cutlass|cudnn_generated|bmm|gemm|kernel_cutlass|sm\d+|ampere|volta|turing)_|fmha")
"""The beginnings of names in which a library spells out all of a kernel's configuration."""


def short_name(name: str) -> str:
    """Return a kernel's short name, without types, arguments and namespaces.

    `void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>(int, ...)` is
    `vectorized_elementwise_kernel<CUDAFunctor_add>`. Names of copies and of Triton kernels stay as they are; a name
    that a library spells out at length is cut in its middle, and so is one that is still mangled.
    """
    if name.startswith(("Memcpy", "Memset", "triton_")):
        return name
    if not name.startswith("_Z"):
        path, arguments = _name_parts(name)
        name = _last(path)
        if inner := next(filter(None, map(_informative, arguments)), None):
            name = f"{name}<{inner}>"
        elif not SPELT_OUT.match(name):
            return name
    kept = (LONGEST - 3) // 2
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3 - kept]}...{name[-kept:]}"


def is_spelt_out(name: str) -> bool:
    """Tell whether a library spells out all of a kernel's configuration in its name."""
    return bool(SPELT_OUT.match(_last(_name_parts(name)[0])))


def _apart(names: Sequence[str]) -> dict[str, str]:
    """Return names that are the same when shortened with those template arguments that tell them apart.

    Numbers and plain types are tried first. The full names where these have no, or not equally many, arguments.
    """
    full = {name: name for name in names}
    split = [_name_parts(name) for name in names]
    if any(name.startswith(("_Z", "Memcpy", "Memset")) for name in names) or len({len(each[1]) for each in split}) > 1:
        return full
    columns = list(zip(*(arguments for _, arguments in split), strict=True))
    differing = [at for at, column in enumerate(columns) if len(set(column)) > 1]
    plain = [at for at in differing if not any("<" in each or "(" in each for each in columns[at])]
    for told in (plain, differing):
        found = []
        for path, arguments in split:  # with these arguments, and the first informative one of the others
            rest = [part for at, each in enumerate(arguments) if at not in told and (part := _informative(each))]
            unqualified = [re.sub(r"(?:\w+::)+", "", arguments[at]) for at in told]
            found.append(f"{_last(path)}<{', '.join([*unqualified, *rest[:1]])}>")
        if len(set(found)) == len(names):
            return dict(zip(names, found, strict=True))
    return full


def _name_parts(name: str) -> tuple[list[str], list[str]]:
    """Return the parts of a function's qualified name, and its template arguments."""
    name = OPERATOR.sub("operator_", UNNAMED.sub("", name)).strip()
    places = list(_outermost(name))
    end = next((at for at, each in places if each == "(" and at), len(name))
    start = max((at + 1 for at, each in places if each == " " and at < end), default=0)
    opening = next((at for at, each in places if each == "<" and start <= at < end), end)
    path = [part for part in name[start:opening].split("::") if part] or [name]
    brackets = name[opening:end]
    if not brackets.startswith("<"):
        return path, []
    inner = brackets[1 : next((at for at, each in _outermost(brackets) if each == ">"), len(brackets))]
    commas = [-1, *(at for at, each in _outermost(inner) if each == ","), len(inner)]
    return path, [inner[before + 1 : after].strip() for before, after in pairwise(commas)]


def _outermost(text: str) -> Iterator[tuple[int, str]]:
    """Yield the characters of a text that lie within no brackets, and the brackets themselves."""
    depth = 0
    for at, each in enumerate(text):
        if each in ">)]}":
            depth = max(0, depth - 1)
        if not depth:
            yield at, each
        if each in "<([{":
            depth += 1


def _last(path: Sequence[str]) -> str:
    return "::".join(path[-2:] if path[-1] in BLAND else path[-1:])


def _informative(argument: str) -> str | None:
    """Return the name in a template argument that tells what its kernel does; None where there is none."""
    text = argument.removeprefix("void ").removeprefix("const ")
    if not IDENTIFIER.match(text) or LAMBDA.match(text):
        return None
    path, arguments = _name_parts(re.split(r"::[\[{]|::operator_", OPERATOR.sub("operator_", text))[0])
    if WRAPPERS.match(path[-1]):
        return next((part for part in map(_informative, arguments) if part), None)
    return path[-1] if IDENTIFIER.fullmatch(path[-1]) and not SILENT.match(path[-1]) else None


# copies and fills

PURE_COPY = re.compile(r"triton_poi_fused_(?:clone|copy_?|_to_copy)(?:_\d+)?")
COPY = re.compile(r"\b(?:direct|b?float\w*)_copy_kernel_cuda\b")
FILL = re.compile(r"\bFillFunctor\b")


def is_copy(name: str, kind: str = "kernel") -> bool:
    """Tell whether a record is a copy: by the copy engine, or by a kernel that certainly does nothing else."""
    if kind != "kernel":
        return kind == "memcpy"
    return bool(PURE_COPY.fullmatch(name) or (not name.startswith("triton_") and COPY.search(short_name(name))))


def is_fill(name: str, kind: str = "kernel") -> bool:
    """Tell whether a record is a memset, or torch's kernel that fills a tensor with one value."""
    return kind == "memset" if kind != "kernel" else bool(FILL.search(short_name(name)))
